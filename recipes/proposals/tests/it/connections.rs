//! Connections are bounded per address, and slow bodies in time.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{Scratch, TIMEOUT};

/// Everything until the server closes.
async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await.unwrap().expect("no reset");
    String::from_utf8(bytes).unwrap()
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn one_connection_too_many_gets_the_reason() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let settings = [("PROPOSALS_CONNECTIONS_PER_ADDRESS", "7")];
    let program = Program::started(&scratch, ai, &settings).await;
    let address = program.http.address;
    let mut silent = Vec::new();
    for _ in 0..7 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..5 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(HEALTH).await.unwrap();
        let response = rest(stream).await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("retry-after: 1"), "{head}");
        assert!(head.contains("application/problem+json"), "{head}");
        assert!(body.contains("7 from one address and 2048 in total"), "{body}");
    }
    drop(silent);
    let served = async {
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(HEALTH).await.unwrap();
            if rest(stream).await.starts_with("HTTP/1.1 200 ") {
                return;
            }
        }
    };
    timeout(TIMEOUT, served).await.expect("permits come back");
}

#[tokio::test]
async fn body_that_does_not_arrive_in_time_is_a_408() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let mut stream = TcpStream::connect(program.http.address).await.unwrap();
    let head = "POST /v1/proposals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada-secret\r\n\
                Content-Length: 40\r\n\r\n{\"tier\":1,";
    stream.write_all(head.as_bytes()).await.unwrap();
    let response = rest(stream).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("did not arrive within 10 s"), "{response}");
    assert_eq!(program.http.left("ada").await, (2, 3));
}
