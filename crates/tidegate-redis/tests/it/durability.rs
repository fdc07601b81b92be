//! How durable charges are before they are acknowledged.

use std::thread;
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::redis::{LogSync, RedisBuilder};
use tidegate::{Edit, Request, hold::Commit};
use tidegate_redis_servers::{
    Appendfsync, Cluster, Cut, Program, Proxy, Replication, Server, until,
};

use crate::cluster;
use crate::support::{ADA, Node, builder, eventually};

/// Rules of each level, in a domain of its own each.
const LEVELS: &str = "[[rule]]\nname = \"m\"\ndomain = \"memory\"\nkey = [\"user\"]\n\
     window = { max = 500, per = \"1h\" }\ndurability = \"memory\"\n\
     [[rule]]\nname = \"f\"\ndomain = \"flush\"\nkey = [\"user\"]\n\
     window = { max = 500, per = \"1h\" }\ndurability = \"flush\"\n";

const FSYNC: &str = "[[rule]]\nname = \"s\"\nkey = [\"user\"]\nquota = { max = 500, per = \"day\" }\n\
     durability = \"fsync\"\n";

const QUOTA: &str =
    "[[rule]]\nname = \"q\"\nkey = [\"user\"]\nquota = { max = 500, per = \"day\" }\n";

const MEMORY: Request<'static> = Request::new("memory", &[("user", "ada")]);
const FLUSH: Request<'static> = Request::new("flush", &[("user", "ada")]);

/// A builder that waits for one replica, and not for long.
fn with_replica(url: &str) -> RedisBuilder {
    builder(url).replicas(1).deadline(Duration::from_millis(400))
}

#[test]
fn flush_waits_for_replicas_and_memory_does_not() {
    for program in [Program::Valkey9, Program::Redis7] {
        let servers = Replication::start(program, 1);
        let node = Node::with(with_replica(&servers.primary().url()), LEVELS);
        until("it decides", || node.allows(&FLUSH) == Some(true));
        let barriers = node.redis.stats().barriers;
        assert!(barriers > 0, "{program}");
        // The replica is connected, and acknowledges nothing.
        servers.replicas()[0].pause();
        assert_eq!(node.allows(&MEMORY), Some(true), "{program}");
        assert_eq!(node.redis.stats().not_durable, 0, "{program}");
        assert_eq!(node.allows(&FLUSH), None, "{program}: it was acknowledged by no replica");
        let stats = node.redis.stats();
        assert_eq!((stats.not_durable, stats.unknown), (1, 1), "{program}");
        servers.replicas()[0].resume();
        until("it decides again", || node.allows(&FLUSH) == Some(true));
        assert!(node.redis.stats().barriers > barriers, "{program}");
    }
}

#[test]
fn settlements_and_repeats_wait_as_the_first_did_and_denials_do_not() {
    let servers = Replication::start(Program::Valkey9, 1);
    let policy = LEVELS.replace("500", "2");
    let node = Node::with(with_replica(&servers.primary().url()), &policy);
    let named = FLUSH.idempotency_key("once");
    until("it decides", || node.allows(&named) == Some(true));
    let held = node.engine.hold(&FLUSH).block().unwrap().hold().unwrap();
    servers.replicas()[0].pause();
    assert_eq!(node.allows(&FLUSH), Some(false), "a denial waits for nothing");
    assert_eq!(node.allows(&named), None, "a repeat may not be durable yet");
    let commit = || node.engine.commit(held, Commit::default()).block();
    assert!(commit().is_err(), "no replica has it");
    assert!(commit().is_err(), "nor has it when it is repeated");
    servers.replicas()[0].resume();
    eventually("it is durable", || commit().ok());
    until("the repeat is durable", || node.allows(&named) == Some(true));
    assert_eq!(node.allows(&FLUSH), Some(false), "both were charged once");
}

#[test]
fn an_edit_waits_for_replicas() {
    let servers = Replication::start(Program::Valkey9, 1);
    let node = Node::with(with_replica(&servers.primary().url()), LEVELS);
    until("it decides", || node.allows(&FLUSH) == Some(true));
    servers.replicas()[0].pause();
    let policy = Policy::from_toml(&LEVELS.replace("500", "400")).unwrap();
    thread::scope(|scope| {
        let before = node.redis.stats().barriers;
        let editing = scope.spawn(|| node.engine.edit("test", Edit::policy(policy)).block());
        until("it waits", || node.redis.stats().barriers > before);
        assert!(!editing.is_finished());
        servers.replicas()[0].resume();
        editing.join().unwrap().unwrap();
    });
}

#[test]
fn a_commit_whose_connection_is_lost_before_it_is_durable_is_unknown() {
    let servers = Replication::start(Program::Valkey9, 1);
    let proxy = Proxy::start(servers.primary().address());
    let patient = builder(&proxy.url()).replicas(1).deadline(Duration::from_secs(60));
    let node = Node::with(patient, LEVELS);
    until("it decides", || node.allows(&FLUSH) == Some(true));
    servers.replicas()[0].pause();
    let barriers = node.redis.stats().barriers;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| node.allows(&FLUSH));
        until("it waits", || node.redis.stats().barriers > barriers);
        proxy.cut(Cut::Reset);
        // Long before its deadline: the server may be another one now.
        assert_eq!(waiting.join().unwrap(), None);
    });
    assert_eq!(node.redis.stats().not_durable, 1);
}

