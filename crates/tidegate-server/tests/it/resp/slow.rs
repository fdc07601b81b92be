//! Time-outs of slow clients.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use redis::Value;

use super::{Daemon, POLICY, array};

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_client_is_disconnected() {
    let daemon = Daemon::with(POLICY, |mut bounds| {
        bounds.idle_time = Duration::from_millis(100);
        bounds
    })
    .await;
    let mut client = daemon.client();
    assert_eq!(client.ask(&["PING"]), Value::SimpleString("PONG".into()));
    // It ends when the daemon closes the connection.
    assert_eq!(client.rest(), b"");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_command_times_out_although_bytes_arrive() {
    let daemon = Daemon::with(POLICY, |mut bounds| {
        bounds.request_time = Duration::from_millis(100);
        bounds
    })
    .await;
    let mut client = daemon.client();
    client.send(b"*2\r\n$4\r\nECHO\r\n$60000\r\n");
    // A byte at a time, until the daemon closes the connection, long before the command is
    // complete.
    client.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut sent = 0;
    loop {
        match client.stream.read(&mut [0]) {
            Ok(0) => break,
            Ok(_) => panic!("a reply to half a command"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        let _ = client.stream.write_all(b"x");
        sent += 1;
        assert!(sent < 59_000, "the command is nearly complete");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_disconnected() {
    let daemon = Daemon::with(POLICY, |mut bounds| {
        bounds.write_time = Duration::from_millis(100);
        bounds
    })
    .await;
    let mut client = daemon.client();
    let echo = array(&["ECHO", &"x".repeat(60_000)]);
    // It ends when the daemon closes the connection, since the replies are not read.
    while client.stream.write_all(&echo).is_ok() {}
    let mut other = daemon.client();
    assert_eq!(other.ask(&["PING"]), Value::SimpleString("PONG".into()));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_late_gets_everything() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let echo = array(&["ECHO", &"x".repeat(60_000)]);
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        (0..200).for_each(|_| writer.write_all(&echo).unwrap());
    });
    for _ in 0..200 {
        assert_eq!(client.reply(), Value::BulkString(vec![b'x'; 60_000]));
    }
    sender.join().unwrap();
    daemon.stop().await;
}
