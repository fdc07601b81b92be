use serde_json::json;

use super::*;

#[test]
fn a_shared_store_shows_its_keys_its_replicas_its_nodes_and_what_it_lacks() {
    let mut stdout = Vec::new();
    let mut io = Io { stdin: &mut io::empty(), stdout: &mut stdout, stderr: &mut io::sink() };
    let body = json!({
        "kind": "redis", "server": "valkey 9.1.2", "available": true, "failure": null,
        "not_durable": "the store cannot provide it", "replicas": 2, "replica_lag_bytes": 120,
        "replica_lag_seconds": 1, "database_keys": 7, "clock_step_ms": -10_250,
        "nodes": [
            { "name": "one:7", "version": "0.1.0", "address": null, "seen_ms_ago": 3, "self": true },
            {
                "name": "two\u{1b}:9", "version": "0.1.1", "address": "10.0.0.7:8080",
                "seen_ms_ago": 1950, "self": false,
            },
        ],
    });
    store(&body, &mut io).unwrap();
    let expected = "store     valkey 9.1.2\n          the store cannot provide it: on_error applies\n\
        \x20         its clock stepped back by 10.2 s\n          7 keys in its database\n          2 replicas, up to 120 bytes and 1 s behind\n\
        nodes     one:7, version 0.1.0, this one\n\
        \x20         two\u{fffd}:9 at 10.0.0.7:8080, version 0.1.1, seen 1.9 s ago\n";
    assert_eq!(String::from_utf8(stdout).unwrap(), expected);
}
