//! Malformed input over gRPC: an error or a closed connection, and the next client is served.

use std::time::Duration;

use bytes::Bytes;
use tidegate_proto::rls::{Message, SHOULD_RATE_LIMIT};
use tidegate_server::{Listener, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::grpc_client::{Client, call, daemon};

const POLICY: &str = "domain: d
descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1000000}}]
";

async fn assert_served(server: &Server) {
    let mut client = Client::new(server).await;
    client.ask(&call("d", &[&[("k", "v")]])).await.expect("the next client is served");
}

/// Sends bytes, closes this half of the connection, and reads until the daemon closes.
async fn send_raw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address(Listener::Grpc).unwrap()).await.unwrap();
    // The daemon may close it before all is sent.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut response = Vec::new();
    let reading = stream.read_to_end(&mut response);
    let _ = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("it is closed");
    response
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// The start of an HTTP/2 connection: preface, empty settings.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn invalid_messages_are_rejected() {
    let server = daemon("d.yaml", POLICY).await;
    let valid = framed(&call("d", &[&[("k", "v")]]).encode_to_vec());
    let mut client = Client::new(&server).await;
    let mut huge = framed(&[]);
    huge[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
    let oversized = framed(&call("d", &[&[("k", &"x".repeat(5 << 20))]]).encode_to_vec());
    // A length of ten bytes, which would be negative; and a message in a message in a message.
    let negative = framed(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    let nested = framed(&[0x13; 50_000]);
    let mut compressed = valid.clone();
    compressed[0] = 1;
    let two = [valid.clone(), valid.clone()].concat();
    let garbage = [valid.clone(), b"garbage".to_vec()].concat();
    let bodies = [
        ("nothing", Vec::new()),
        ("cut off", valid[..valid.len() - 1].to_vec()),
        ("huge", huge),
        ("oversized", oversized),
        ("negative", negative),
        ("nested", nested),
        ("compressed", compressed),
        ("two", two),
        ("garbage", garbage),
    ];
    for (name, body) in bodies {
        let sent = client.send(SHOULD_RATE_LIMIT, "application/grpc", Bytes::from(body)).await;
        let status = sent.0.headers().get("grpc-status").expect(name).to_str().unwrap();
        assert!(["3", "8", "12"].contains(&status), "{name}: {status}");
        let accepted = sent.0.headers().get("grpc-accept-encoding");
        assert_eq!(accepted.is_some_and(|it| it == "identity"), name == "compressed", "{name}");
    }
    assert_served(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn other_protocols_do_not_affect_other_clients() {
    let server = daemon("d.yaml", POLICY).await;
    let openings: [&[u8]; 7] = [
        b"",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        &OPENING[..30],
        &[OPENING, &[0xff; 64]].concat(),
        &[OPENING, b"\0\x40\x01\x04\0\0\0\0\0"].concat(),
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    ];
    for opening in openings {
        send_raw(&server, opening).await;
        assert_served(&server).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_preface_sent_byte_by_byte_is_accepted() {
    let server = daemon("d.yaml", POLICY).await;
    let mut stream = TcpStream::connect(server.address(Listener::Grpc).unwrap()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in OPENING {
        stream.write_all(&[*byte]).await.unwrap();
    }
    // The daemon's settings: HTTP/2 has begun.
    let mut settings = [0; 9];
    stream.read_exact(&mut settings).await.unwrap();
    assert_eq!(settings[3], 4);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn mutated_messages_get_a_response_or_an_error() {
    let server = daemon("d.yaml", POLICY).await;
    let valid = call("d", &[&[("k", "v"), ("l", "w")], &[("k", "x")]]).encode_to_vec();
    let mut client = Client::new(&server).await;
    let mut dice = Dice(0x5eed);
    for round in 0..10_000 {
        let mut message = valid.clone();
        for _ in 0..=dice.below(4) {
            match dice.below(4) {
                0 if !message.is_empty() => {
                    let at = dice.below(message.len());
                    message[at] = u8::try_from(dice.below(256)).unwrap();
                }
                1 => message.truncate(dice.below(message.len() + 1)),
                2 => message.insert(dice.below(message.len() + 1), 0xff),
                _ => {
                    let at = dice.below(message.len() + 1);
                    let copied = message[at..].to_vec();
                    message.extend_from_slice(&copied);
                }
            }
        }
        // A response or an error, on the same connection.
        let response = client.call(SHOULD_RATE_LIMIT, &message);
        let Ok(response) = tokio::time::timeout(Duration::from_secs(60), response).await else {
            panic!("no response in round {round}: {message:?}");
        };
        if let Err((number, error)) = response {
            assert_eq!(number, 3, "round {round}: {error}: {message:?}");
        }
    }
    assert_served(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn mutated_connections_do_not_affect_other_clients() {
    let server = daemon("d.yaml", POLICY).await;
    // Streams with meaningless headers, data and resets, as bytes on the wire.
    let mut traffic = OPENING.to_vec();
    for stream in [1_u8, 3, 5] {
        traffic.extend_from_slice(&[0, 0, 3, 1, 4, 0, 0, 0, stream, 0x83, 0x86, 0x84]);
        traffic.extend_from_slice(&[0, 0, 5, 0, 1, 0, 0, 0, stream, 0, 0, 0, 0, 0]);
        traffic.extend_from_slice(&[0, 0, 4, 3, 0, 0, 0, 0, stream, 0, 0, 0, 8]);
    }
    let mut dice = Dice(0xbad);
    for _ in 0..300 {
        let mut bytes = traffic.clone();
        for _ in 0..=dice.below(6) {
            let at = OPENING.len().min(24) + dice.below(bytes.len() - 24);
            bytes[at] = u8::try_from(dice.below(256)).unwrap();
        }
        bytes.truncate(24 + dice.below(bytes.len() - 23));
        send_raw(&server, &bytes).await;
    }
    assert_served(&server).await;
    server.stop().await;
}

/// Streams that are opened and reset at once: the connection is closed before it costs much.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let server = daemon("d.yaml", POLICY).await;
    let mut bytes = OPENING.to_vec();
    for number in 0..20_000_u32 {
        let stream = (2 * number + 1).to_be_bytes();
        bytes.extend_from_slice(&[0, 0, 3, 1, 4]);
        bytes.extend_from_slice(&stream);
        bytes.extend_from_slice(&[0x83, 0x86, 0x84]);
        bytes.extend_from_slice(&[0, 0, 4, 3, 0]);
        bytes.extend_from_slice(&stream);
        bytes.extend_from_slice(&[0, 0, 0, 8]);
    }
    let response = send_raw(&server, &bytes).await;
    let goes_away = response.windows(5).any(|frame| frame[3] == 7 && frame[..2] == [0, 0]);
    assert!(goes_away || response.len() < 1_000, "{}", response.len());
    assert_served(&server).await;
    server.stop().await;
}
