//! Permits of connections, per listener and per address.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate_server::{Bounds, Listener, Server, Settings};
use tokio::net::TcpSocket;

use crate::grpc_client::{Client, call, daemon_with};
use crate::http_support::Running;

const POLICY: &str = "
[[rule]]
name = \"k\"
domain = \"d\"
key = [\"k\"]
window = { max = 1_000_000, per = \"1h\" }
";

/// A connection from one of the addresses of this machine.
fn connect_from(host: u8, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 1, host], 0))).unwrap();
        let stream = socket.connect(to).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    })
}

/// Whether the daemon responds.
fn is_served(stream: &mut TcpStream) -> bool {
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut response = [0; 1024];
    stream.write_all(request).is_ok() && stream.read(&mut response).is_ok_and(|read| read > 0)
}

#[test]
fn every_listener_has_its_own_permits_and_an_address_a_quarter() {
    let file = Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let mut bounds = Bounds::default();
    bounds.connections = 16;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = Settings::on_free_ports(file).bounds(bounds);
    let server = runtime.block_on(Server::start(settings)).unwrap();
    let http = server.address(Listener::Http).unwrap();
    let mut open: Vec<TcpStream> = Vec::new();
    for host in 1..=4 {
        let mut served: Vec<_> = (0..5).map(|_| connect_from(host, http)).collect();
        served.retain_mut(is_served);
        assert_eq!(served.len(), 4, "of 5 from 127.0.1.{host}");
        open.append(&mut served);
    }
    // The last eighth was not for the fourth address: its last two made older ones close.
    open.retain_mut(is_served);
    assert_eq!(open.len(), 14);
    let mut new = [connect_from(5, http), connect_from(6, http)];
    assert!(new.iter_mut().all(is_served));
    open.retain_mut(is_served);
    assert_eq!(open.len(), 14, "the last eighth was free");
    let mut resp = connect_from(1, server.address(Listener::Resp).unwrap());
    resp.write_all(b"PING\r\n").unwrap();
    resp.read_exact(&mut [0; 7]).unwrap();
    runtime.block_on(async {
        let mut client = Client::new(&server).await;
        client.ask(&call("d", &[&[("k", "v")]])).await.unwrap();
        server.stop().await;
    });
}

#[test]
fn unfinished_requests_do_not_keep_new_addresses_out() {
    let daemon = Running::with(POLICY, |bounds| bounds.connections = 8);
    let mut silent: Vec<_> = (1..=8).map(|host| connect_from(host, daemon.address())).collect();
    for stream in &mut silent {
        stream.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n").unwrap();
    }
    for host in 9..=40 {
        assert!(is_served(&mut connect_from(host, daemon.address())), "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_connection_without_calls_ends_although_it_answers_pings() {
    let server = daemon_with(POLICY, |bounds| bounds.idle_time = Duration::from_millis(300)).await;
    let address = server.address(Listener::Grpc).unwrap();
    let (mut client, connection) = Client::with(address, |_| {}).await;
    client.ask(&call("d", &[&[("k", "v")]])).await.unwrap();
    // The client answers pings by itself.
    let ended = tokio::time::timeout(Duration::from_secs(20), connection).await;
    ended.expect("the connection ends").unwrap().expect("it ends without an error");
    server.stop().await;
}

#[test]
fn bursts_of_connections_wait_in_the_backlog() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = allowed.trim().parse().unwrap_or(4_096).min(3_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let file = Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let settings = Settings::on_free_ports(file);
    let server = runtime.block_on(Server::start(settings)).unwrap();
    let address = server.address(Listener::Http).unwrap();
    // Nothing is accepted while the runtime does not run.
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
    let connected: Vec<_> = (0..burst).map(connect).take_while(Result::is_ok).collect();
    assert_eq!(connected.len(), burst);
    drop(connected);
    runtime.block_on(server.stop());
}
