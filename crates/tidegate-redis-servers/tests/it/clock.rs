//! Steps of a server's clock.

use std::path::PathBuf;

use tidegate_redis_servers::{Appendfsync, Program, Server};

/// The server's time in milliseconds.
fn time_ms(server: &Server) -> i64 {
    let reply = server.command(&["TIME"]);
    let [secs, micros] = reply.array() else { panic!("{reply:?}") };
    secs.integer() * 1_000 + micros.integer() / 1_000
}

#[test]
fn a_step_of_the_clock_shows_in_time_and_in_scripts_at_once() {
    for program in Program::ALL {
        let other = Server::start(program);
        let server = Server::builder(program).steppable_clock().start();
        let mut expected_ms = 0;
        for step in [10, -10, -10, 20, 3_600] {
            server.step_clock(step);
            expected_ms += step * 1_000;
            let before = time_ms(&other);
            let stepped = time_ms(&server);
            let script = server.command(&["EVAL", "return redis.call('TIME')[1]", "0"]).integer();
            let after = time_ms(&other);
            // Both clocks are those of this machine, which no test may set.
            let range = before + expected_ms..=after + expected_ms;
            assert!(range.contains(&stepped), "{program}: {stepped} is not in {range:?}");
            assert!((range.start() / 1_000..=range.end() / 1_000).contains(&script), "{program}");
        }
    }
}

/// Valkey counts on for some milliseconds before it reads its clock again.
#[test]
fn a_step_is_over_when_it_returns() {
    for program in Program::ALL {
        let server = Server::builder(program).steppable_clock().start();
        let mut connection = server.connect().unwrap();
        let mut time = || connection.command(&["TIME"]).unwrap().array()[0].integer();
        for _ in 0..50 {
            let before = time();
            server.step_clock(100);
            let step = time() - before;
            assert!(step >= 100, "{program}: {step} s");
        }
    }
}

#[test]
fn a_step_forward_expires_keys_and_a_step_back_keeps_them_for_longer() {
    for program in Program::ALL {
        let server = Server::builder(program).steppable_clock().start();
        let _ = server.command(&["SET", "key", "value", "EX", "60"]).success();
        server.step_clock(-10);
        let left = server.command(&["TTL", "key"]).integer();
        assert!((61..=70).contains(&left), "{program}: {left}");
        server.step_clock(80);
        assert_eq!(server.command(&["EXISTS", "key"]).integer(), 0, "{program}");
    }
}

#[test]
fn a_restart_keeps_the_step() {
    for program in Program::ALL {
        let server =
            Server::builder(program).steppable_clock().appendonly(Appendfsync::Always).start();
        let before = time_ms(&server);
        server.step_clock(1_000);
        server.restart();
        assert!(time_ms(&server) >= before + 1_000_000, "{program}");
    }
}

#[test]
fn a_killed_server_leaves_no_shared_memory() {
    let server = Server::builder(Program::Redis7).steppable_clock().start();
    let pid = server.info("process_id").unwrap();
    let shared = PathBuf::from(format!("/dev/shm/faketime_shm_{pid}"));
    assert!(shared.exists());
    server.kill();
    assert!(!shared.exists());
}

#[test]
#[should_panic(expected = "the server has no steppable clock")]
fn a_server_with_the_usual_clock_is_not_stepped() {
    Server::start(Program::Valkey9).step_clock(1);
}
