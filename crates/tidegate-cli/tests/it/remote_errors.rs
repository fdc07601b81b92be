//! What `tidegate admin --at` says when a daemon cannot be reached, or does not trust the client.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use tidegate_redis_servers::Authority;

use crate::remote::{Daemon, TLS, copy, folder_with_certificates, new_folder, tidegate};
use crate::run::Ended;

const STATUS: [&str; 2] = ["admin", "status"];

fn status(folder: &Path, at: &[&str]) -> Ended {
    tidegate(folder, &[&STATUS, at].concat())
}

#[test]
fn a_wrong_or_missing_token_is_rejected() {
    let (folder, _authority) = folder_with_certificates();
    let daemon = Daemon::start(folder, &[&TLS[..], &["--tokens", "tokens.toml"]].concat());
    let url = daemon.https();
    let at = ["--at", &url, "--ca", "ca.crt"];
    let none = daemon.run(&STATUS, &at).with(1).silent_out();
    none.err(&["a token or a client certificate is needed", "--token-file FILE"]);
    let with = |file: &'static str| [&at[..], &["--token-file", file]].concat();
    let wrong = daemon.run(&STATUS, &with("other")).with(1).silent_out();
    let wrong = wrong.err(&["is not known", "`other`", "tidegate token list"]);
    let secret = fs::read_to_string(daemon.folder.join("other")).unwrap();
    assert!(!wrong.err.contains(secret.trim()), "{wrong:?}");
    let json = daemon.run(&["admin", "status", "--format", "json"], &with("other")).with(1).json();
    assert_eq!(json["status"], 401);
}

#[test]
fn a_token_file_that_is_not_one_is_not_sent() {
    let daemon = Daemon::start(new_folder(), &["--tokens", "tokens.toml"]);
    let url = daemon.http();
    let file = |name: &str, text: &[u8]| {
        let path = daemon.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    };
    file("empty", b"\n");
    file("long", &[b'x'; 4097]);
    file("lines", b"one\ntwo\n");
    file("bytes", b"\xff\n");
    for (name, why) in [
        ("gone", "cannot read the token file `gone`"),
        ("empty", "is empty"),
        ("long", "more than 4096 bytes"),
        ("lines", "has other characters"),
        ("bytes", "has other characters"),
    ] {
        let ended = daemon.run(&STATUS, &["--at", &url, "--token-file", name]).with(2).silent_out();
        ended.err(&[why, "tidegate token new"]);
    }
    let exposed = daemon.folder.join("ops");
    let at = ["--at", &url, "--token-file", "ops"];
    let _ = daemon.run(&STATUS, &at).with(0).silent_err();
    fs::set_permissions(exposed, Permissions::from_mode(0o644)).unwrap();
    daemon.run(&STATUS, &at).with(0).err(&["warning: other users may read", "chmod 600 ops"]);
}

