use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tidegate::clock::{Clock, MonotonicClock};
use tidegate_redis_servers::Authority;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::permits::{Connections, PermitLimits};

/// A time that the test sets.
#[derive(Debug)]
struct At(AtomicU64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// How a handshake with this client ends.
async fn outcome(config: &Arc<TlsConfig>, client: &Arc<ClientConfig>) -> (HandshakeOutcome, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, address) = listener.accept().await.unwrap();
    let permits = Connections::default().listener("test", PermitLimits::new(1));
    let raw = RawStream::new(accepted, Arc::new(permits.take(address).unwrap()));
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(client));
    let connecting = async {
        let mut tls = connector.connect(name, tcp).await.unwrap();
        // With the end of the connection comes the ticket.
        let _ = tls.read(&mut [0]).await;
        tls.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
    };
    let accepting = async {
        match accept(Arc::clone(config), raw).await {
            Ok((mut tls, _)) => {
                tls.shutdown().await.unwrap();
                HandshakeOutcome::Complete
            }
            Err(failure) => failure.outcome,
        }
    };
    tokio::join!(accepting, connecting)
}

#[tokio::test]
async fn a_resumed_session_ends_with_the_certificate_of_its_client() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (own, app) = (servers.server("server"), clients.issue("app").write());
    let read = |path: &std::path::Path| fs::read(path).unwrap();
    let (certificate, key, ca) = (read(&own.path), read(&own.key), read(clients.path()));
    let pem = TlsPem { certificate: &certificate, key: &key, client_ca: Some(&ca) };
    let now = MonotonicClock.wall().as_nanos() / 1_000_000_000;
    let clock = Arc::new(At(AtomicU64::new(now)));
    let mut config = TlsConfig::new(&pem, &[]).unwrap();
    Arc::get_mut(&mut config.server).unwrap().time_provider = Arc::clone(&clock) as _;
    let config = Arc::new(config);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(servers.path()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(&app.path).unwrap()],
            PrivateKeyDer::from_pem_file(&app.key).unwrap(),
        )
        .unwrap();
    let client = Arc::new(client);
    assert_eq!(outcome(&config, &client).await, (HandshakeOutcome::Complete, false));
    assert_eq!(outcome(&config, &client).await, (HandshakeOutcome::Complete, true));
    // The certificate is valid for 30 days.
    clock.0.store(now + 31 * 86_400, Ordering::Relaxed);
    assert_eq!(outcome(&config, &client).await, (HandshakeOutcome::CertificateExpired, true));
}
