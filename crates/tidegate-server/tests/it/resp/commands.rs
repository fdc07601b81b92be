//! Commands and their replies, byte by byte.

use redis::Value;
use tidegate::policy::Policy;
use tidegate_server::Settings;

use super::{Daemon, POLICY, array, array_of_bytes, error};
use crate::running::Folder;

#[tokio::test(flavor = "multi_thread")]
async fn replies_are_those_of_redis() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    for (words, reply) in [
        (vec!["PING"], "+PONG\r\n"),
        (vec!["ping", "a b"], "$3\r\na b\r\n"),
        (vec!["ECHO", "hi"], "$2\r\nhi\r\n"),
        (vec!["ECHO"], "-ERR wrong number of arguments for 'echo' command\r\n"),
        (vec!["PING", "a", "b"], "-ERR wrong number of arguments for 'ping' command\r\n"),
        (vec!["SELECT", "0"], "+OK\r\n"),
        (vec!["SELECT", "1"], "-ERR DB index is out of range\r\n"),
        (vec!["SELECT", "x"], "-ERR value is not an integer or out of range\r\n"),
        (vec!["CLIENT", "GETNAME"], "$-1\r\n"),
        (vec!["CLIENT", "SETNAME", "web"], "+OK\r\n"),
        (vec!["CLIENT", "GETNAME"], "$3\r\nweb\r\n"),
        (vec!["CLIENT", "SETINFO", "LIB-NAME", "x"], "+OK\r\n"),
        (vec!["CLIENT", "NO-EVICT", "on"], "+OK\r\n"),
        (vec!["CLIENT", "ID"], ":1\r\n"),
        (vec!["CLIENT", "ID", "x"], "-ERR wrong number of arguments for 'client|id' command\r\n"),
        (vec!["CLIENT", "KILL"], "-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n"),
        (
            vec!["CLIENT", "SETNAME", "a b"],
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
        (vec!["COMMAND", "COUNT"], ":21\r\n"),
        (
            vec!["COMMAND", "INFO", "cl.throttle", "get"],
            "*2\r\n*6\r\n$11\r\ncl.throttle\r\n:-5\r\n*1\r\n+fast\r\n:1\r\n:1\r\n:1\r\n$-1\r\n",
        ),
        (
            vec!["GET", "a", "b"],
            "-ERR unknown command 'GET', with args beginning with: 'a' 'b' \r\n",
        ),
        (
            vec!["AUTH", "x"],
            "-ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?\r\n",
        ),
        (vec!["HELLO", "4"], "-NOPROTO unsupported protocol version\r\n"),
        (vec!["HELLO", "x"], "-ERR Protocol version is not an integer or out of range\r\n"),
        (vec!["HELLO", "3", "x"], "-ERR Syntax error in HELLO\r\n"),
        (
            vec!["HELLO", "3", "SETNAME", "you"],
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n\
             :3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\n\
             master\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        (vec!["CLIENT", "GETNAME"], "$3\r\nyou\r\n"),
        (vec!["RESET"], "+RESET\r\n"),
        (vec!["CLIENT", "GETNAME"], "$-1\r\n"),
        (vec!["QUIT"], "+OK\r\n"),
    ] {
        client.raw(&array(&words), reply);
    }
    assert_eq!(client.rest(), b"");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_commands_are_accepted() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    client.raw(b"\r\nPING\r\n", "+PONG\r\n");
    client.raw(b"ECHO \"a\\x00b\"\n", "$3\r\na\0b\r\n");
    client.raw(b"CL.THROTTLE 'my key' 1 1 86400\r\nPING\r\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttle_commands_use_the_limit_of_the_call() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    assert_eq!(client.integers(&["CL.THROTTLE", "k", "15", "30", "60"]), [0, 16, 15, -1, 2]);
    // A quantity of 0 charges nothing.
    let peek = ["CL.THROTTLE", "fresh", "1", "1", "86400", "0"];
    assert_eq!(client.integers(&peek), [0, 2, 2, -1, 0]);
    assert_eq!(client.integers(&["CL.THROTTLE", "d", "1", "1", "86400", "2"])[..3], [0, 2, 0]);
    let denied = client.integers(&["cl.throttle", "d", "1", "1", "86400"]);
    assert_eq!(denied[..3], [1, 2, 0]);
    assert!((86_000..=86_400).contains(&denied[3]), "{denied:?}");
    assert!((172_000..=172_800).contains(&denied[4]), "{denied:?}");
    // No wait helps.
    assert_eq!(client.integers(&["CL.THROTTLE", "d", "1", "1", "86400", "3"])[3], -1);
    for (words, expected) in [
        (vec!["k", "15", "30"], "wrong number of arguments for 'cl.throttle' command"),
        (vec!["k", "15", "30", "60", "1", "1"], "wrong number of arguments for 'cl.throttle'"),
        (vec!["k", "15", "30", "60", "-1"], "quantity must be at least 0"),
        (vec!["k", "15", "0", "60"], "count must be at least 1"),
        (vec!["k", "15", "30", "0"], "period must be at least 1"),
        (vec!["k", "-1", "30", "60"], "max_burst must be at least 0"),
        (vec!["k", "15", "30.5", "60"], "count is not an integer or out of range"),
        (vec!["k", "15", "99999999999", "1"], "at most 10^9 per second"),
        (vec!["k", "9223372036854775807", "1", "86400"], "burst cannot be represented"),
        (vec!["k", "1", "1", "9223372036854775807"], "period must be at most"),
    ] {
        let words: Vec<&str> = ["CL.THROTTLE"].into_iter().chain(words).collect();
        let reply = error(&client.ask(&words));
        assert!(reply.starts_with("ERR ") && reply.contains(expected), "{words:?}: {reply}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_any_bytes() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let keys: [&[u8]; 8] =
        [b"", b"\0", b"\r\n", b"a\r\nb", b"\"quoted\"", b"'", b"\xff\xfe", b"\xf0\x28\x8c\x28"];
    for _ in 0..2 {
        for key in keys {
            client.send(&array_of_bytes(&[b"CL.THROTTLE", key, b"1", b"1", b"86400"]));
        }
    }
    for round in 0..2 {
        for key in keys {
            let reply = client.integers_reply();
            assert_eq!(reply[..3], [0, 2, 1 - round], "{}", key.escape_ascii());
        }
    }
    client.send(&array_of_bytes(&[b"ECHO", &[0xff; 65_536]]));
    assert_eq!(client.reply(), Value::BulkString(vec![0xff; 65_536]));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_must_authenticate_if_there_are_tokens() {
    let file = Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let folder = Folder::new();
    let tokens = folder.tokens(&[("open sesame", "name = 'bob'\nscopes = ['check']")]);
    let daemon = Daemon::of(Settings::on_free_ports(file).tokens(tokens)).await;
    let mut client = daemon.client();
    let no_auth = "-NOAUTH Authentication required.\r\n";
    for words in [vec!["PING"], vec!["CL.THROTTLE", "k", "1", "1", "1"], vec!["GET", "k"]] {
        client.raw(&array(&words), no_auth);
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.raw(&array(&["AUTH", "open"]), wrong);
    client.raw(&array(&["AUTH", "ada", "open sesame"]), wrong);
    let hello = error(&client.ask(&["HELLO", "3"]));
    assert!(hello.starts_with("NOAUTH HELLO must be called"), "{hello}");
    client.ask(&["HELLO", "3", "AUTH", "default", "open sesame"]);
    assert_eq!(client.ask(&["PING"]), Value::SimpleString("PONG".into()));
    client.raw(&array(&["RESET"]), "+RESET\r\n");
    client.raw(&array(&["PING"]), no_auth);
    client.raw(&array(&["AUTH", "open sesame"]), "+OK\r\n");
    client.raw(&array(&["PING"]), "+PONG\r\n");
    client.raw(&array(&["AUTH", "bob", "open sesame"]), "+OK\r\n");
    // Too many wrong secrets close the connection.
    let mut guesser = daemon.client();
    for guess in 0..16 {
        guesser.raw(&array(&["AUTH", &guess.to_string()]), wrong);
    }
    assert_eq!(guesser.rest(), b"");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_mode_and_long_periods_have_clear_errors() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    for words in [&["CLUSTER", "SLOTS"][..], &["cluster", "shards"], &["READONLY"], &["ASKING"]] {
        let expected = "-ERR This instance has cluster support disabled";
        client.send(&array(words));
        assert!(client.line().starts_with(expected), "{words:?}");
    }
    for (period, most) in [("36028798", "36028797"), ("9223372036854775807", "36028797")] {
        client.send(&array(&["CL.THROTTLE", "k", "15", "1", period]));
        let expected = format!("-ERR period must be at most {most} seconds for this count\r\n");
        assert_eq!(client.line(), expected);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secrets_are_counted() {
    let file = Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let folder = Folder::new();
    let tokens = folder.tokens(&[("secret", "name = 'a'\nscopes = ['check', 'read']")]);
    let daemon = Daemon::of(Settings::on_free_ports(file).tokens(tokens)).await;
    let mut client = daemon.client();
    for wrong in ["x", "secrets", "secret\n"] {
        client.send(&array(&["AUTH", wrong]));
        assert!(client.line().starts_with("-WRONGPASS"), "{wrong:?}");
    }
    client.send(&array(&["HELLO", "2", "AUTH", "default", "y"]));
    assert!(client.line().starts_with("-WRONGPASS"));
    client.send(&array(&["AUTH", "secret"]));
    assert_eq!(client.line(), "+OK\r\n");
    let http = daemon.server.address(tidegate_server::Listener::Http).unwrap();
    let token = [("tidegate-token", "secret")];
    let metrics = crate::http_support::Client::new(http).ask("GET", "/metrics", &token, b"").body;
    let metrics = String::from_utf8(metrics).unwrap();
    let line = "\ntidegate_access_denied_total{listener=\"resp\",reason=\"unknown\"} 4\n";
    assert!(metrics.contains(line), "{metrics}");
    daemon.stop().await;
}
