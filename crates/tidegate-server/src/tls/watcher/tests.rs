use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tidegate::policy::{Policy, TlsSettings};
use tidegate_redis_servers::{Authority, Certificate};

use super::*;

fn settings(folder: &Path) -> TlsSettings {
    let text = format!(
        "[server.tls]\ncert = '{0}/tls.crt'\nkey = '{0}/tls.key'\n[[rule]]\nname = 'n'\ncooldown = '1s'",
        folder.display()
    );
    Policy::parse("policy.toml", text.as_bytes()).unwrap().server.tls().clone()
}

/// The TLS of files in a folder.
fn watched(folder: &Path) -> WatchedTls {
    let paths = TlsPaths::of(Listener::Http, &Default::default(), &settings(folder));
    WatchedTls::load(Listener::Http, paths.unwrap().unwrap(), Duration::from_secs(1)).unwrap()
}

/// Replaces a file, as most programs do.
fn put(from: &Path, to: &Path) {
    let new = to.with_extension("new");
    fs::copy(from, &new).unwrap();
    fs::rename(new, to).unwrap();
}

fn install(certificate: &Certificate, folder: &Path) {
    put(&certificate.path, &folder.join("tls.crt"));
    put(&certificate.key, &folder.join("tls.key"));
}

/// When the certificate in force expires.
fn expiry(watched: &WatchedTls) -> i64 {
    watched.tls.config().expires_at()
}

/// Polls until nothing is pending.
fn settle(watched: &WatchedTls) {
    for _ in 0..=ODD_POLLS_MAX {
        if !watched.poll() {
            return;
        }
    }
    panic!("the files should be loaded or rejected by now");
}

fn counts(watched: &WatchedTls) -> (u64, u64) {
    let status = watched.status();
    (status.ok, status.failed)
}

/// Certificates that expire at different times.
struct Scene {
    authority: Authority,
    first: Certificate,
    second: Certificate,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new("ca");
        let first = authority.issue("a").valid("20200101000000Z", "20700101000000Z").write();
        let second = authority.issue("b").valid("20200101000000Z", "20800101000000Z").write();
        Self { authority, first, second }
    }

    fn folder(&self) -> std::path::PathBuf {
        let folder = self.authority.folder().join("tls");
        fs::create_dir(&folder).unwrap();
        folder
    }
}

const Y2070: i64 = 3_155_760_000;
const Y2080: i64 = 3_471_292_800;

#[test]
fn new_files_are_loaded_once_two_polls_have_found_them() {
    let scene = Scene::new();
    let folder = scene.folder();
    install(&scene.first, &folder);
    let watched = watched(&folder);
    for _ in 0..5 {
        assert!(!watched.poll());
    }
    install(&scene.second, &folder);
    assert!(watched.poll(), "found once");
    assert_eq!(expiry(&watched), Y2070);
    assert!(!watched.poll(), "found twice");
    assert_eq!((expiry(&watched), counts(&watched)), (Y2080, (1, 0)));
}

#[test]
fn files_may_change_one_after_the_other() {
    let scene = Scene::new();
    let folder = scene.folder();
    install(&scene.first, &folder);
    let watched = watched(&folder);
    put(&scene.second.path, &folder.join("tls.crt"));
    for _ in 0..ODD_POLLS_MAX / 2 {
        assert!(watched.poll(), "the key may follow");
    }
    assert_eq!((watched.problem(), expiry(&watched)), (None, Y2070));
    put(&scene.second.key, &folder.join("tls.key"));
    settle(&watched);
    assert_eq!((expiry(&watched), counts(&watched)), (Y2080, (1, 0)));
}

#[test]
fn a_bad_file_keeps_the_previous_one_in_force_until_it_is_good_again() {
    let scene = Scene::new();
    let folder = scene.folder();
    install(&scene.first, &folder);
    let watched = watched(&folder);
    let file = folder.join("tls.crt");
    for (bad, expected) in [
        (fs::read(&scene.second.path).unwrap(), "tls.key: the private key is not that of the"),
        (b"nonsense".to_vec(), "tls.crt: the certificate cannot be used: it has no `BEGIN"),
        (vec![b'a'; (1 << 20) + 1], "tls.crt: it has more than 1048576 bytes"),
    ] {
        let failed = counts(&watched).1;
        fs::write(&file, bad).unwrap();
        settle(&watched);
        let problem = watched.problem().unwrap();
        assert!(problem.starts_with("the previous certificate of http is in force: "), "{problem}");
        assert!(problem.contains(expected), "{problem}");
        assert_eq!((expiry(&watched), counts(&watched)), (Y2070, (0, failed + 1)));
        settle(&watched);
        assert_eq!(counts(&watched), (0, failed + 1), "the same error is counted once");
    }
    fs::remove_file(&file).unwrap();
    settle(&watched);
    assert!(watched.problem().unwrap().contains("tls.crt: No such file"));
    install(&scene.second, &folder);
    settle(&watched);
    assert_eq!((watched.problem(), expiry(&watched)), (None, Y2080));
    assert_eq!(counts(&watched), (1, 4));
}

#[test]
fn the_same_file_after_a_bad_one_is_good_again() {
    let scene = Scene::new();
    let folder = scene.folder();
    install(&scene.first, &folder);
    let watched = watched(&folder);
    for bad in [None, Some("nonsense")] {
        match bad {
            None => fs::remove_file(folder.join("tls.key")).unwrap(),
            Some(text) => fs::write(folder.join("tls.key"), text).unwrap(),
        }
        settle(&watched);
        assert!(watched.problem().is_some());
        install(&scene.first, &folder);
        settle(&watched);
        settle(&watched);
        assert_eq!(watched.problem(), None, "{bad:?}");
    }
}

/// A mounted secret is a link to a link to a folder, and the middle one moves.
#[test]
fn the_links_of_kubernetes_are_followed() {
    let scene = Scene::new();
    let folder = scene.folder();
    for (name, certificate) in [("..1", &scene.first), ("..2", &scene.second)] {
        fs::create_dir(folder.join(name)).unwrap();
        install(certificate, &folder.join(name));
    }
    symlink("..1", folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(file), folder.join(file)).unwrap();
    }
    let watched = watched(&folder);
    for _ in 0..5 {
        assert!(!watched.poll());
    }
    symlink("..2", folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    settle(&watched);
    assert_eq!((expiry(&watched), counts(&watched)), (Y2080, (1, 0)));
}

#[test]
fn a_key_that_others_can_read_is_noticed_by_its_mode() {
    let scene = Scene::new();
    let folder = scene.folder();
    install(&scene.first, &folder);
    let watched = watched(&folder);
    for (mode, is_exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(folder.join("tls.key"), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(watched.paths.is_key_exposed(), is_exposed, "{mode:o}");
    }
}

#[test]
fn an_expired_certificate_is_loaded_and_reported() {
    let authority = Authority::new("ca");
    let folder = authority.folder().join("tls");
    fs::create_dir(&folder).unwrap();
    install(&authority.issue("a").valid("20200101000000Z", "20210101000000Z").write(), &folder);
    let watched = watched(&folder);
    assert!(watched.expires_in_secs() < 0);
    assert_eq!(watched.problem().unwrap(), "the certificate of http has expired");
}
