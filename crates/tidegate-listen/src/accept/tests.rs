use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::permits::{Connections, PermitLimits};
use crate::socket::ListenSocket;

/// Echoes its input; says bye at shutdown.
struct Echo;

impl Protocol for Echo {
    async fn serve(&self, mut connection: Connection) {
        let mut bytes = [0; 64];
        loop {
            tokio::select! {
                biased;
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
    permits: Permits,
    stop: ShutdownTrigger,
}

async fn open(max: u64, max_per_peer: u64, protocol: impl Protocol) -> Opened {
    let limits = PermitLimits::new(max).per_peer(Some(max_per_peer));
    let permits = Connections::default().listener("http", limits);
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let stop = ShutdownTrigger::new();
    tokio::spawn(accept(socket, permits.clone(), protocol, stop.signal()));
    Opened { address, permits, stop }
}

/// Whether the connection has a permit, so that it is served.
async fn is_served(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 2];
    stream.write_all(b"hi").await.is_ok() && stream.read_exact(&mut bytes).await.is_ok()
}

#[tokio::test]
async fn without_a_free_permit_the_connection_that_is_idle_longest_is_closed() {
    let opened = open(2, 2, Echo).await;
    let connect = || TcpStream::connect(opened.address);
    let (mut a, mut b) = (connect().await.unwrap(), connect().await.unwrap());
    assert!(is_served(&mut a).await && is_served(&mut b).await);
    let mut c = connect().await.unwrap();
    assert!(!is_served(&mut c).await, "the address has two already");
    let mut d = connect_from("127.0.0.2", opened.address).await;
    assert!(is_served(&mut d).await && is_served(&mut b).await);
    assert!(!is_served(&mut a).await, "it made room");
    let counts = || opened.permits.counts();
    assert_eq!((counts().refused, counts().accepted), (1, 3));
    drop(d);
    while counts().closed < 2 {
        tokio::task::yield_now().await;
    }
    assert!(is_served(&mut connect().await.unwrap()).await, "a closed one returns its permit");
}

/// A connection from another address of this machine.
async fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn one_address_cannot_take_all_permits() {
    let opened = open(10, 1, Echo).await;
    let mut a = TcpStream::connect(opened.address).await.unwrap();
    assert!(is_served(&mut a).await);
    let mut b = TcpStream::connect(opened.address).await.unwrap();
    assert!(!is_served(&mut b).await);
    let mut other = connect_from("127.0.0.2", opened.address).await;
    assert!(is_served(&mut other).await);
}

#[tokio::test]
async fn open_connections_are_signalled_at_shutdown() {
    let opened = open(2, 2, Echo).await;
    let mut a = TcpStream::connect(opened.address).await.unwrap();
    assert!(is_served(&mut a).await);
    assert!(opened.stop.stop(Duration::from_secs(10)).await, "all connections have ended");
    let mut said = String::new();
    a.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "bye");
    assert!(TcpStream::connect(opened.address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_connection_that_has_arrived_when_shutdown_begins_is_served() {
    // The loop does not run before shutdown begins.
    let permits = Connections::default().listener("http", PermitLimits::new(8).per_peer(Some(8)));
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(std::net::TcpStream::connect(address).unwrap());
    }
    let stop = ShutdownTrigger::new();
    let accepting = accept(socket, permits, Echo, stop.signal());
    let mut stopping = pin!(stop.stop(Duration::from_secs(10)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(stopping.as_mut().poll(&mut context).is_pending(), "the signal is sent");
    accepting.await;
    assert!(stopping.await, "all connections have ended");
    for mut client in clients {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut client, &mut said).unwrap();
        assert_eq!(said, "bye");
    }
}

/// The runtime does not run between the connection and the call.
#[tokio::test]
async fn connections_that_the_runtime_has_not_noticed_are_accepted() {
    let mut tcp = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    assert!(tcp.accept_arrived().unwrap().is_none());
    let client = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let (_, peer) = tcp.accept_arrived().unwrap().expect("it has arrived");
    assert_eq!(peer.address(), client.local_addr().ok());
    assert!(tcp.accept_arrived().unwrap().is_none());

    let path = std::env::temp_dir().join(format!("tidegate-listen-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut unix = ListenSocket::from(tokio::net::UnixListener::bind(&path).unwrap());
    let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (_, peer) = unix.accept_arrived().unwrap().expect("it has arrived");
    assert!(matches!(peer, PeerId::Process(_)), "{peer}");
    assert!(unix.accept_arrived().unwrap().is_none());
    std::fs::remove_file(&path).unwrap();
}

/// A socket that has no descriptor for the first connections.
struct OutOfDescriptors {
    socket: ListenSocket,
    failures: u32,
}

impl Accept for OutOfDescriptors {
    type Io = crate::PeerStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, PeerId)> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(io::Error::from_raw_os_error(24));
        }
        self.socket.accept().await
    }
}

#[tokio::test]
async fn a_connection_that_has_arrived_is_served_when_descriptors_are_free_again() {
    let permits = Connections::default().listener("http", PermitLimits::new(8));
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let mut client = std::net::TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    let stop = ShutdownTrigger::new();
    let mut shutdown = stop.signal();
    let accepting = Accepting {
        protocol: Arc::new(Echo),
        shutdown: shutdown.clone(),
        refusals: Warnings::new(),
        failures: Warnings::new(),
        permits,
    };
    let mut stopping = pin!(stop.stop(Duration::from_secs(10)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(stopping.as_mut().poll(&mut context).is_pending(), "the signal is sent");
    shutdown.wanted().await;
    accepting.drain(&mut OutOfDescriptors { socket, failures: 2 }).await;
    drop((accepting, shutdown));
    assert!(stopping.await, "all connections have ended");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut client, &mut said).unwrap();
    assert_eq!(said, "bye");
}

#[tokio::test]
async fn shutdown_waits_no_longer_than_the_grace_time() {
    let opened = open(2, 2, Deaf).await;
    let _a = TcpStream::connect(opened.address).await.unwrap();
    while opened.permits.counts().accepted == 0 {
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
