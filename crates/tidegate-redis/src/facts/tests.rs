use super::*;

const INFO: &str = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nrun_id:4c6a\r\n\
    maxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\nconnected_slaves:2\r\n\
    slave0:ip=127.0.0.1,port=7992,state=online,offset=902,lag=0,type=replica\r\n\
    slave1:ip=::1,port=7993,state=online,offset=400,lag=3\r\nslave_read_only:1\r\n\
    master_repl_offset:1003\r\n";

#[test]
fn the_lag_is_that_of_the_replica_furthest_behind() {
    let facts = ServerFacts::read(INFO).unwrap();
    assert_eq!((facts.program, facts.version), ("valkey", [9, 1, 2]));
    assert_eq!((facts.replicas, &*facts.run_id), (2, "4c6a"));
    assert_eq!(facts.lag, ReplicaLag { bytes: 603, seconds: 3 });
}

#[test]
fn a_replica_without_an_acknowledgement_lacks_everything() {
    let info = "redis_version:7.0.15\nconnected_slaves:1\nmaster_repl_offset:50\n\
        slave0:ip=127.0.0.1,port=1,state=wait_bgsave,offset=0,lag=0\n";
    assert_eq!(ServerFacts::read(info).unwrap().lag.bytes, 50);
    assert_eq!(ServerFacts::read("redis_version:7.0.15\n").unwrap().lag, ReplicaLag::default());
}

#[test]
fn the_log_follows_what_the_server_says() {
    let mut facts = ServerFacts::read(INFO).unwrap();
    let mut log = |has_waitaof, info: &str, appendfsync| {
        facts.has_waitaof = has_waitaof;
        facts.update(info, appendfsync);
        facts.log
    };
    assert_eq!(log(true, INFO, Some("always")), LogSync::Always);
    assert_eq!(log(true, INFO, Some("everysec")), LogSync::Later);
    assert_eq!(log(true, INFO, None), LogSync::Later);
    assert_eq!(log(false, INFO, Some("everysec")), LogSync::Unseen);
    assert_eq!(log(false, INFO, Some("always")), LogSync::Always);
    assert_eq!(log(true, "aof_enabled:0\n", Some("always")), LogSync::None);
}
