//! Sentinels.

use tidegate_redis_servers::{Program, Sentinel, Server};

#[test]
fn sentinels_replace_a_primary_on_request() {
    let settings = Server::builder(Program::Redis7).password("secret");
    let sentinel = Sentinel::start_with(&settings);
    let old = sentinel.primary_address();
    assert_eq!(old, sentinel.servers().next().unwrap().address());
    assert_eq!(sentinel.sentinels().len(), 3);
    sentinel.failover();
    assert_ne!(sentinel.primary_address(), old);
    assert_eq!(sentinel.primary().info("role").as_deref(), Some("master"));
}

#[test]
fn sentinels_replace_a_killed_primary() {
    let sentinel = Sentinel::start(Program::Valkey9);
    let old = sentinel.primary();
    let mut connection = old.connect().unwrap();
    let _ = connection.command(&["SET", "key", "value"]).unwrap().success();
    assert_eq!(connection.command(&["WAIT", "2", "5000"]).unwrap().integer(), 2);
    old.kill();
    sentinel.until_replaced(old.address());
    assert_eq!(sentinel.primary().command(&["GET", "key"]).text(), "value");
    let _ = sentinel.primary().command(&["SET", "key", "new"]).success();
}
