use tidegate::policy::Policy;

use super::*;

fn settings(text: &str) -> TlsSettings {
    let text = format!("{text}\n[[rule]]\nname = 'n'\ncooldown = '1s'\n");
    Policy::parse("policy.toml", text.as_bytes()).unwrap().server.tls().clone()
}

fn flags(cert: &str, key: &str, client_ca: &str) -> TlsFlags {
    let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    TlsFlags { cert: path(cert), key: path(key), client_ca: path(client_ca) }
}

/// The files of a listener as a text.
fn text(listener: Listener, flags: &TlsFlags, file: &TlsSettings) -> String {
    match TlsPaths::of(listener, flags, file) {
        Ok(None) => "none".into(),
        Ok(Some(TlsPaths { cert, key, client_ca })) => {
            let ca = client_ca.unwrap_or_default();
            [cert, key, ca].map(|path| path.display().to_string()).join(" ").trim_end().into()
        }
        Err(error) => error.to_string().lines().next().unwrap().into(),
    }
}

#[test]
fn a_listeners_own_files_come_before_flags_and_flags_before_those_of_all() {
    let file = "[server.tls]\ncert = 'c'\nkey = 'k'\nclient_ca = 'a'\n\
                [server.tls.grpc]\ncert = 'gc'\nkey = 'gk'\n\
                [server.tls.resp]\nclient_ca = 'off'\n\
                [server.tls.admin]\noff = true\n";
    let (none, some) = (flags("", "", ""), flags("fc", "fk", "fa"));
    for (flags, file, expected) in [
        (&none, "", ["none", "none", "none", "none"]),
        (&none, file, ["c k a", "gc gk a", "c k", "none"]),
        (&some, file, ["fc fk fa", "gc gk fa", "fc fk", "none"]),
        (&some, "", ["fc fk fa"; 4]),
        (&none, "[server.tls.http]\ncert = 'c'\nkey = 'k'", ["c k", "none", "none", "none"]),
    ] {
        let file = settings(file);
        let listeners = [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin];
        assert_eq!(listeners.map(|it| text(it, flags, &file)), expected);
        assert_eq!(text(Listener::Unix, flags, &file), "none");
    }
}

#[test]
fn halves_of_what_tls_needs_are_errors() {
    let none = TlsSettings::default();
    for (flags, expected) in [
        (flags("c", "", ""), "the certificate has no key"),
        (flags("", "k", ""), "the key has no certificate"),
        (flags("", "", "a"), "there is an authority of clients, but no certificate of the daemon"),
    ] {
        assert_eq!(text(Listener::Http, &flags, &none), expected);
    }
    let error = TlsPaths::of(Listener::Http, &flags("c", "", ""), &none).unwrap_err();
    assert!(error.to_string().contains("= hint: set --tls-key"), "{error}");
}

#[test]
fn files_that_are_missing_too_large_or_no_files_are_named() {
    let read = |path: &str| read(Path::new(path)).unwrap_err().to_string();
    assert!(read("/nowhere/tls.crt").starts_with("cannot read /nowhere/tls.crt: No such file"));
    assert!(read("/tmp").starts_with("cannot read /tmp: it is not a file"));
    assert!(read("/dev/zero").starts_with("cannot read /dev/zero: it is not a file"));
}
