//! Large, slow or silent clients over gRPC do not affect others.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tidegate_proto::rls::rate_limit_response::Code;
use tidegate_proto::rls::{Message, SHOULD_RATE_LIMIT};
use tidegate_server::Listener;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_stream::StreamExt;

use crate::grpc_client::{AnyBody, Client, call, daemon_with, framed};
use crate::http_support::Apart;

const POLICY: &str = "
[[rule]]
name = \"k\"
domain = \"d\"
key = [\"k\"]
window = { max = 1_000_000, per = \"1h\" }
";

const CHECK: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// A time-out, so that a failed test ends.
const LONG: Duration = Duration::from_secs(60);

/// A body that begins and never ends.
fn half(bytes: Bytes) -> AnyBody {
    let begin = tokio_stream::once(Ok(Frame::data(bytes)));
    StreamBody::new(begin.chain(tokio_stream::pending())).boxed()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_share_a_memory_budget() {
    let daemon = Apart::behind(Listener::Grpc, "grpc-room", POLICY);
    let mut client = Client::at(daemon.address()).await;
    client.ask(&call("d", &[&[("k", "v")]])).await.unwrap();
    let before = daemon.most_resident_kb();
    let message = framed(&call("d", &[&[("k", &"x".repeat(255 << 10))]]).encode_to_vec());
    let calls: Vec<_> = (0..1_000)
        .map(|_| {
            let (mut client, message) = (client.clone(), message.clone());
            tokio::spawn(async move {
                let (_, body) = client.send(SHOULD_RATE_LIMIT, "application/grpc", message).await;
                body.trailers().is_some_and(|it| it["grpc-status"] == "0")
            })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap(), "all get a response in the end");
    }
    let more = daemon.most_resident_kb() - before;
    assert!(more < 128 << 10, "{more} KiB for 255 MiB");
}

#[tokio::test]
async fn messages_that_are_announced_and_not_sent_do_not_delay_others() {
    // Longer than the test.
    let server = daemon_with(POLICY, |bounds| bounds.request_time = LONG * 10).await;
    let address = server.address(Listener::Grpc).unwrap();
    let mut silent = Vec::new();
    for _ in 0..4 {
        let client = Client::at(address).await;
        for _ in 0..20 {
            // 4 MiB, of which one byte arrives.
            let begun = half(Bytes::from_static(b"\0\0\x3f\xff\xffx"));
            let mut client = client.clone();
            silent.push(tokio::spawn(async move {
                client.begin(SHOULD_RATE_LIMIT, "application/grpc", begun).await
            }));
        }
        // Their heads have arrived when this has a response.
        client.clone().ask(&call("d", &[&[("k", "v")]])).await.unwrap();
    }
    let large = call("d", &[&[("k", &"x".repeat(1 << 20))]]);
    let mut other = Client::at(address).await;
    let asked = tokio::time::timeout(LONG, other.ask(&large)).await;
    asked.expect("it does not wait for the silent ones").unwrap();
    silent.iter().for_each(|call| call.abort());
    server.stop().await;
}

#[tokio::test]
async fn messages_small_in_bytes_but_large_in_memory_are_rejected() {
    let server = daemon_with(POLICY, |_| {}).await;
    let mut client = Client::new(&server).await;
    // A domain, and a descriptor of a million empty entries.
    let entries = [0x0a, 0].repeat(1_000_000);
    let mut message = vec![0x0a, 1, b'd', 0x12, 0x80, 0x89, 0x7a];
    message.extend_from_slice(&entries);
    let rejected = client.call(SHOULD_RATE_LIMIT, &message).await;
    assert_eq!(rejected.unwrap_err().0, 8);
    server.stop().await;
}

#[tokio::test]
async fn health_and_reflection_bound_size_and_time() {
    let server =
        daemon_with(POLICY, |bounds| bounds.request_time = Duration::from_millis(50)).await;
    let mut client = Client::new(&server).await;
    assert_eq!(client.call(CHECK, &[b'x'; 5 << 10]).await.unwrap_err().0, 11, "too large");
    for (path, status) in [(CHECK, "4"), (REFLECTION, "0")] {
        let begun = half(Bytes::from_static(b"\0\0\0\x0f\xffx"));
        let response = client.begin(path, "application/grpc", begun).await;
        let (head, body) = response.into_parts();
        let ended = tokio::time::timeout(LONG, body.collect()).await.expect("it ends").unwrap();
        let got = ended.trailers().and_then(|it| it.get("grpc-status"));
        let got = got.or(head.headers.get("grpc-status")).unwrap();
        assert_eq!(got, status, "{path}");
    }
    let begun = half(Bytes::from_static(b"\0\0\x3f\xff\xffx"));
    let response = client.begin(SHOULD_RATE_LIMIT, "application/grpc", begun).await;
    assert_eq!(response.headers()["grpc-status"], "4");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_no_responses_is_disconnected() {
    let server = daemon_with(POLICY, |bounds| bounds.write_time = Duration::from_millis(50)).await;
    let address = server.address(Listener::Grpc).unwrap();
    // Its window is 0: the daemon may send it heads only.
    let (mut client, connection) =
        Client::with(address, |http| _ = http.initial_stream_window_size(0)).await;
    let message = framed(&call("d", &[&[("k", "v")]]).encode_to_vec());
    let body = Full::new(message).boxed();
    let _response = client.begin(SHOULD_RATE_LIMIT, "application/grpc", body).await;
    let ended = tokio::time::timeout(LONG, connection).await;
    let _ = ended.expect("the connection is closed").unwrap();

    // This one sends a lot, and reads nothing.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let pings = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0".repeat(1_000);
    let closed = async { while stream.write_all(&pings).await.is_ok() {} };
    tokio::time::timeout(LONG, closed).await.expect("the connection is closed");
    server.stop().await;
}

#[tokio::test]
async fn health_is_serving_while_the_disk_cannot_be_written() {
    let policy = "store = \"file:state\"
[[rule]]
name = \"k\"
domain = \"d\"
key = [\"k\"]
quota = { max = 1_000_000, per = \"day\" }
";
    let daemon = Apart::behind(Listener::Grpc, "grpc-disk", policy);
    let mut client = Client::at(daemon.address()).await;
    client.ask(&call("d", &[&[("k", "v")]])).await.unwrap();
    daemon.limit_files("0");
    // The rule denies without its store, so the daemon can decide.
    let denied = client.ask(&call("d", &[&[("k", "v")]])).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(&client.call(CHECK, b"").await.unwrap()[..], [0x08, 1], "serving");
}
