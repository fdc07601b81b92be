use tidegate::Engine as AnyEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::daemon::Daemon;
use crate::settings::Settings;

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
    let context = AcceptContext {
        listener,
        daemon: Arc::clone(&daemon),
        limits: ConnectionLimits::new(&bounds),
    };
    tokio::spawn(accept(context, ListenSocket::Tcp(socket), protocol, stop.shutdown()));
    Opened { address, daemon, stop }
}

fn bounds(connections: u64, connections_per_peer: u64) -> Bounds {
    Bounds { connections, connections_per_peer, admin_connections: 1, ..Bounds::default() }
}

/// Whether the connection has a permit, so that it is served.
async fn is_served(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 2];
    stream.write_all(b"hi").await.is_ok() && stream.read_exact(&mut bytes).await.is_ok()
}

#[tokio::test]
async fn connections_are_bounded_and_a_closed_one_returns_its_permit() {
    let opened = open(Listener::Http, bounds(2, 2), Echo).await;
    let connect = || TcpStream::connect(opened.address);
    let (mut a, mut b) = (connect().await.unwrap(), connect().await.unwrap());
    assert!(is_served(&mut a).await && is_served(&mut b).await);
    let mut c = connect().await.unwrap();
    assert!(!is_served(&mut c).await, "there is no third permit");
    drop(a);
    // The permit is free again when the server has seen the close.
    while !is_served(&mut connect().await.unwrap()).await {}
    assert!(is_served(&mut b).await);
    let metrics = opened.daemon.metrics.listener(Listener::Http);
    assert!(metrics.refused.get() >= 1);
    assert_eq!(opened.daemon.metrics.listener(Listener::Grpc).accepted.get(), 0);
}

#[tokio::test]
async fn one_address_cannot_take_all_permits() {
    let opened = open(Listener::Http, bounds(10, 1), Echo).await;
    let mut a = TcpStream::connect(opened.address).await.unwrap();
    assert!(is_served(&mut a).await);
    let mut b = TcpStream::connect(opened.address).await.unwrap();
    assert!(!is_served(&mut b).await);
    // A peer at another address of this machine.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(opened.address).await.unwrap();
    assert!(is_served(&mut other).await);
}

#[tokio::test]
async fn an_ipv6_network_is_one_peer() {
    let limits = ConnectionLimits::new(&bounds(10, 1));
    let take =
        |address: &str| limits.take(Listener::Http, PeerId::Address(address.parse().unwrap()));
    let _first = take("[2001:db8:0:1::1]:1").await.expect("the first");
    assert!(take("[2001:db8:0:1:ffff::2]:1").await.is_none());
    assert!(take("[2001:db8:0:2::1]:1").await.is_some());
    let _first = take("[::ffff:192.0.2.1]:1").await.expect("the first");
    assert!(take("192.0.2.1:1").await.is_none());
    assert!(take("192.0.2.2:1").await.is_some());
}

#[tokio::test]
async fn permits_are_reserved_for_admins() {
    let bounds = bounds(1, 1);
    let public = open(Listener::Http, bounds, Echo).await;
    let limits = ConnectionLimits::new(&bounds);
    let mut a = TcpStream::connect(public.address).await.unwrap();
    assert!(is_served(&mut a).await);
    let peer = PeerId::Address("127.0.0.1:1".parse().unwrap());
    let _taken = limits.take(Listener::Resp, peer).await.expect("the first");
    assert!(
        limits.take(Listener::Http, peer).await.is_none(),
        "all public listeners share permits"
    );
    let admin = limits.take(Listener::Admin, peer).await;
    assert!(admin.is_some());
    assert!(limits.take(Listener::Admin, peer).await.is_none());
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