#[test]
fn a_level_that_the_server_lacks_is_found_and_nothing_is_written_for_it() {
    let server = Server::start(Program::Valkey9);
    let node = Node::new(&server.url(), FSYNC);
    eventually("it is connected", || node.redis.server());
    let policy = Policy::from_toml(FSYNC).unwrap();
    let error = node.redis.check_durability(&policy).unwrap_err().to_string();
    assert!(error.contains("rule `s`") && error.contains("appendonly"), "{error}");
    // The policy itself is there, but no charge.
    assert_eq!(node.allows(&ADA), None);
    let keys = server.command(&["KEYS", "*state*"]).array().len();
    assert_eq!(keys, 0);
    // A default is done as well as it can be.
    let node = Node::with(builder(&server.url()).namespace("other"), QUOTA);
    assert_eq!(node.allows(&ADA), Some(true));
    assert_eq!(node.redis.check_durability(&Policy::from_toml(QUOTA).unwrap()), Ok(()));
    // More replicas than there are.
    let node = Node::with(with_replica(&server.url()).namespace("third"), LEVELS);
    eventually("it is connected", || node.redis.server());
    let error = node.redis.check_durability(&Policy::from_toml(LEVELS).unwrap()).unwrap_err();
    assert!(error.to_string().contains("store_replicas is 1"), "{error}");
    assert_eq!((node.allows(&FLUSH), node.allows(&MEMORY)), (None, Some(true)));
}

#[test]
fn fsync_follows_the_settings_of_the_server() {
    use Appendfsync::{Always, Everysec};
    let table = [
        (Program::Valkey9, Always, LogSync::Always, false),
        (Program::Valkey9, Everysec, LogSync::Later, true),
        (Program::Redis7, Always, LogSync::Always, false),
    ];
    for (program, fsync, log, waits) in table {
        let server = Server::builder(program).appendonly(fsync).start();
        let node = Node::new(&server.url(), FSYNC);
        assert_eq!(node.allows(&ADA), Some(true), "{program} {fsync}");
        assert_eq!(node.redis.server().unwrap().log, log, "{program} {fsync}");
        assert_eq!(node.redis.stats().barriers > 0, waits, "{program} {fsync}");
        assert_eq!(node.redis.check_durability(&Policy::from_toml(FSYNC).unwrap()), Ok(()));
    }
    // Redis 7.0 has no WAITAOF.
    let server = Server::builder(Program::Redis7).appendonly(Everysec).start();
    let node = Node::new(&server.url(), FSYNC);
    assert_eq!(node.allows(&ADA), None);
    let error = node.redis.check_durability(&Policy::from_toml(FSYNC).unwrap()).unwrap_err();
    assert!(error.to_string().contains("redis 7.0"), "{error}");
    // The setting is changed while it runs.
    let _ = server.command(&["CONFIG", "SET", "appendfsync", "always"]).success();
    until("it is noticed", || node.allows(&ADA) == Some(true));
    let _ = server.command(&["CONFIG", "SET", "appendonly", "no"]).success();
    until("it is noticed", || node.allows(&ADA).is_none());
}

#[test]
fn a_server_that_syncs_always_loses_nothing_when_it_is_killed() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::builder(program).appendonly(Appendfsync::Always).start();
        let node = Node::new(&server.url(), FSYNC);
        let mut acknowledged = 0;
        for round in 0..3 {
            until("some are allowed", || {
                acknowledged += u64::from(node.allows(&ADA) == Some(true));
                acknowledged >= 20 * (round + 1)
            });
            server.kill();
            server.restart();
        }
        let unknown = node.redis.stats().unknown;
        let charged = 500 - node.left();
        assert!((acknowledged..=acknowledged + unknown).contains(&charged), "{program}: {charged}");
    }
}

#[test]
fn in_a_cluster_the_replicas_of_the_node_with_the_records_are_waited_for() {
    let policy = "[[rule]]\nname = \"u\"\nkey = [\"user\"]\ndurability = \"flush\"\n\
        window = { max = 500, per = \"1h\" }\n\
        [[rule]]\nname = \"all\"\ndurability = \"flush\"\nwindow = { max = 500, per = \"1h\" }\n";
    let cluster = Cluster::start(Program::Valkey9);
    let builder = builder(&cluster::url(&cluster));
    let node = Node::with(builder.replicas(1).deadline(Duration::from_millis(400)), policy);
    until("it decides", || node.allows(&ADA) == Some(true));
    let owner = cluster.primary_of(cluster.slot_of("{tidegate}:control"));
    for (number, replica) in cluster.nodes()[3..].iter().enumerate() {
        replica.pause();
        // The replicas of the other nodes do not matter.
        let is_its = number == owner;
        until("it waits for its replica alone", || node.allows(&ADA).is_none() == is_its);
        replica.resume();
        until("it decides again", || node.allows(&ADA) == Some(true));
    }
    let keys = || u64::try_from(cluster.nodes()[owner].command(&["DBSIZE"]).integer()).ok();
    until("its keys are counted", || node.redis.server().and_then(|it| it.keys) == keys());
}
