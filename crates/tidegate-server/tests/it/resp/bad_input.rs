//! Malformed input: an error or a closed connection, and the next client is served.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use redis::Value;
use tidegate_server::Listener;

use super::{Client, Daemon, POLICY, array, error};
use crate::http_support::Apart;

/// Sends bytes, closes this half of the connection, and returns everything that comes back.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut client = Client::new(address);
    // The daemon may close it before it has read all.
    let _ = client.stream.write_all(bytes);
    client.finish();
    client.rest()
}

fn is_served(address: SocketAddr) {
    let mut client = Client::new(address);
    assert_eq!(client.ask(&["PING"]), Value::SimpleString("PONG".into()));
    let decided = client.integers(&["CL.THROTTLE", "next", "999999", "1", "86400"]);
    assert_eq!(decided[0], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_errors_are_those_of_redis() {
    let daemon = Daemon::start().await;
    for (bytes, expected) in [
        ("*1\r\n$99999999999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1\r\n$536870912\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1048576\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*-1\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n*1\r\n*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        ("*1\r\n$4\r\nPINGxx", "-ERR Protocol error: expected CRLF after a bulk string\r\n"),
        (
            "*1\r\n$4\r\nPING\r\n*1\r\ngarbage",
            "+PONG\r\n-ERR Protocol error: expected '$', got 'g'\r\n",
        ),
        ("echo \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        // Incomplete commands get no reply.
        ("*2\r\n$4\r\nECHO\r\n$65536\r\nabc", ""),
        ("*5\r\n$11\r\nCL.THR", ""),
        ("PING", ""),
    ] {
        let reply = exchange(daemon.address, bytes.as_bytes());
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{bytes:?}");
    }
    let long = exchange(daemon.address, &vec![b'x'; 70_000]);
    assert!(long.starts_with(b"-ERR Protocol error: too big inline request"), "{long:?}");
    // HTTP gets no reply.
    let http = exchange(daemon.address, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(http.is_empty(), "{}", http.escape_ascii());
    is_served(daemon.address);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_as_a_whole_is_bounded() {
    let daemon = Daemon::start().await;
    let words = vec!["x".repeat(60_000); 64];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let reply = exchange(daemon.address, &array(&words));
    let expected = "-ERR Protocol error: too big command\r\n";
    // The daemon closes it while the client sends, so the reply may be lost.
    assert!(reply.is_empty() || reply == expected.as_bytes(), "{}", reply.escape_ascii());
    is_served(daemon.address);
    daemon.stop().await;
}

#[test]
fn announced_lengths_allocate_nothing() {
    let daemon = Apart::behind(Listener::Resp, "resp-lengths", POLICY);
    is_served(daemon.address());
    let before = daemon.resident_kb();
    let clients: Vec<_> = (0..500)
        .map(|_| {
            let mut client = Client::new(daemon.address());
            client.send(b"*64\r\n$65536\r\n");
            client
        })
        .collect();
    is_served(daemon.address());
    let grown = daemon.resident_kb().saturating_sub(before);
    assert!(grown < 20 << 10, "{grown} KiB for 500 announcements of 4 MiB");
    drop(clients);
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() % bound
    }
}

/// Valid traffic with a few bytes changed, removed, duplicated or inserted.
fn mutated(random: &mut Random) -> Vec<u8> {
    let commands = [
        array(&["CL.THROTTLE", "key", "15", "30", "60"]),
        array(&["CL.THROTTLE", "key", "15", "30", "60", "2"]),
        array(&["TG.CHECK", "default", "ATTR", "user", "ada", "COST", "2"]),
        array(&["TG.RESERVE", "tokens", "ATTR", "team", "a", "IDEMPOTENCY", "x"]),
        array(&["HELLO", "3", "SETNAME", "x"]),
        array(&["COMMAND", "INFO", "ping"]),
        array(&["MULTI"]),
        array(&["EXEC"]),
        b"PING \"a b\"\r\n".to_vec(),
    ];
    let picked = (0..=random.below(4)).map(|_| commands[random.below(commands.len())].clone());
    let mut bytes: Vec<u8> = picked.collect::<Vec<_>>().concat();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.below(4) {
            _ if bytes.is_empty() => {}
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, b"*$:-0123456789\r\n\"'\0\xff"[random.below(20)]),
            _ => {
                let end = (at + random.below(30)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

#[test]
fn mutated_commands_never_break_the_daemon() {
    let daemon = Apart::behind(Listener::Resp, "resp-mutations", POLICY);
    let mut random = Random(17);
    let mut resident_after_warmup = 0;
    for number in 0..10_000 {
        let bytes = mutated(&mut random);
        let reply = exchange(daemon.address(), &bytes);
        // Every response is valid RESP.
        let is_reply = |byte: &u8| b"+-:$*%_#".contains(byte);
        assert!(reply.first().is_none_or(is_reply), "{}", bytes.escape_ascii());
        if number == 1_000 {
            resident_after_warmup = daemon.resident_kb();
        }
        if number % 1_000 == 0 {
            is_served(daemon.address());
        }
    }
    let grown = daemon.resident_kb().saturating_sub(resident_after_warmup);
    assert!(grown < 4 << 10, "{grown} KiB more: half a KiB for each connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnecting_clients_do_not_affect_others() {
    let daemon = Daemon::start().await;
    for _ in 0..200 {
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        stream.write_all(&array(&["COMMAND", "DOCS"]).repeat(20)).unwrap();
        drop(stream);
    }
    is_served(daemon.address);
    let mut client = daemon.client();
    assert!(error(&client.ask(&["NO", "SUCH"])).starts_with("ERR unknown command"));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_in_a_browser_cannot_send_commands() {
    let daemon = Daemon::start().await;
    for first in ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nHost: 127.0.0.1"] {
        let bytes = format!("{first}\r\n\r\nCL.THROTTLE page 0 1 3600\r\n");
        let reply = String::from_utf8(exchange(daemon.address, bytes.as_bytes())).unwrap();
        assert!(!reply.contains('*'), "{reply}");
    }
    let mut client = daemon.client();
    assert_eq!(client.integers(&["CL.THROTTLE", "page", "0", "1", "3600"])[0], 0);
}
