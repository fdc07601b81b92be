//! The faults of the proxy.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use tidegate_redis_servers::{Connection, Cut, Fault, Program, Proxy, Reply, Server, until};

fn pair() -> (Server, Proxy) {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

fn open(proxy: &Proxy) -> Connection {
    Connection::open(proxy.address()).unwrap()
}

/// A connection that soon gives up.
fn open_impatient(proxy: &Proxy) -> Connection {
    Connection::open_with_timeout(proxy.address(), Duration::from_millis(100)).unwrap()
}

const PONG: fn() -> Reply = || Reply::Status("PONG".into());

#[test]
fn without_a_fault_all_bytes_pass_in_both_directions() {
    let (server, proxy) = pair();
    assert_eq!(proxy.url(), format!("redis://{}", proxy.address()));
    let value: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let mut connection = open(&proxy);
    let words: [&[u8]; 3] = [b"SET", b"key", &value];
    let _ = connection.command(&words).unwrap().success();
    assert_eq!(connection.command(&["GET", "key"]).unwrap(), Reply::Bulk(value.clone()));
    assert_eq!(server.command(&["GET", "key"]), Reply::Bulk(value));
}

#[test]
fn a_closed_connection_is_closed_at_the_other_end() {
    let (server, proxy) = pair();
    let mut connection = open(&proxy);
    assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
    assert_eq!(proxy.connections(), 1);
    drop(connection);
    until("the connection is gone", || proxy.connections() == 0);

    let mut connection = open(&proxy);
    assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
    server.kill();
    assert!(connection.command(&["PING"]).is_err());
    // Accepted, and cut because there is no server.
    assert!(open(&proxy).command(&["PING"]).is_err());
    server.restart();
    assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
}

#[test]
fn new_connections_are_refused_and_open_ones_go_on() {
    let (_server, proxy) = pair();
    let mut connection = open(&proxy);
    assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
    for _ in 0..3 {
        proxy.set(Fault::Refuse);
        let error = Connection::open(proxy.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
        proxy.set(Fault::Pass);
        assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
    }
}

#[test]
fn all_connections_are_cut_by_a_reset_or_an_end() {
    let (_server, proxy) = pair();
    for (how, expected) in
        [(Cut::Reset, ErrorKind::ConnectionReset), (Cut::Close, ErrorKind::UnexpectedEof)]
    {
        let mut connections: Vec<_> = (0..5).map(|_| open(&proxy)).collect();
        for connection in &mut connections {
            assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
        }
        proxy.cut(how);
        assert_eq!(proxy.connections(), 0);
        for connection in &mut connections {
            assert_eq!(connection.receive().unwrap_err().kind(), expected, "{how:?}");
        }
        assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
    }
}

#[test]
fn held_bytes_pass_when_the_fault_is_over() {
    let (server, proxy) = pair();
    let mut old = open_impatient(&proxy);
    assert_eq!(old.command(&["PING"]).unwrap(), PONG());
    proxy.set(Fault::Hold);
    let mut new = open_impatient(&proxy);
    for connection in [&mut old, &mut new] {
        let error = connection.command(&["INCR", "n"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(server.command(&["GET", "n"]), Reply::Null);
    proxy.set(Fault::Pass);
    until("the late requests are carried out", || {
        server.command(&["GET", "n"]) == Reply::Bulk(b"2".into())
    });
    assert!(
        [&mut old, &mut new].map(|it| it.receive().unwrap().integer()).iter().sum::<i64>() == 3
    );
}

#[test]
fn held_bytes_never_pass_if_the_connection_is_cut() {
    let (server, proxy) = pair();
    proxy.set(Fault::Hold);
    let mut connection = open_impatient(&proxy);
    assert!(connection.command(&["INCR", "n"]).is_err());
    proxy.cut(Cut::Reset);
    proxy.set(Fault::Pass);
    assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
    assert_eq!(server.command(&["GET", "n"]), Reply::Null);
}

#[test]
fn discarded_bytes_never_pass_and_their_connection_is_cut() {
    let (server, proxy) = pair();
    let mut idle = open(&proxy);
    assert_eq!(idle.command(&["PING"]).unwrap(), PONG());
    proxy.set(Fault::Discard);
    let mut connection = open_impatient(&proxy);
    assert_eq!(connection.command(&["INCR", "n"]).unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.set(Fault::Pass);
    assert_eq!(connection.receive().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.command(&["GET", "n"]), Reply::Null);
    // This one has lost nothing.
    assert_eq!(idle.command(&["PING"]).unwrap(), PONG());
}

#[test]
fn a_delay_holds_for_each_way_and_ends_with_the_fault() {
    let (server, proxy) = pair();
    let mut connection = open(&proxy);
    assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
    // The server's clock measures how late the second request is.
    let mut times = server.connect().unwrap();
    let mut now_us = || {
        let reply = times.command(&["TIME"]).unwrap();
        reply.array()[0].integer() * 1_000_000 + reply.array()[1].integer()
    };
    proxy.set(Fault::Delay(Duration::from_millis(60)));
    let before = now_us();
    assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
    let passed_ms = (now_us() - before) / 1_000;
    assert!(passed_ms >= 120, "{passed_ms} ms");

    // Nothing waits for the end of a delay that is over.
    proxy.set(Fault::Delay(Duration::from_secs(3_600)));
    connection.send(&["PING"]).unwrap();
    let mut other = open_impatient(&proxy);
    assert_eq!(other.command(&["PING"]).unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.set(Fault::Pass);
    assert_eq!(connection.receive().unwrap(), PONG());
}

#[test]
fn a_lost_reply_is_one_to_a_committed_request() {
    for program in Program::ALL {
        let server = Server::start(program);
        let proxy = Proxy::start(server.address());
        proxy.lose_replies("incr", 2);
        for lost in 1..=2 {
            let mut connection = open(&proxy);
            // Other commands pass.
            assert_eq!(connection.command(&["PING"]).unwrap(), PONG());
            let error = connection.command(&["INCR", "n"]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            assert_eq!(server.command(&["GET", "n"]).integer(), lost);
            assert_eq!(proxy.lost_replies(), u64::try_from(lost).unwrap());
        }
        assert_eq!(open(&proxy).command(&["INCR", "n"]).unwrap().integer(), 3);
    }
}

#[test]
fn replies_before_a_lost_one_pass() {
    let (server, proxy) = pair();
    proxy.lose_replies("SET", 1);
    let mut connection = open(&proxy);
    for words in [["INCR", "n", ""], ["INCR", "n", ""], ["SET", "key", "x"], ["INCR", "n", ""]] {
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        connection.send(&words).unwrap();
    }
    assert_eq!(connection.receive().unwrap().integer(), 1);
    assert_eq!(connection.receive().unwrap().integer(), 2);
    assert!(connection.receive().is_err());
    assert_eq!(server.command(&["GET", "key"]).text(), "x");
}

#[test]
fn a_large_or_nested_reply_is_lost_as_a_whole() {
    let (server, proxy) = pair();
    let _ = server.command(&["SET", "key", &"x".repeat(1_000_000)]).success();
    proxy.lose_replies("", 1);
    let mut connection = open(&proxy);
    let script = "redis.call('SET', 'done', '1') return {1, {2, redis.call('GET', 'key')}}";
    assert!(connection.command(&["EVAL", script, "0"]).is_err());
    assert_eq!(server.command(&["GET", "done"]).text(), "1");
    assert_eq!(proxy.lost_replies(), 1);
    assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
}

#[test]
fn a_client_that_does_not_read_does_not_stop_the_others() {
    let (server, proxy) = pair();
    let _ = server.command(&["SET", "key", &"x".repeat(8_000_000)]).success();
    let mut greedy = open(&proxy);
    for _ in 0..3 {
        greedy.send(&["GET", "key"]).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
    }
    assert_eq!(greedy.receive().unwrap().text().len(), 8_000_000);
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    let (_server, proxy) = pair();
    let connections: Vec<_> = (0..256).map(|_| open(&proxy)).collect();
    until("all connections are open", || proxy.connections() == 256);
    assert!(open(&proxy).command(&["PING"]).is_err());
    drop(connections);
    until("all connections are gone", || proxy.connections() == 0);
    assert_eq!(open(&proxy).command(&["PING"]).unwrap(), PONG());
}

#[test]
fn faults_change_while_clients_are_busy() {
    let (server, proxy) = pair();
    let address = proxy.address();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut acknowledged = 0;
                let mut connection = Connection::open(address).ok();
                for _ in 0..500 {
                    let reply = connection.as_mut().map(|it| it.command(&["INCR", "n"]));
                    match reply {
                        Some(Ok(_)) => acknowledged += 1,
                        _ => connection = Connection::open(address).ok(),
                    }
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..20 {
        proxy.lose_replies("INCR", 2);
        proxy.cut(Cut::Reset);
        proxy.set(Fault::Refuse);
        proxy.set(Fault::Delay(Duration::from_millis(1)));
        proxy.set(Fault::Hold);
        proxy.cut(Cut::Close);
        proxy.set(Fault::Pass);
    }
    let acknowledged: i64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    // It still works, once no reply is to be lost: clients that were refused 500 times have left
    // some to lose.
    proxy.lose_replies("INCR", 0);
    let committed = open(&proxy).command(&["INCR", "n"]).unwrap().integer();
    assert_eq!(server.command(&["GET", "n"]).integer(), committed);
    assert!(acknowledged < committed, "{acknowledged} of {committed}");
}
