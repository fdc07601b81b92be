//! What all connections together hold is bounded, and a flood closes its own connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tidegate_proto::ipc::encode_text;
use tidegate_server::{Bounds, Listener};
use tokio::net::TcpSocket;

use crate::grpc_client::{Client, call};
use crate::http_support::{self, Apart};
use crate::running::{Running, ping, until};

const POLICY: &str = "
max_received_bytes = 8_388_608
max_unsent_bytes = 4_194_304
[[rule]]
name = \"k\"
domain = \"d\"
key = [\"k\"]
window = { max = 1_000_000, per = \"1h\" }
";

/// A connection on which everything that can be sent without waiting is sent.
fn flood(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(address);
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    // The daemon may stop reading, or close it.
    let _ = stream.write_all(bytes);
    stream
}

/// A connection whose system buffers few responses.
fn connect(address: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Whether the daemon has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Waits until the daemon has closed this many of the connections.
#[track_caller]
fn until_closed(streams: &mut [TcpStream], count: usize) {
    until("enough connections are closed", || {
        std::thread::yield_now();
        streams.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count() >= count
    });
}

/// Repeats a command until no more of it fits into the buffers; false if the daemon has closed the
/// connection.
fn writes_until_blocked(stream: &mut TcpStream, command: &[u8], sent: &mut usize) -> bool {
    loop {
        match stream.write(&command[*sent % command.len()..]) {
            Ok(count) => *sent += count,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The start of a connection with this window for each response.
fn preface(window: u32) -> Vec<u8> {
    let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &settings)].concat()
}

/// The head of the call with this number, counted from zero.
fn head(number: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    if number == 0 {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        for (name, value) in
            [(":path", path), (":authority", "x"), ("content-type", "application/grpc")]
        {
            for text in [name, value] {
                block.extend(if text == name { &[0x40][..] } else { &[] });
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
    } else {
        block.extend([0xc0, 0xbf, 0xbe]);
    }
    frame(1, 4, 2 * number + 1, &block)
}

#[test]
fn unfinished_calls_over_many_connections_share_a_budget() {
    let daemon = Apart::behind(Listener::Grpc, "budget-calls", POLICY);
    let calls: Vec<u8> = preface(65_535).into_iter().chain((0..1_000).flat_map(head)).collect();
    let before = daemon.resident_kb();
    let mut streams: Vec<_> = (0..60).map(|_| flood(daemon.address(), &calls)).collect();
    is_still_served(daemon.address());
    let more = daemon.most_resident_kb() - before;
    // 60 000 calls; unoptimised, a call takes more memory than it is charged.
    assert!(more < 64 << 10, "{more} KiB");
    until_closed(&mut streams, 50);
}

#[test]
fn responses_that_cannot_be_sent_share_a_budget() {
    let daemon = Apart::behind(Listener::Grpc, "budget-responses", POLICY);
    let message = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";
    let whole = |number| [head(number), frame(0, 1, 2 * number + 1, message)].concat();
    let calls: Vec<u8> = preface(0).into_iter().chain((0..200).flat_map(whole)).collect();
    let before = daemon.resident_kb();
    let mut streams: Vec<_> = (0..200).map(|_| flood(daemon.address(), &calls)).collect();
    is_still_served(daemon.address());
    let more = daemon.most_resident_kb() - before;
    assert!(more < 64 << 10, "{more} KiB");
    until_closed(&mut streams, 100);
}

#[track_caller]
fn is_still_served(grpc: SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = Client::at(grpc).await;
        client.ask(&call("d", &[&[("k", "v")]])).await.expect("others are served");
    });
}

#[test]
fn unfinished_bodies_share_a_budget() {
    let daemon = Apart::new("budget-bodies", POLICY);
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let bytes = [head.as_bytes(), &vec![b' '; 900_000]].concat();
    let before = daemon.resident_kb();
    let mut streams: Vec<_> = (0..100).map(|_| flood(daemon.address(), &bytes)).collect();
    let mut client = http_support::Client::new(daemon.address());
    let check = r#"{"domain":"d","attributes":{"k":"v"}}"#;
    assert_eq!(client.post("/v1/check", check).status, 200, "others are served");
    let more = daemon.most_resident_kb() - before;
    assert!(more < 32 << 10, "{more} KiB for 90 MB");
    until_closed(&mut streams, 80);
    let metrics = client.ask("GET", "/metrics", &[], b"");
    let metrics = String::from_utf8(metrics.body).unwrap();
    let name =
        "tidegate_connections_closed_for_budget_total{listener=\"http\",budget=\"received\"}";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert!(count.trim().parse::<u64>().unwrap() >= 80, "{count}");
    drop(streams);
}

/// A daemon whose only slot is taken, and clients that wait for it.
struct Queue {
    daemon: Apart,
    /// Its memory before the first of them came.
    before_kb: u64,
    waiting: Vec<TcpStream>,
}

/// Clients wait with bodies, forty with each of them, and others are served meanwhile.
fn queue(name: &str, bodies: &[String]) -> Queue {
    let policy =
        format!("{POLICY}[[rule]]\nname = 'jobs'\ndomain = 'jobs'\nslots = {{ max = 1 }}\n");
    let daemon = Apart::new(name, &policy);
    let acquire = |body: &str| http_support::request("POST", "/v1/acquire", &[], body.as_bytes());
    let mut holder = http_support::Client::new(daemon.address());
    assert_eq!(holder.post("/v1/acquire", r#"{"domain":"jobs"}"#).status, 200);
    let mut others: Vec<_> = (0..50).map(|_| http_support::Client::new(daemon.address())).collect();
    // Larger than what is left of a budget that the waiting ones have filled.
    let check = format!(r#"{{"domain":"d","attributes":{{"k":"v"}}{}}}"#, " ".repeat(4_000));
    let mut all_are_served = || {
        for other in &mut others {
            assert_eq!(other.post("/v1/check", &check).status, 200);
        }
    };
    all_are_served();
    let before_kb = daemon.resident_kb();
    let mut waiting = Vec::new();
    for body in bodies.iter().flat_map(|body| [body; 40]) {
        let mut stream = TcpStream::connect(daemon.address()).unwrap();
        stream.write_all(&acquire(body)).unwrap();
        waiting.push(stream);
        all_are_served();
    }
    Queue { daemon, before_kb, waiting }
}

#[test]
fn a_request_in_a_queue_does_not_keep_its_body() {
    let body = format!(
        r#"{{"domain":"jobs","attributes":{{"k":"v"}},{}"wait_ms":60000}}"#,
        " ".repeat(900_000)
    );
    let Queue { daemon, before_kb, mut waiting } = queue("budget-queued", &[body]);
    assert!(!waiting.iter_mut().any(is_closed), "36 MB were sent; the budget has 8 MiB");
    let more = daemon.resident_kb().saturating_sub(before_kb);
    assert!(more < 20 << 10, "{more} KiB for 36 MB");
}

#[test]
fn requests_in_a_queue_that_hold_the_most_are_closed_and_idle_connections_are_not() {
    // What is needed to decide stays, and together it fills the budget to the last kilobytes.
    let bodies = [900_000, 100_000, 10_000, 1_000].map(|length| {
        let value = "v".repeat(length);
        format!(r#"{{"domain":"jobs","attributes":{{"k":"{value}"}},"wait_ms":60000}}"#)
    });
    let Queue { daemon: _daemon, mut waiting, .. } = queue("budget-queue", &bodies);
    until_closed(&mut waiting, 30);
}

#[test]
fn commands_and_replies_share_the_budgets() {
    let daemon = Apart::behind(Listener::Resp, "budget-resp", POLICY);
    let before = daemon.resident_kb();
    // The last argument does not end.
    let mut half = b"*20\r\n".to_vec();
    half.extend(b"$60000\r\n".iter().chain(&[b'x'; 60_000]).chain(b"\r\n").cycle().take(900_000));
    let mut streams: Vec<_> = (0..60).map(|_| flood(daemon.address(), &half)).collect();
    until_closed(&mut streams, 40);
    // Replies that are not read.
    let echo = [b"*2\r\n$4\r\nECHO\r\n$60000\r\n", &[b'x'; 60_000][..], b"\r\n"].concat();
    let mut streams: Vec<_> = (0..120).map(|_| (connect(daemon.address()), 0)).collect();
    streams.iter().for_each(|(stream, _)| stream.set_nonblocking(true).unwrap());
    until("enough connections are closed", || {
        streams.retain_mut(|(stream, sent)| writes_until_blocked(stream, &echo, sent));
        streams.len() <= 100
    });
    let mut other = TcpStream::connect(daemon.address()).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    other.write_all(b"PING\r\n").unwrap();
    other.read_exact(&mut [0; 7]).unwrap();
    let more = daemon.most_resident_kb() - before;
    assert!(more < 40 << 10, "{more} KiB");
}

#[test]
fn exec_sends_replies_while_it_runs() {
    let rule = |number| format!("[[rule]]\nname = 'r{number}'\nkey = []\ncooldown = '1s'\n");
    let policy: String = (0..50).map(rule).collect();
    let daemon = Apart::behind(Listener::Resp, "exec-replies", &policy);
    let mut stream = TcpStream::connect(daemon.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let before = daemon.most_resident_kb();
    stream.write_all(b"MULTI\r\n").unwrap();
    stream.write_all(&b"TG.EXPLAIN default\r\n".repeat(1_000)).unwrap();
    stream.write_all(b"EXEC\r\nECHO end\r\n").unwrap();
    let mut read = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !read.ends_with(b"$3\r\nend\r\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {} bytes", read.len());
        read.extend(&buffer[..count]);
    }
    let rules = read.windows(7).filter(|it| it == b"\r\nr49\r\n").count();
    assert!(rules >= 1_000, "{rules}");
    let (all, more) = (read.len() >> 10, daemon.most_resident_kb() - before);
    assert!(all > 8 << 10, "{all} KiB are enough for a test");
    // Held until the end, all of it would be there; pages of the program count as well.
    assert!(more < all as u64 / 2, "{more} KiB for {all} KiB of replies");
}

#[test]
fn unfinished_frames_of_the_local_socket_share_the_budget() {
    // The least budget, and more connections than it has room for.
    let policy =
        "[server]\nmax_received_bytes = 4_194_304\n[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let running = Running::start_with(policy, |settings| {
        let mut bounds = Bounds::default();
        (bounds.local_connections, bounds.received_bytes) = (1_000, 4 << 20);
        settings.bounds(bounds)
    })
    .unwrap();
    // All but the last byte of the longest frame.
    let frame = encode_text(&" ".repeat(64 << 10)).unwrap();
    let half = &frame[..frame.len() - 1];
    let mut streams: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = UnixStream::connect(running.folder.socket()).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            // The daemon may stop reading, or close it.
            let _ = stream.write_all(half);
            stream
        })
        .collect();
    streams.iter().for_each(|it| it.set_nonblocking(true).unwrap());
    let is_closed = |stream: &mut UnixStream| match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    until("connections are closed", || {
        std::thread::yield_now();
        streams.iter_mut().filter_map(|it| is_closed(it).then_some(())).count() >= 30
    });
    assert_eq!(running.caller().ask(&ping())["ok"], true, "others are served");
}

#[test]
fn a_body_of_many_values_takes_no_more_memory_than_its_bytes() {
    let policy = "[[rule]]\nname = 'r'\nwindow = { max = 9, per = '1h' }\n";
    let daemon = Apart::behind(Listener::Admin, "budget-values", policy);
    let mut client = http_support::Client::new(daemon.address());
    let before = daemon.resident_kb();
    let values = "0,".repeat(8_000_000);
    for body in [
        format!(r#"{{"rule":"r","change":{{"a":[{values}0]}}}}"#),
        format!("rule = 'r'\n[change]\na = [{}0]", &values[..4_000_000]),
    ] {
        let reply = client.post("/admin/v1/preview", &body);
        assert!(matches!(reply.status, 400 | 422), "{reply:?}");
        let (_, detail, _) = reply.problem();
        assert!(detail.contains("more than 16384 values"), "{detail}");
    }
    let more = daemon.most_resident_kb() - before;
    assert!(more < 100 << 10, "{more} KiB for 16 MB");
}

#[test]
fn a_call_in_json_of_many_parts_is_refused_before_it_is_decoded() {
    let daemon = Apart::new("budget-parts", "[[rule]]\nname = 'r'\ncooldown = '1s'\n");
    let mut client = http_support::Client::new(daemon.address());
    let mut ask = |entries: usize| {
        let entries = vec![r#"{"key":"{","value":"\"{{"}"#; entries].join(",");
        let body = format!(r#"{{"domain":"d","descriptors":[{{"entries":[{entries}]}}]}}"#);
        let reply = client.post("/json", &body);
        (reply.status, String::from_utf8(reply.body).unwrap())
    };
    assert_eq!(ask(1_000).0, 200);
    assert_eq!(ask(2_046).1, "2046 entries are too many: at most 1024 in one call");
    assert_eq!(ask(2_047), (400, "more than 2048 descriptors and entries".into()));
}
