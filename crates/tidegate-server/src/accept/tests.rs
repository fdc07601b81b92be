use tidegate::Engine as AnyEngine;
use tidegate::policy::Policy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::daemon::Daemon;
use crate::settings::{Bounds, Settings};

/// Echoes its input; says bye at shutdown.
struct Echo;

impl Protocol for Echo {
    async fn serve(&self, mut connection: Connection) {
        let mut bytes = [0; 64];
        loop {
            tokio::select! {
                read = connection.io.read(&mut bytes) => match read {
                    Ok(read @ 1..) => {
                        if connection.io.write_all(&bytes[..read]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                () = connection.shutdown.wanted() => {
                    let _ = connection.io.write_all(b"bye").await;
                    return;
                }
            }
        }
    }
}

/// A protocol that never ends by itself.
struct Deaf;

impl Protocol for Deaf {
    async fn serve(&self, connection: Connection) {
        std::future::pending::<()>().await;
        drop(connection);
    }
}

struct Opened {
    address: SocketAddr,
    daemon: SharedDaemon,
    stop: ShutdownTrigger,
}

async fn open(listener: Listener, bounds: Bounds, protocol: impl Protocol) -> Opened {
    let policy = "[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let policy = Policy::from_toml(policy).unwrap();
    let engine = AnyEngine::open_any(policy.clone(), None).unwrap();
    let settings = Settings::on_free_ports(policy).bounds(bounds);
    let daemon = Arc::new(Daemon::new(engine, settings));
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let stop = ShutdownTrigger::new();
    let context = AcceptContext::new(listener, Arc::clone(&daemon));
    tokio::spawn(accept(context, ListenSocket::Tcp(socket), protocol, stop.shutdown()));
    Opened { address, daemon, stop }
}

fn bounds(connections: u64, connections_per_peer: u64) -> Bounds {
    let connections_per_peer = Some(connections_per_peer);
    Bounds { connections, connections_per_peer, admin_connections: 1, ..Bounds::default() }
}

/// Whether the connection has a permit, so that it is served.
async fn is_served(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 2];
    stream.write_all(b"hi").await.is_ok() && stream.read_exact(&mut bytes).await.is_ok()
}

#[tokio::test]
async fn without_a_free_permit_the_connection_that_is_idle_longest_is_closed() {
    let opened = open(Listener::Http, bounds(2, 2), Echo).await;
    let connect = || TcpStream::connect(opened.address);
    let (mut a, mut b) = (connect().await.unwrap(), connect().await.unwrap());
    assert!(is_served(&mut a).await && is_served(&mut b).await);
    let mut c = connect().await.unwrap();
    assert!(!is_served(&mut c).await, "the address has two already");
    let mut d = connect_from("127.0.0.2", opened.address).await;
    assert!(is_served(&mut d).await && is_served(&mut b).await);
    assert!(!is_served(&mut a).await, "it made room");
    let metrics = opened.daemon.metrics.listener(Listener::Http);
    assert_eq!((metrics.refused.get(), metrics.accepted.get()), (1, 3));
    drop(d);
    while metrics.closed.get() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(is_served(&mut connect().await.unwrap()).await, "a closed one returns its permit");
    assert_eq!(opened.daemon.metrics.listener(Listener::Grpc).accepted.get(), 0);
}

/// A connection from another address of this machine.
async fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn one_address_cannot_take_all_permits() {
    let opened = open(Listener::Http, bounds(10, 1), Echo).await;
    let mut a = TcpStream::connect(opened.address).await.unwrap();
    assert!(is_served(&mut a).await);
    let mut b = TcpStream::connect(opened.address).await.unwrap();
    assert!(!is_served(&mut b).await);
    let mut other = connect_from("127.0.0.2", opened.address).await;
    assert!(is_served(&mut other).await);
}

#[tokio::test]
async fn open_connections_are_signalled_at_shutdown() {
    let opened = open(Listener::Http, bounds(2, 2), Echo).await;
    let mut a = TcpStream::connect(opened.address).await.unwrap();
    assert!(is_served(&mut a).await);
    assert!(opened.stop.stop(Duration::from_secs(10)).await, "all connections have ended");
    let mut said = String::new();
    a.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "bye");
    assert!(TcpStream::connect(opened.address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn shutdown_waits_no_longer_than_the_grace_time() {
    let opened = open(Listener::Http, bounds(2, 2), Deaf).await;
    let _a = TcpStream::connect(opened.address).await.unwrap();
    while opened.daemon.metrics.listener(Listener::Http).accepted.get() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!opened.stop.stop(Duration::from_millis(1)).await);
}

#[test]
fn errors_of_one_connection_are_distinguished_from_errors_of_all() {
    let of_one = |kind: io::ErrorKind| is_of_one_connection(&kind.into());
    assert!(of_one(io::ErrorKind::ConnectionAborted));
    assert!(!of_one(io::ErrorKind::OutOfMemory));
    // EMFILE: every connection would fail, and nothing must spin.
    assert!(!is_of_one_connection(&io::Error::from_raw_os_error(24)));
}
