//! TLS before a protocol, with real certificates.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_listen::tls::{
    HandshakeOutcome, Handshakes, PlainProtocol, TlsConfig, TlsConfigError, TlsListener, TlsPem,
    TlsProtocol,
};
use tidegate_listen::{
    BudgetKind, Connection, Connections, ListenSocket, PermitLimits, Protocol, ShutdownTrigger,
    accept,
};
use tidegate_redis_servers::{Authority, Certificate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{LONG, SHORT, rest_of, until};

/// Responds to each byte: `s` with the client's subjects, `l` with a large response, others with
/// themselves.
struct Echo;

impl Protocol for Echo {
    async fn serve(&self, mut connection: Connection) {
        let subjects = connection.certificate.as_ref().map(|it| it.subjects().join(","));
        while let Ok(byte) = connection.io.read_u8().await {
            let response = match byte {
                b's' => format!("{}\n", subjects.as_deref().unwrap_or("none")).into_bytes(),
                b'l' => vec![b'x'; LARGE],
                byte => vec![byte],
            };
            if connection.io.write_all(&response).await.is_err()
                || connection.io.flush().await.is_err()
            {
                return;
            }
        }
    }
}

struct Server {
    address: SocketAddr,
    tls: Arc<TlsListener>,
    connections: Connections,
    handshakes: Handshakes,
    _stop: ShutdownTrigger,
}

/// What differs between servers.
struct Setup<'a> {
    authority: &'a Authority,
    client_ca: Option<&'a Authority>,
    protocols: &'a [&'a [u8]],
    time: Duration,
    max: usize,
}

impl<'a> Setup<'a> {
    fn new(authority: &'a Authority) -> Self {
        Self { authority, client_ca: None, protocols: &[], time: LONG, max: 100 }
    }

    async fn start(self) -> Server {
        let certificate = self.authority.server("server");
        let config = config(&certificate, self.client_ca, self.protocols).unwrap();
        let tls = Arc::new(TlsListener::new("test", self.time, config));
        let handshakes = Handshakes::start(self.max).unwrap();
        let connections = Connections::default();
        let permits = connections.listener("test", PermitLimits::new(1_000).per_peer(Some(1_000)));
        let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = ShutdownTrigger::new();
        let protocol = TlsProtocol::new(Echo, Arc::clone(&tls), handshakes.clone())
            .plain_text(|first| if first == b"PING\r\n" { b"use TLS\n" } else { b"" });
        tokio::spawn(accept(socket, permits, protocol, stop.signal()));
        Server { address, tls, connections, handshakes, _stop: stop }
    }
}

fn config(
    certificate: &Certificate,
    client_ca: Option<&Authority>,
    protocols: &[&[u8]],
) -> Result<TlsConfig, TlsConfigError> {
    let [chain, key] = [&certificate.path, &certificate.key].map(|path| fs::read(path).unwrap());
    let client_ca = client_ca.map(|it| fs::read(it.path()).unwrap());
    let client_ca = client_ca.as_deref();
    TlsConfig::new(&TlsPem { certificate: &chain, key: &key, client_ca }, protocols)
}

/// A client that trusts an authority and may have a certificate.
fn client(authority: &Authority, certificate: Option<&Certificate>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let chain = CertificateDer::pem_file_iter(&certificate.path).unwrap();
            let chain = chain.map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

async fn connect(server: &Server, client: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(client)).connect(name, tcp).await
}

/// The response to one byte, or the error of the connection.
async fn ask(server: &Server, client: ClientConfig, byte: u8) -> std::io::Result<String> {
    let mut stream = connect(server, client).await?;
    stream.write_all(&[byte]).await?;
    let mut response = [0; 256];
    let count = stream.read(&mut response).await?;
    Ok(String::from_utf8_lossy(&response[..count]).into_owned())
}

#[tokio::test]
async fn a_protocol_learns_the_subjects_of_a_verified_certificate() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Setup { client_ca: Some(&clients), ..Setup::new(&authority) }.start().await;
    let app = clients.issue("cn").names(&["URI:spiffe://x/app", "DNS:app.example"]).write();
    let response = ask(&server, client(&authority, Some(&app)), b's').await.unwrap();
    assert_eq!(response, "spiffe://x/app,app.example\n");
    let plain = Setup::new(&authority).start().await;
    let response = ask(&plain, client(&authority, Some(&app)), b's').await.unwrap();
    assert_eq!(response, "none\n", "a certificate that was not wanted is not verified");
}

