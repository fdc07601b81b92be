//! A daemon on a real server that several daemons could share.

use std::time::Duration;

use tidegate::redis::Redis;
use tidegate_redis_servers::{Appendfsync, Program, Replication, Server};
use tidegate_server::StartError;

use crate::running::{Running, until};

const FSYNC: &str = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\n\
     quota = { max = 2, per = \"day\" }\ndurability = \"fsync\"\n";

fn redis(server: &Server) -> Redis {
    let deadline = Duration::from_secs(5);
    Redis::builder(&server.url()).secret("a secret").deadline(deadline).build().unwrap()
}

fn start(server: &Server, policy: &str) -> Result<Running, StartError> {
    Running::start_with(policy, |settings| settings.redis(redis(server)))
}

#[test]
fn a_durability_that_the_store_lacks_refuses_the_start_and_new_policies() {
    let server = Server::start(Program::Valkey9);
    let error = match start(&server, FSYNC) {
        Ok(_) => panic!("it has started"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("`calls`") && error.contains("appendonly yes"), "{error}");
    assert!(error.contains("hint"), "{error}");
    // Nothing of it is in the store.
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
    let default = FSYNC.replace("durability = \"fsync\"\n", "");
    let running = start(&server, &default).unwrap();
    until("the server is known", || {
        running.admin_ok("GET", "/admin/v1/status", "")["store"]["server"].is_string()
    });
    let reply = running.ask("PUT", "/admin/v1/policy", FSYNC).with(422);
    assert!(reply.body.contains("appendonly yes"), "{reply:?}");
    let _ = running.admin_ok("PUT", "/admin/v1/policy", &default.replace("max = 2", "max = 3"));
}

#[test]
fn a_store_that_is_away_at_the_start_is_judged_when_it_is_there() {
    let server = Server::start(Program::Valkey9);
    server.kill();
    let running = start(&server, FSYNC).unwrap();
    server.restart();
    let status = || running.admin_ok("GET", "/admin/v1/status", "")["store"].clone();
    until("the reason is seen", || {
        status()["not_durable"].as_str().is_some_and(|it| it.contains("appendonly yes"))
    });
    let ready = running.ask("GET", "/readyz", "");
    assert!(ready.body.contains("appendonly yes"), "{ready:?}");
    let _ = server.command(&["CONFIG", "SET", "appendonly", "yes"]).success();
    let _ = server.command(&["CONFIG", "SET", "appendfsync", "always"]).success();
    until("it is durable enough", || status()["not_durable"].is_null());
}

#[test]
fn a_step_of_the_clock_is_in_the_status_and_in_the_metrics() {
    let server = Server::builder(Program::Valkey9).steppable_clock().start();
    let running = start(&server, &FSYNC.replace("durability = \"fsync\"\n", "")).unwrap();
    let status = || running.admin_ok("GET", "/admin/v1/status", "")["store"].clone();
    // With the policy the server's time was read.
    until("the policy is there", || status()["counters"]["commits"].as_u64() > Some(0));
    assert!(status()["clock_step_ms"].is_null());
    server.step_clock(-60);
    let is_it = |ms: i64| (-60_500..-55_000).contains(&ms);
    until("it is seen", || status()["clock_step_ms"].as_i64().is_some_and(is_it));
    let metrics = running.ask("GET", "/metrics", "").with(200).body;
    assert!(metrics.contains("tidegate_store_clock_back_total 1\n"), "{metrics}");
}

#[test]
pub(crate) fn the_lag_of_replicas_and_the_keys_are_in_the_status_and_in_the_metrics() {
    let settings = Server::builder(Program::Valkey9).appendonly(Appendfsync::Always);
    let servers = Replication::start_with(&settings, 1);
    let running = start(servers.primary(), FSYNC).unwrap();
    let status = || running.admin_ok("GET", "/admin/v1/status", "")["store"].clone();
    until("all of it is known", || {
        let status = status();
        status["replicas"] == 1
            && status["replica_lag_bytes"].is_u64()
            && status["replica_lag_seconds"].is_u64()
            && status["database_keys"].as_u64().is_some_and(|it| it > 0)
    });
    let metrics = running.ask("GET", "/metrics", "").with(200).body;
    for name in ["replicas 1", "replica_lag_bytes ", "replica_lag_seconds ", "database_keys "] {
        let line = format!("\ntidegate_store_{name}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    servers.replicas()[0].pause();
    // The replica is there, and acknowledges nothing: its lag grows.
    let put = |max: u64| FSYNC.replace("max = 2", &format!("max = {max}"));
    let _ = running.admin_ok("PUT", "/admin/v1/policy", &put(7));
    until("the lag is seen", || status()["replica_lag_bytes"].as_u64().is_some_and(|it| it > 1000));
}
