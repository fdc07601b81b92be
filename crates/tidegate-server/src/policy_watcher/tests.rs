use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate::policy::{Listen, LoadError, Parsed, Policy, YamlOptions};
use tidegate::{Edit, StoreEngine, Timestamp};
use tidegate_listen::ShutdownTrigger;

use super::{PendingReload, PolicyWatcher, ReloadTarget};
use crate::daemon::{Daemon, Readiness};
use crate::reload::FileSettings;
use crate::settings::Settings;

/// A policy file in a folder of its own, a daemon that was started with it, and a watcher.
struct Scene {
    folder: PathBuf,
    daemon: Daemon,
    watcher: PolicyWatcher,
    now: Timestamp,
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("tgw-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let path = folder.join("policy.toml");
        fs::write(&path, policy(1)).unwrap();
        let first = Policy::from_toml(&policy(1)).unwrap();
        let engine = StoreEngine::new(first.clone());
        let daemon = Daemon::new(
            engine,
            Settings::on_free_ports(Parsed::from_code(first)).policy_path(&path),
        );
        let mut scene =
            Self { folder, daemon, watcher: PolicyWatcher::new(path), now: Timestamp::default() };
        scene.poll(2);
        scene
    }

    fn target(&self) -> ReloadTarget {
        let Daemon { engine, settings, reload, .. } = &self.daemon;
        ReloadTarget { engine: engine.clone(), settings: settings.clone(), reload: reload.clone() }
    }

    /// The readiness of the daemon, which is not stopping.
    fn readiness(&self) -> Readiness {
        self.daemon.readiness(&ShutdownTrigger::new().signal())
    }

