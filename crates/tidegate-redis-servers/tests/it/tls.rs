//! TLS.

use std::path::PathBuf;
use std::process::Command;

use tidegate_redis_servers::{Certificate, Program, Server, TlsFiles};

/// A new certificate that signs itself, for 127.0.0.1.
fn certificate(folder: &Path) -> TlsFiles {
    let Certificate { path, key } = Certificate::self_signed(folder, "tls");
    TlsFiles { authority: path.clone(), certificate: path, key }
}

#[test]
fn a_server_with_tls_is_served_by_a_port_of_its_own() {
    // Its folder holds the files.
    let other = Server::start(Program::Redis7);
    let files = TlsFiles::generate(other.folder(), "tls");
    let server = Server::builder(Program::Redis7).tls(files.clone()).start();
    let address = server.tls_address().unwrap();
    assert_eq!(server.tls_url().unwrap(), format!("rediss://{address}"));
    let ping = |authority: &PathBuf| {
        let port = address.port().to_string();
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"])
            .arg(authority)
            .arg("PING")
            .output()
            .expect("redis-cli is missing: run scripts/install");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ping(&files.authority), "PONG\n");
    let stranger = Server::start(Program::Redis7);
    assert_ne!(ping(&TlsFiles::generate(stranger.folder(), "tls").authority), "PONG\n");
}

#[test]
fn only_programs_that_were_built_with_tls_have_it() {
    let other = Server::start(Program::Redis7);
    let files = TlsFiles::generate(other.folder(), "tls");
    for program in Program::ALL {
        let output = Command::new("timeout")
            .args(["0.5", program.path().to_str().unwrap(), "--port", "0", "--save", ""])
            .args(["--tls-port", "1", "--tls-cert-file", "/dev/null"])
            .current_dir(other.folder())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(!log.contains("Failed finding TLS support"), program.has_tls(), "{log}");
    }
    let refused = std::panic::catch_unwind(|| Server::builder(Program::Valkey9).tls(files));
    assert!(refused.is_err());
}