#[test]
fn a_secret_is_not_sent_to_another_machine_in_plain_text() {
    let folder = new_folder();
    // An address for documentation: nothing is there, and nothing is tried.
    let at = ["--at", "http://192.0.2.1:9090", "--token-file", "ops"];
    let refused = status(&folder, &at).with(2).silent_out();
    refused.err(&["plain text", "192.0.2.1 is another machine", "https://"]);
    let at = ["--at", "http://127.0.0.1:1", "--ca", "x"];
    status(&folder, &at).with(2).err(&["--ca is for TLS", "https://"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn certificates_of_the_daemon_are_verified() {
    let (folder, authority) = folder_with_certificates();
    let past = authority.issue("limits").names(&["IP:127.0.0.1"]);
    copy(&past.valid("20200101000000Z", "20200102000000Z").write(), &folder, "past");
    let future = authority.issue("limits").names(&["IP:127.0.0.1"]);
    copy(&future.valid("20990101000000Z", "20990102000000Z").write(), &folder, "future");
    let named = authority.issue("limits").names(&["DNS:limits.example"]);
    copy(&named.write(), &folder, "named");
    let other = Authority::new("another authority");
    let other_ca = other.path().to_str().unwrap().to_owned();
    fs::copy(other.path(), folder.join("other.crt")).unwrap();
    let tokens = ["--tokens", "tokens.toml"];
    let daemon = Daemon::start(folder, &[&TLS[..], &tokens].concat());
    let at = |url: &str, ca: &[&str]| {
        daemon.run(&STATUS, &[&["--at", url, "--token-file", "ops"], ca].concat()).with(2)
    };
    let url = daemon.https();
    at(&url, &["--ca", "other.crt"]).silent_out().err(&["authority", "`other.crt`", "--ca FILE"]);
    at(&url, &["--ca", &other_ca]).err(&["authority that is trusted"]);
    at(&url, &[]).err(&["authority", "--ca FILE"]);
    at(&url, &["--ca", "server.key"]).err(&["`server.key`", "PEM"]);
    at(&url, &["--ca", "gone"]).err(&["cannot read `gone`"]);
    for (name, why) in
        [("past", "has expired"), ("future", "not valid yet"), ("named", "limits.example")]
    {
        let folder = new_folder();
        for file in ["ca.crt", &format!("{name}.crt"), &format!("{name}.key")] {
            fs::copy(daemon.folder.join(file), folder.join(file)).unwrap();
        }
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        let flags = ["--tls-cert", &cert, "--tls-key", &key];
        let daemon = Daemon::start(folder, &[&flags[..], &tokens].concat());
        let at = ["--at", &daemon.https(), "--token-file", "ops", "--ca", "ca.crt"];
        daemon.run(&STATUS, &at).with(2).silent_out().err(&["the certificate of", why, "hint"]);
    }
}

#[test]
fn a_daemon_with_a_client_ca_needs_a_certificate_of_it() {
    let (folder, authority) = folder_with_certificates();
    let other = Authority::new("another authority");
    copy(&other.issue("operator").write(), &folder, "other");
    let past = authority.issue("operator").valid("20200101000000Z", "20200102000000Z");
    copy(&past.write(), &folder, "past");
    let daemon = Daemon::start(folder, &[&TLS[..], &["--tls-client-ca", "ca.crt"]].concat());
    let url = daemon.https();
    let at =
        |more: &[&str]| daemon.run(&STATUS, &[&["--at", &url, "--ca", "ca.crt"], more].concat());
    at(&[]).with(2).silent_out().err(&["client certificate", "--cert FILE --key FILE"]);
    for name in ["other", "past"] {
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        at(&["--cert", &cert, "--key", &key]).with(2).silent_out().err(&["--cert"]);
    }
    at(&["--cert", "client.crt"]).with(2).err(&["`client.crt` has no key", "--key FILE"]);
    at(&["--key", "client.key"]).with(2).err(&["--cert FILE"]);
    at(&["--cert", "client.crt", "--key", "server.key"]).with(2).err(&["is not the key of"]);
    let _ = at(&["--cert", "client.crt", "--key", "client.key"]).with(0);
    let file = |name: &str| fs::read_to_string(daemon.folder.join(name)).unwrap();
    let both = daemon.folder.join("both.pem");
    fs::write(&both, file("client.crt") + &file("client.key")).unwrap();
    fs::set_permissions(&both, Permissions::from_mode(0o640)).unwrap();
    at(&["--cert", "both.pem"]).with(0).err(&["warning: other users may read the key `both.pem`"]);
}

#[test]
fn tls_and_plain_text_are_told_apart() {
    let (folder, _authority) = folder_with_certificates();
    let secure = Daemon::start(folder, &[&TLS[..], &["--tokens", "tokens.toml"]].concat());
    let at = ["--at", &secure.http(), "--token-file", "ops"];
    secure.run(&STATUS, &at).with(2).silent_out().err(&["speaks TLS", "https://"]);
    let ping = ["ping", "--at", &secure.http()];
    secure.run(&ping, &[]).with(1).silent_out().err(&["speaks TLS", "https://"]);
    let plain = Daemon::start(new_folder(), &["--tokens", "tokens.toml"]);
    let at = ["--at", &plain.https(), "--token-file", "ops", "--ca", "ca.crt"];
    secure.run(&STATUS, &at).with(2).silent_out().err(&["TLS", "http:// is for daemons on this"]);
}

#[test]
fn nothing_at_the_address_is_reported_with_a_hint() {
    let folder = new_folder();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = format!("http://{free}");
    status(&folder, &["--at", &at]).with(2).silent_out().err(&["refused", "--admin ADDRESS"]);
    let at = ["--at", "http://nowhere.invalid:9090"];
    status(&folder, &at).with(2).err(&["cannot find the host `nowhere.invalid`"]);
    for at in ["localhost:9090", "ftp://localhost", "https://"] {
        status(&folder, &["--at", at]).with(2).err(&["https://HOST:PORT"]);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The URL of a server that sends the same to every client.
fn server(response: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&response);
        }
    });
    url
}

#[test]
fn other_servers_are_not_taken_for_a_daemon() {
    let folder = new_folder();
    let http = |status: &str, kind: &str, body: &str| {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}");
        format!("{head}\r\nconnection: close\r\n\r\n{body}").into_bytes()
    };
    for (response, why) in [
        (http("200 OK", "text/html", "<html>Log in</html>"), "200 OK, text/html"),
        (http("502 Bad Gateway", "text/html", "<html>"), "502 Bad Gateway, text/html"),
        (http("200 OK", "application/json", "{"), "is not a daemon's"),
        (http("302 Found", "", ""), "302 Found"),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "is not HTTP/1.1"),
        (b"\x15\x03\x03\0\x02\x02\x46".to_vec(), "is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec(), "is incomplete"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 268435457\r\n\r\n".to_vec(), "more than 268435456"),
        (vec![], "closed the connection without a response"),
    ] {
        let url = server(response);
        status(&folder, &["--at", &url]).with(2).silent_out().err(&[why]);
        let _ = tidegate(&folder, &["ping", "--at", &url]).with(1).silent_out().err(&[why]);
    }
    fs::remove_dir_all(folder).unwrap();
}
