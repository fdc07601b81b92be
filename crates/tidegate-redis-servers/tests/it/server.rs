//! One server: its settings, its life.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use tidegate_redis_servers::{Appendfsync, Connection, Program, Replication, Reply, Server};

const OK: fn() -> Reply = || Reply::Status("OK".into());

#[test]
fn both_programs_run_in_the_expected_versions() {
    for program in Program::ALL {
        let server = Server::start(program);
        let version = program.version();
        println!("{program}: {version} at {}", program.path().display());
        let reported = match program {
            Program::Redis7 => server.info("redis_version"),
            Program::Valkey9 => server.info("valkey_version"),
        };
        assert_eq!(reported, Some(version));
        assert_eq!(server.url(), format!("redis://{}", server.address()));
        let _ = server.command(&["SET", "key", "old"]).success();
        let reply = server.command(&["SET", "key", "new", "IFEQ", "old"]);
        match program {
            Program::Redis7 => assert_eq!(reply.error(), Some("ERR syntax error")),
            Program::Valkey9 => assert_eq!(reply, OK()),
        }
    }
}

#[test]
fn a_killed_server_with_an_always_synced_log_keeps_its_data() {
    for program in Program::ALL {
        let server = Server::builder(program).appendonly(Appendfsync::Always).start();
        let address = server.address();
        for number in 1..=100 {
            assert_eq!(server.command(&["INCR", "n"]).integer(), number);
        }
        server.kill();
        assert!(!server.is_running());
        assert_eq!(server.try_command(&["PING"]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        server.restart();
        assert_eq!(server.address(), address);
        assert_eq!(server.command(&["GET", "n"]).text(), "100");
    }
}

#[test]
fn a_server_without_a_log_is_empty_after_a_restart() {
    let server = Server::start(Program::Valkey9);
    assert_eq!(server.command(&["SET", "key", "value"]), OK());
    server.restart();
    assert_eq!(server.command(&["GET", "key"]), Reply::Null);
    assert_eq!(server.command(&["CONFIG", "GET", "appendonly"]).array()[1].text(), "no");
}

#[test]
fn log_settings_are_in_force() {
    for fsync in [Appendfsync::Always, Appendfsync::Everysec, Appendfsync::No] {
        let server = Server::builder(Program::Redis7).appendonly(fsync).start();
        let reply = server.command(&["CONFIG", "GET", "appendfsync"]);
        assert_eq!(reply.array()[1].text(), fsync.to_string());
    }
}

#[test]
fn a_paused_server_answers_nothing_until_it_is_resumed() {
    for program in Program::ALL {
        let server = Server::start(program);
        server.pause();
        assert!(!server.is_running());
        let timeout = Duration::from_millis(100);
        // The kernel accepts the connection.
        let mut connection = Connection::open_with_timeout(server.address(), timeout).unwrap();
        let error = connection.command(&["INCR", "n"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        server.resume();
        // The reply that was late.
        tidegate_redis_servers::until("the late reply", || connection.receive().is_ok());
        assert_eq!(server.command(&["GET", "n"]).text(), "1");
    }
}

#[test]
fn a_paused_server_can_be_killed_and_restarted() {
    let server = Server::start(Program::Redis7);
    server.pause();
    server.restart();
    assert!(server.is_running());
}

#[test]
fn passwords_and_users_are_in_force() {
    for program in Program::ALL {
        let password = "p\"a s#s\\";
        let server = Server::builder(program)
            .password(password)
            .user("reader", "on >secret ~tg:* +get +ping")
            .start();
        let mut connection = Connection::open(server.address()).unwrap();
        assert!(connection.command(&["PING"]).unwrap().error().unwrap().starts_with("NOAUTH"));
        assert_eq!(server.command(&["SET", "tg:a", "1"]), OK());
        assert_eq!(server.url(), format!("redis://:p%22a%20s%23s%5C@{}", server.address()));

        assert_eq!(connection.command(&["AUTH", "reader", "secret"]).unwrap(), OK());
        assert_eq!(connection.command(&["GET", "tg:a"]).unwrap().text(), "1");
        let denied = connection.command(&["SET", "tg:a", "2"]).unwrap();
        assert!(denied.error().unwrap().starts_with("NOPERM"), "{denied:?}");
        let denied = connection.command(&["GET", "other"]).unwrap();
        assert!(denied.error().unwrap().starts_with("NOPERM"), "{denied:?}");
    }
}

#[test]
fn a_server_without_memory_for_more_keys_says_so() {
    for program in Program::ALL {
        let server = Server::builder(program).memory_max(4 << 20, "noeviction").start();
        let value = "x".repeat(1 << 20);
        let replies: Vec<_> =
            (0..8).map(|n| server.command(&["SET", &n.to_string(), &value])).collect();
        let refused = replies.iter().filter_map(Reply::error);
        assert!(refused.clone().all(|message| message.starts_with("OOM")), "{replies:?}");
        assert!(refused.count() > 0, "{replies:?}");
    }
}

#[test]
fn a_unix_socket_is_served_beside_the_port() {
    for program in Program::ALL {
        let server = Server::builder(program).with_unix_socket().start();
        let mut stream = UnixStream::connect(server.unix_socket().unwrap()).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert_eq!(line, "+PONG\r\n");
    }
    assert_eq!(Server::start(Program::Valkey9).unix_socket(), None);
}

#[test]
fn servers_that_start_at_the_same_time_have_ports_and_folders_of_their_own() {
    let threads: Vec<_> =
        (0..8).map(|_| thread::spawn(|| Server::start(Program::Valkey9))).collect();
    // A server outlives the thread that started it.
    let servers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ports: BTreeSet<_> = servers.iter().map(Server::address).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        assert_eq!(server.command(&["INCR", "n"]).integer(), 1);
    }
    let folders: Vec<_> = servers.iter().map(|server| server.folder().to_owned()).collect();
    drop(servers);
    assert!(folders.iter().all(|folder| !folder.exists()), "a folder is left");
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn a_server_that_does_not_start_is_reported_with_its_log() {
    let _ = Server::builder(Program::Redis7).set("no-such-setting", "1").start();
}

#[test]
#[should_panic(expected = "a setting is one line")]
fn a_setting_cannot_smuggle_in_another_line() {
    let _ = Server::builder(Program::Redis7).set("requirepass", "a\nport 1");
}

#[test]
fn replicas_follow_their_primary() {
    for program in Program::ALL {
        let servers = Replication::start_with(&Server::builder(program).password("secret"), 2);
        let mut primary = servers.primary().connect().unwrap();
        assert_eq!(primary.command(&["SET", "key", "value"]).unwrap(), OK());
        assert_eq!(primary.command(&["WAIT", "2", "5000"]).unwrap().integer(), 2);
        for replica in servers.replicas() {
            assert_eq!(replica.command(&["GET", "key"]).text(), "value");
            let refused = replica.command(&["SET", "key", "value"]);
            assert!(refused.error().unwrap().starts_with("READONLY"), "{refused:?}");
        }
        assert_eq!(servers.servers().count(), 3);
    }
}