#[tokio::test]
async fn clients_without_a_valid_certificate_are_denied_and_counted_by_reason() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Setup { client_ca: Some(&clients), ..Setup::new(&authority) }.start().await;
    let expired = clients.issue("old").valid("20200101000000Z", "20210101000000Z").write();
    let early = clients.issue("new").valid("20900101000000Z", "20910101000000Z").write();
    let others = Authority::new("others");
    let stranger = others.issue("app").write();
    use HandshakeOutcome as Outcome;
    for (certificate, outcome) in [
        (None, Outcome::NoCertificate),
        (Some(&expired), Outcome::CertificateExpired),
        (Some(&early), Outcome::CertificateNotYetValid),
        (Some(&stranger), Outcome::CertificateUnknownIssuer),
    ] {
        let response = ask(&server, client(&authority, certificate), b's').await;
        assert!(response.is_err(), "{outcome}: {response:?}");
        until(|| server.tls.count(outcome) == 1).await;
    }
    assert_eq!(server.tls.count(Outcome::Complete), 0);
    let distrusting = ask(&server, client(&clients, None), b's').await;
    assert!(distrusting.is_err(), "{distrusting:?}");
    until(|| server.tls.count(Outcome::RejectedByClient) == 1).await;
    let app = clients.issue("app").write();
    let response = ask(&server, client(&authority, Some(&app)), b's').await.unwrap();
    assert_eq!(response, "app\n", "the next client is served");
}

#[tokio::test]
async fn a_client_that_offers_protocols_must_offer_the_right_one() {
    let authority = Authority::new("servers");
    let server = Setup { protocols: &[b"h2"], ..Setup::new(&authority) }.start().await;
    let offering = |protocols: &[&[u8]]| {
        let mut client = client(&authority, None);
        client.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        client
    };
    for accepted in [&[][..], &[b"h2".as_slice()], &[b"http/1.1", b"h2"]] {
        assert_eq!(ask(&server, offering(accepted), b'a').await.unwrap(), "a");
    }
    let error = ask(&server, offering(&[b"http/1.1"]), b'a').await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    until(|| server.tls.count(HandshakeOutcome::WrongProtocol) == 1).await;
}

#[tokio::test]
async fn plain_text_gets_the_response_of_the_protocol_or_is_closed() {
    let authority = Authority::new("servers");
    let server = Setup::new(&authority).start().await;
    for (sent, expected) in [(&b"PING\r\n"[..], "use TLS\n"), (b"\0\0", "")] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        assert_eq!(rest_of(&mut stream).await.unwrap_or_default(), expected);
    }
    until(|| server.tls.count(HandshakeOutcome::PlainText) == 2).await;
    assert_eq!(server.handshakes.in_progress(), 0);
}

#[tokio::test]
async fn tls_on_a_port_without_it_is_closed_at_once() {
    let permits = Connections::default().listener("test", PermitLimits::new(10));
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let stop = ShutdownTrigger::new();
    let protocol = PlainProtocol::new(Echo, "test", LONG);
    tokio::spawn(accept(socket, permits, protocol, stop.signal()));
    let mut tls = TcpStream::connect(address).await.unwrap();
    tls.write_all(CLIENT_HELLO_START).await.unwrap();
    assert_eq!(rest_of(&mut tls).await.unwrap_or_default(), "");
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"a").await.unwrap();
    assert_eq!(plain.read_u8().await.unwrap(), b'a');
    drop(plain);
    assert!(stop.stop(LONG).await);
}

#[tokio::test]
async fn a_handshake_is_bounded_in_time_and_holds_bytes_of_the_budget_until_it_ends() {
    let authority = Authority::new("servers");
    let server = Setup::new(&authority).start().await;
    let held = || server.connections.bytes_held(BudgetKind::Received);
    let mut slow = Vec::new();
    for count in 1..=5 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(CLIENT_HELLO_START).await.unwrap();
        slow.push(stream);
        until(|| held() == count * ((16 << 10) + CLIENT_HELLO_START.len())).await;
    }
    assert_eq!(ask(&server, client(&authority, None), b'a').await.unwrap(), "a");
    drop(slow);
    until(|| held() == 0 && server.handshakes.in_progress() == 0).await;
    until(|| server.tls.count(HandshakeOutcome::Closed) == 5).await;

    let server = Setup { time: SHORT, ..Setup::new(&authority) }.start().await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(CLIENT_HELLO_START).await.unwrap();
    assert_eq!(rest_of(&mut silent).await.unwrap(), "");
    // A reset, where the time was over before what was sent had been read.
    assert_eq!(rest_of(&mut slow).await.unwrap_or_default(), "");
    assert_eq!(server.tls.count(HandshakeOutcome::TimedOut), 2);
}

#[tokio::test]
async fn among_too_many_handshakes_the_first_one_makes_room() {
    let authority = Authority::new("servers");
    let server = Setup { max: 2, ..Setup::new(&authority) }.start().await;
    let mut slow = Vec::new();
    for count in 1..=3 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(CLIENT_HELLO_START).await.unwrap();
        slow.push(stream);
        until(|| server.handshakes.in_progress() == count.min(2)).await;
    }
    assert_eq!(rest_of(&mut slow[0]).await.unwrap_or_default(), "");
    until(|| server.tls.count(HandshakeOutcome::MadeRoom) == 1).await;
    assert_eq!(ask(&server, client(&authority, None), b'a').await.unwrap(), "a");
    until(|| server.tls.count(HandshakeOutcome::MadeRoom) == 2).await;
    assert_eq!(server.handshakes.in_progress(), 1);
}

