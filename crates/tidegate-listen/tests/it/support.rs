//! Servers and clients for the tests.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tidegate_listen::{
    Connections, Http, ListenSocket, PermitLimits, Permits, ShutdownTrigger, Timeouts, accept,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A server on its own port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) permits: Permits,
    pub(crate) stop: ShutdownTrigger,
}

impl Server {
    pub(crate) async fn start(limits: PermitLimits, http: Http<Router>) -> Self {
        let permits = Connections::default().listener("http", limits);
        let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = ShutdownTrigger::new();
        tokio::spawn(accept(socket, permits.clone(), http, stop.signal()));
        Self { address, permits, stop }
    }

    /// A connection from an address of this machine.
    pub(crate) async fn connect(&self, source: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// The response to a request without a body on a new connection.
    pub(crate) async fn get(&self, source: [u8; 4], path: &str) -> String {
        let mut stream = self.connect(source).await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        if stream.write_all(request.as_bytes()).await.is_err() {
            return String::new();
        }
        rest_of(&mut stream).await.unwrap_or_default()
    }
}

/// Everything until the server closes the connection; an error if it resets it.
pub(crate) async fn rest_of(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut response = Vec::new();
    let reading = stream.read_to_end(&mut response);
    tokio::time::timeout(LONG, reading).await.expect("the connection is closed")?;
    Ok(String::from_utf8(response).unwrap())
}

/// Waits until a condition holds.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("the condition should hold by now");
}

/// Time-outs that no test reaches, but for those that it sets.
pub(crate) fn long() -> Timeouts {
    Timeouts { head_time: LONG, request_time: LONG, idle_time: LONG, write_time: LONG }
}

/// Long enough for any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const SHORT: Duration = Duration::from_millis(50);