    fn file(&self) -> PathBuf {
        self.folder.join("policy.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    fn poll(&mut self, times: usize) {
        for _ in 0..times {
            self.now = self.now.saturating_add(self.watcher.poll_after());
            let pending = self.watcher.poll_file(&self.target(), self.now);
            self.load(pending);
        }
    }

    fn load(&self, pending: Option<PendingReload>) {
        if let Some(pending) = pending {
            let parsed = Policy::load_files_with(&pending.files, YamlOptions::default());
            pending.finish(&self.target(), parsed.map_err(LoadError::Invalid));
        }
    }

    fn reload(&mut self) {
        let pending = self.watcher.read(&self.target());
        self.load(pending);
    }

    /// The number in the policy in force.
    fn max(&self) -> u64 {
        let text = self.daemon.engine.policy().to_toml();
        let (_, after) = text.split_once("max = ").unwrap();
        after.split(',').next().unwrap().parse().unwrap()
    }

    /// Reloads that succeeded and failed, and whether the file has errors now.
    fn status(&self) -> (u64, u64, bool) {
        let status = self.daemon.reload.status();
        (status.ok, status.failed, status.error.is_some())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn policy(max: u64) -> String {
    format!("[[rule]]\nname = 'all'\nwindow = {{ max = {max}, per = '1h' }}\n")
}

#[test]
fn the_file_of_the_start_is_not_reloaded() {
    let mut scene = Scene::new();
    scene.poll(5);
    assert_eq!((scene.max(), scene.status()), (1, (0, 0, false)));
    assert!(scene.daemon.audit.since(0).is_empty());
    assert!(scene.daemon.reload.status().last_ok.is_some());
}

#[test]
fn a_change_is_in_force_after_two_equal_polls() {
    let mut scene = Scene::new();
    scene.write(&policy(2));
    scene.poll(1);
    assert_eq!(scene.max(), 1, "it may be half written");
    scene.poll(1);
    assert_eq!((scene.max(), scene.status()), (2, (1, 0, false)));
    let changes = scene.daemon.audit.since(0);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].to_json()["actor"], "file");
    scene.poll(5);
    assert_eq!(scene.status(), (1, 0, false), "it is loaded once");
}

#[test]
fn a_half_written_file_is_not_loaded() {
    let mut scene = Scene::new();
    let whole = format!("{}\n# {}", policy(3), "x".repeat(100));
    for end in [10, 30, 55, whole.len()] {
        scene.write(&whole[..end]);
        scene.poll(1);
        assert_eq!((scene.max(), scene.status()), (1, (0, 0, false)), "{end}");
    }
    scene.poll(1);
    assert_eq!((scene.max(), scene.status()), (3, (1, 0, false)));
}

#[test]
fn it_does_not_matter_how_the_file_is_replaced() {
    let mut scene = Scene::new();
    // Editors and deployments rename another file over it, next to swap files.
    let other = scene.folder.join(".policy.toml.swp");
    fs::write(&other, policy(4)).unwrap();
    scene.poll(2);
    assert_eq!(scene.max(), 1, "a swap file is not the policy");
    fs::rename(&other, scene.file()).unwrap();
    scene.poll(2);
    assert_eq!(scene.max(), 4);
    // It is moved away, and another one is written.
    fs::rename(scene.file(), scene.folder.join("policy.toml~")).unwrap();
    scene.poll(1);
    scene.write(&policy(5));
    scene.poll(2);
    assert_eq!((scene.max(), scene.status()), (5, (2, 0, false)));
    // A link is replaced, as Kubernetes does with its files.
    link(&scene, "a", 6);
    scene.poll(2);
    assert_eq!(scene.max(), 6);
    link(&scene, "b", 7);
    scene.poll(2);
    assert_eq!((scene.max(), scene.status()), (7, (4, 0, false)));
}

fn link(scene: &Scene, name: &str, max: u64) {
    let target = scene.folder.join(name);
    fs::write(&target, policy(max)).unwrap();
    let link = scene.folder.join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    fs::rename(&link, scene.file()).unwrap();
}

#[test]
fn a_file_with_errors_changes_nothing_and_is_reported_once() {
    let mut scene = Scene::new();
    scene.write("[[rule]]\nname = 'all'\nwindow = { max = 0, per = '1h' }\n");
    scene.poll(5);
    assert_eq!((scene.max(), scene.status()), (1, (0, 1, true)));
    let status = scene.daemon.reload.status();
    let error = status.error.as_deref().unwrap();
    assert!(error.contains("policy.toml:3:"), "{error}");
    assert!(error.lines().count() > 1 && !status.short_error().unwrap().contains('\n'));
    let readiness = scene.readiness();
    assert!(readiness.ready, "the previous policy is in force");
    assert!(readiness.policy.unwrap().contains("policy.toml:3:"));
    assert!(scene.daemon.metrics_text().contains("tidegate_policy_is_current 0\n"));
    assert!(
        scene
            .daemon
            .metrics_text()
            .contains("tidegate_policy_reloads_total{outcome=\"failed\"} 1\n")
    );
    // The first content again: no change, and no error any more.
    scene.write(&policy(1));
    scene.poll(2);
    assert_eq!((scene.max(), scene.status()), (1, (1, 1, false)));
    assert!(scene.daemon.metrics_text().contains("tidegate_policy_is_current 1\n"));
    assert_eq!(scene.readiness().policy, None);
}

#[test]
fn unreadable_files_change_nothing() {
    let mut scene = Scene::new();
    let wrongs: [&[u8]; 5] = [b"", b"\xff\xfe", b"[[rule]", b"rules:\n- a", &[b'#'; 17 << 20]];
    for (number, wrong) in (1..).zip(wrongs) {
        fs::write(scene.file(), wrong).unwrap();
        scene.poll(2);
        assert_eq!((scene.max(), scene.status()), (1, (0, number, true)), "{number}");
    }
}

#[test]
fn a_missing_file_changes_nothing() {
    let mut scene = Scene::new();
    fs::remove_file(scene.file()).unwrap();
    scene.poll(1);
    assert_eq!(scene.status(), (0, 0, false), "it may be in the middle of a replacement");
    scene.poll(4);
    assert_eq!((scene.max(), scene.status()), (1, (0, 1, true)));
    // A folder without policies in its stead has errors, too.
    fs::create_dir(scene.file()).unwrap();
    scene.poll(2);
    assert_eq!((scene.max(), scene.status()), (1, (0, 2, true)));
    fs::remove_dir(scene.file()).unwrap();
    scene.write(&policy(2));
    scene.poll(2);
    assert_eq!((scene.max(), scene.status()), (2, (1, 2, false)));
}

#[test]
fn a_change_with_the_same_stamp_is_found_while_the_file_is_new() {
    let mut scene = Scene::new();
    scene.write(&policy(2));
    scene.poll(2);
    let before = fs::metadata(scene.file()).unwrap().modified().unwrap();
    // The same length, in the same tick of the clock.
    scene.write(&policy(3));
    let file = fs::File::options().write(true).open(scene.file()).unwrap();
    file.set_modified(before).unwrap();
    scene.poll(2);
    assert_eq!(scene.max(), 3);
}

#[test]
fn a_requested_reload_puts_the_file_into_force_again() {
    let mut scene = Scene::new();
    let _ = scene.daemon.engine.edit("ada", Edit::policy(Policy::from_toml(&policy(9)).unwrap()));
    scene.poll(5);
    assert_eq!(scene.max(), 9, "the policy of the admin API stays while the file does not change");
    scene.reload();
    assert_eq!((scene.max(), scene.status()), (1, (1, 0, false)));
    scene.write("nonsense");
    scene.reload();
    scene.poll(3);
    assert_eq!((scene.max(), scene.status()), (1, (1, 1, true)));
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let mut scene = Scene::new();
    let server = "[server]\nhttp = '127.0.0.1:1'\ntokens = 'x'\nunmatched = 'deny'\n";
    scene.write(&format!("{server}{}", policy(2)));
    scene.poll(2);
    assert_eq!(scene.daemon.reload.status().needs_restart, ["http", "tokens"]);
    assert_eq!(scene.readiness().needs_restart, ["http", "tokens"]);
    scene.write(&policy(2));
    scene.poll(2);
    assert!(scene.daemon.reload.status().needs_restart.is_empty());
}

/// The engine's policy stays equal; the daemon knows the settings all the same.
#[test]
fn a_file_with_other_settings_for_the_daemon_alone_is_loaded() {
    let mut scene = Scene::new();
    scene.poll(2);
    let (loaded, changes) = (scene.status().0, scene.daemon.audit.last());
    assert!(scene.daemon.file_settings().http().is_none());
    scene.write(&format!("[server]\nhttp = '127.0.0.1:1'\n{}", policy(1)));
    scene.poll(2);
    assert_eq!(scene.status(), (loaded + 1, 0, false));
    assert_eq!(scene.daemon.file_settings().http(), Some(&Listen::At("127.0.0.1:1".into())));
    assert_eq!(scene.daemon.reload.status().needs_restart, ["http"]);
    assert_eq!(scene.daemon.audit.last(), changes, "nothing else came into force");
    scene.write("[[rule]]\n");
    scene.poll(2);
    assert!(scene.daemon.file_settings().http().is_some(), "those of the policy in force");
    scene.write(&policy(1));
    scene.poll(2);
    assert!(scene.daemon.file_settings().http().is_none());
}

/// The first poll finds a file that has changed since the start, if only in these settings.
#[test]
fn settings_that_changed_before_the_first_poll_are_noticed() {
    let mut scene = Scene::new();
    scene.watcher = PolicyWatcher::new(scene.folder.join("policy.toml"));
    scene.write(&format!("[server]\nheaders = 'none'\n{}", policy(1)));
    scene.poll(2);
    assert_eq!(scene.daemon.file_settings().headers(), Some("none"));
    assert_eq!(scene.daemon.reload.status().needs_restart, ["headers"]);
}

#[test]
fn a_file_that_is_rewritten_every_second_is_loaded() {
    let mut scene = Scene::new();
    for second in 2..10 {
        scene.write(&policy(second));
        scene.poll(1);
        let wait = scene.watcher.poll_after();
        assert!(wait < std::time::Duration::from_secs(1), "it is polled again before the next");
        scene.poll(1);
        assert_eq!(scene.max(), second);
    }
    assert_eq!(scene.status(), (8, 0, false));
}

#[test]
fn a_file_that_never_rests_is_not_current() {
    let mut scene = Scene::new();
    let is_current = |scene: &Scene| scene.daemon.reload.status().is_current();
    for number in 0..50 {
        assert!(is_current(&scene), "{number}");
        scene.write(&policy(100 + number));
        scene.poll(1);
    }
    scene.write(&policy(2));
    scene.poll(1);
    assert!(!is_current(&scene) && scene.max() == 1);
    let error = scene.daemon.reload.status().short_error().unwrap();
    assert!(error.contains("keeps changing"), "{error}");
    scene.poll(1);
    assert!(is_current(&scene) && scene.max() == 2);
    // The old content comes back, without a load.
    for number in 0..60 {
        scene.write(&policy(200 + number));
        scene.poll(1);
    }
    assert!(!is_current(&scene));
    scene.write(&policy(2));
    scene.poll(1);
    assert!(is_current(&scene));
}

#[test]
fn every_setting_is_known_to_be_live_or_to_need_a_restart() {
    // All settings, each with a value that is not the default.
    let settings = [
        ("http", "'127.0.0.1:1'"),
        ("grpc", "'off'"),
        ("resp", "'off'"),
        ("unix", "'/x'"),
        ("admin", "'off'"),
        ("tls", "{ cert = 'x', key = 'y' }"),
        ("tokens", "'x'"),
        ("access", "'open'"),
        ("hosts", "['x']"),
        ("unix_users", "['root']"),
        ("unix_groups", "['root']"),
        ("unix_user_rate", "'1/s'"),
        ("unix_rate", "'1/s'"),
        ("headers", "'none'"),
        ("user_header", "'x-user'"),
        ("encoded_slash", "'keep'"),
        ("merge_domains", "true"),
        ("quota_mode", "true"),
        ("response_metadata", "true"),
        ("log_keys", "'hashed'"),
        ("max_connections", "5"),
        ("max_connections_per_peer", "5"),
        ("max_received_bytes", "5_000_000"),
        ("max_unsent_bytes", "5_000_000"),
        ("store", "'memory'"),
        ("store_namespace", "'shop'"),
        ("store_secret", "'0123456789abcdef'"),
        ("store_password", "'x'"),
        ("store_sentinel_user", "'x'"),
        ("store_sentinel_password", "'x'"),
        ("store_ca", "'x'"),
        ("store_cert", "'x'"),
        ("store_key", "'x'"),
        ("store_replicas", "1"),
        ("revision", "7"),
        ("store_deadline", "'20ms'"),
        ("trusted_proxies", "['10.0.0.0/8']"),
        ("max_keys", "5"),
        ("max_holds", "5"),
        ("max_idempotency_keys", "5"),
        ("when_full", "'deny'"),
        ("unmatched", "'deny'"),
        ("enforce", "'none'"),
    ];
    let parse = |text: &str| Policy::parse("policy.toml", text.as_bytes());
    let none = parse(&policy(1)).unwrap();
    for (name, value) in settings {
        let text = format!("[server]\n{name} = {value}\n{}", policy(1));
        let some = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_of_engine = none.policy.settings() != some.policy.settings();
        assert_eq!(none.server == some.server, is_of_engine, "{name} is in one of both");
        let is_live =
            ["unmatched", "enforce", "merge_domains", "quota_mode", "revision"].contains(&name);
        let expected: &[&str] = if is_live { &[] } else { &[name] };
        let [none, some] = [&none, &some]
            .map(|it| FileSettings { engine: it.policy.settings(), server: &it.server });
        assert_eq!(crate::policy_watcher::needs_restart(none, some), expected);
    }
    let schema: serde_json::Value = serde_json::from_str(&tidegate::policy::schema()).unwrap();
    let known = schema["properties"]["server"]["properties"].as_object().unwrap();
    let mut known: Vec<_> = known.keys().map(String::as_str).collect();
    let mut listed: Vec<_> = settings.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, known);
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let error = crate::load(Path::new("/nowhere/policy.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nowhere/policy.toml: "), "{error}");
}