#[tokio::test]
async fn what_tls_holds_after_the_handshake_counts_in_the_budgets() {
    let authority = Authority::new("servers");
    let server = Setup::new(&authority).start().await;
    let held = |kind| server.connections.bytes_held(kind);
    let mut stream = connect(&server, client(&authority, None)).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
    assert_eq!((held(BudgetKind::Received), held(BudgetKind::Unsent)), (0, 0));
    // A record of 16 KiB that never ends.
    let (tcp, _) = stream.get_mut();
    tcp.write_all(b"\x17\x03\x03\x40\0").await.unwrap();
    tcp.write_all(&[0; 10_000]).await.unwrap();
    until(|| held(BudgetKind::Received) == 10_005).await;
    drop(stream);
    until(|| held(BudgetKind::Received) == 0).await;
    // A response that is not read.
    let mut stream = connect(&server, client(&authority, None)).await.unwrap();
    stream.write_all(b"l").await.unwrap();
    until(|| held(BudgetKind::Unsent) > 0).await;
    assert!(held(BudgetKind::Unsent) <= 16 << 10);
    let mut response = vec![0; LARGE];
    stream.read_exact(&mut response).await.unwrap();
    until(|| held(BudgetKind::Unsent) == 0).await;
}

#[tokio::test]
async fn another_certificate_is_for_new_connections_and_open_ones_go_on() {
    let authority = Authority::new("servers");
    let server = Setup::new(&authority).start().await;
    let mut open = connect(&server, client(&authority, None)).await.unwrap();
    let next = authority.server("next");
    server.tls.replace(config(&next, None, &[]).unwrap());
    let new = connect(&server, client(&authority, None)).await.unwrap();
    let sent = CertificateDer::from_pem_file(&next.path).unwrap();
    assert_eq!(new.get_ref().1.peer_certificates().unwrap()[0], sent);
    open.write_all(b"a").await.unwrap();
    assert_eq!(open.read_u8().await.unwrap(), b'a');
}

#[tokio::test]
async fn sessions_resume_but_not_with_another_configuration() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Setup { client_ca: Some(&clients), ..Setup::new(&authority) }.start().await;
    let app = clients.issue("app").write();
    let client = client(&authority, Some(&app));
    let kind = async |expected| {
        let mut stream = connect(&server, client.clone()).await.unwrap();
        stream.write_all(b"s").await.unwrap();
        let mut subjects = [0; 4];
        stream.read_exact(&mut subjects).await.unwrap();
        assert_eq!(&subjects, b"app\n");
        assert_eq!(stream.get_ref().1.handshake_kind().unwrap(), expected);
    };
    kind(rustls::HandshakeKind::Full).await;
    kind(rustls::HandshakeKind::Resumed).await;
    let next = config(&authority.server("server"), Some(&clients), &[]).unwrap();
    server.tls.replace(next);
    kind(rustls::HandshakeKind::Full).await;
}

#[test]
fn files_that_cannot_be_used_have_an_error_that_says_why() {
    let authority = Authority::new("ca");
    let (good, other) = (authority.server("a"), authority.server("b"));
    let read = |path: &std::path::Path| fs::read(path).unwrap();
    let (chain, key) = (read(&good.path), read(&good.key));
    let error = |certificate: &[u8], key: &[u8], client_ca: Option<&[u8]>| {
        TlsConfig::new(&TlsPem { certificate, key, client_ca }, &[]).unwrap_err()
    };
    assert_eq!(error(&chain, &read(&other.key), None), TlsConfigError::KeyMismatch);
    assert!(matches!(error(&chain, &chain, None), TlsConfigError::Key(_)));
    assert!(matches!(error(&key, &key, None), TlsConfigError::Certificate(_)));
    assert!(matches!(error(b"", &key, None), TlsConfigError::Certificate(_)));
    assert!(matches!(error(&chain, &key, Some(&key)), TlsConfigError::ClientCa(_)));
    let half = &chain[..chain.len() / 2];
    assert!(matches!(error(half, &key, None), TlsConfigError::Certificate(_)));
    let locked =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(error(&chain, locked, None).to_string().contains("encrypted"));
    let debug = format!("{:?}", TlsPem { certificate: &chain, key: &key, client_ca: None });
    assert_eq!(debug, "TlsPem { .. }");
}

/// The first bytes of a handshake: the head of a record of 512 bytes, and some of them.
const CLIENT_HELLO_START: &[u8] = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
/// More than the buffers of a socket hold.
const LARGE: usize = 16 << 20;
