//! Floods of connections to the program.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::process::started;
use crate::support::{head, status, upgrade};

async fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

async fn health(source: [u8; 4], to: SocketAddr) -> String {
    let mut stream = connect_from(source, to).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    head(&mut stream).await
}

/// Each address has more silent connections than its share of all, which are 2 048 and the sockets.
#[tokio::test]
async fn silent_connections_of_some_addresses_keep_no_other_address_out() {
    let program = started(&["--max-sockets", "52"]).await;
    let mut silent = Vec::new();
    for address in 1..=5 {
        for _ in 0..800 {
            silent.push(connect_from([127, 1, 0, address], program.address).await);
        }
    }
    for address in 1..=3 {
        assert_eq!(status(&health([127, 2, 0, address], program.address).await), "200");
        let mut stream = connect_from([127, 3, 0, address], program.address).await;
        stream.write_all(upgrade("/ws", &[]).as_bytes()).await.unwrap();
        assert_eq!(status(&head(&mut stream).await), "101");
    }
    let log = program.stopped().await;
    let refusals = log.lines().filter(|line| line.contains("connection refused")).count();
    assert!((1..100).contains(&refusals), "{log}");
    assert!(log.lines().count() < 120, "{log}");
}

#[tokio::test]
async fn connections_beyond_the_share_of_an_address_get_a_503() {
    let program = started(&["--max-connections-per-address", "3"]).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(connect_from([127, 1, 0, 1], program.address).await);
    }
    let mut stream = connect_from([127, 1, 0, 1], program.address).await;
    stream.write_all(upgrade("/ws", &[]).as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let response = response.to_ascii_lowercase();
    assert_eq!(status(&response), "503");
    assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
    assert!(response.contains("too many connections from this address"), "{response}");
}

#[tokio::test]
async fn denials_are_bounded_in_the_log_and_counted() {
    let program = started(&["--burst", "1"]).await;
    for _ in 0..400 {
        let mut stream = connect_from([127, 1, 0, 1], program.address).await;
        stream.write_all(upgrade("/ws", &[]).as_bytes()).await.unwrap();
        head(&mut stream).await;
    }
    let log = program.stopped().await;
    let lines = log.lines().filter(|line| line.ends_with(r#"rate_limited remote="127.1.0.1""#));
    let lines = lines.count();
    let counted = log.lines().filter(|line| line.contains("log lines left out"));
    let left_out =
        counted.filter_map(|line| line.split("lines=").nth(1)?.trim().parse::<usize>().ok());
    assert_eq!(lines + left_out.sum::<usize>(), 399, "{log}");
    assert!(lines < 300, "{lines}");
}
