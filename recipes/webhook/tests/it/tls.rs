//! The chat API over TLS, as Telegram's is. The certificates are for `localhost` and valid until
//! 2100; the key of the authority that signed them was discarded.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::http::{TIMEOUT, health, send, update};
use crate::process::{Program, output};
use crate::server::{as_strs, environment};
use crate::stand_in::{Call, StandIn, routes};

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/ca.pem");

/// A listener of TLS connections.
struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, peer) = self.tcp.accept().await.unwrap();
            // A client that does not trust the certificate disconnects.
            if let Ok(stream) = self.tls.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// A chat API over TLS: its base URL, and its received requests.
async fn chat() -> (String, UnboundedReceiver<Call>) {
    let chain = CertificateDer::from_pem_slice(include_bytes!("tls/localhost.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/localhost.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://localhost:{}", tcp.local_addr().unwrap().port());
    let (router, received, responses) = routes(StatusCode::OK);
    responses.add_permits(Semaphore::MAX_PERMITS);
    let listener = TlsListener { tcp, tls: TlsAcceptor::from(Arc::new(config)) };
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    (base, received)
}

/// Sends two messages where one is allowed.
async fn started(base: &str, more: &[(&str, &str)]) -> Program {
    let agent = StandIn::new().await;
    let environment = environment(&agent, &agent);
    let own =
        [("RATE_LIMIT_MAX", "1"), ("RATE_LIMIT_ALGORITHM", "bucket"), ("TELEGRAM_API_BASE", base)];
    let program = Program::start(&[&*as_strs(&environment), &own, more].concat()).await;
    for update_id in 0..2 {
        send(program.address, &update(update_id, 7)).await.is_ok();
    }
    program
}

#[tokio::test]
async fn replies_go_over_tls_to_a_trusted_server() {
    let (base, mut received) = chat().await;
    let program = started(&base, &[("SSL_CERT_FILE", AUTHORITY)]).await;
    let reply = timeout(TIMEOUT, received.recv()).await.unwrap().unwrap();
    assert_eq!(reply.path, "/bot123:token/sendMessage");
    let (_, log) = program.ended_by("-TERM").await;
    assert!(!log.contains("is not https"), "{log}");
}

#[tokio::test]
async fn replies_do_not_go_to_an_untrusted_server() {
    let (base, mut received) = chat().await;
    // Another name than the certificate's.
    let base = base.replace("localhost", "127.0.0.1");
    let program = started(&base, &[("SSL_CERT_FILE", AUTHORITY)]).await;
    let failed = async {
        while health(program.address).await["replies"]["failed"] != 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, failed).await.unwrap();
    assert!(received.try_recv().is_err());
    let (_, log) = program.ended_by("-TERM").await;
    assert!(log.contains("call to the chat API failed: "), "{log}");
    assert!(log.contains("certificate"), "{log}");
}

#[tokio::test]
async fn https_without_trusted_certificates_prevents_the_start() {
    let agent = StandIn::new().await;
    let environment = environment(&agent, &agent);
    let https = [("TELEGRAM_API_BASE", "https://localhost"), ("SSL_CERT_FILE", "/nowhere")];
    let variables = [&*as_strs(&environment), &https].concat();
    let output = output(&variables, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("error: cannot read the system's trusted certificates"), "{message}");
    assert!(message.contains("SSL_CERT_FILE"), "{message}");
}
