//! Tests of reserved ports.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use super::{Port, loopback};

#[test]
fn a_reserved_port_refuses_connections_until_a_server_listens() {
    let port = Port::reserve();
    for _ in 0..3 {
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind(port.address()).unwrap();
        let client = TcpStream::connect(port.address()).unwrap();
        let second = TcpListener::bind(port.address()).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        // Also with connections that are closing.
        drop((listener, client));
    }
}

#[test]
fn a_port_that_refuses_connections_may_accept_them_again() {
    let port = Port::reserve();
    for _ in 0..3 {
        port.listen().unwrap();
        let _client = TcpStream::connect(port.address()).unwrap();
        port.accept().unwrap();
        port.refuse().unwrap();
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(port.accept().is_err());
    }
}

#[test]
fn a_reserved_port_is_given_to_no_other_listener_or_connection() {
    let ports: Vec<_> = (0..200).map(|_| Port::reserve()).collect();
    let is_reserved = |number| ports.iter().any(|port| port.number() == number);
    let server = TcpListener::bind(loopback(0)).unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (accepted, _) = server.accept().unwrap();
        assert!(!is_reserved(listener.local_addr().unwrap().port()));
        assert!(!is_reserved(client.local_addr().unwrap().port()));
        held.push((listener, client, accepted));
    }
}
