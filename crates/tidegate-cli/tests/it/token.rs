//! `tidegate token`: tokens that are added, listed and revoked.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-token-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env_remove("TIDEGATE_TOKENS").arg("token").args(arguments).current_dir(&self.0);
        command.output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let listed = self.run(&["list", "--format", "json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let tokens = listed["tokens"].as_array().unwrap();
        tokens.iter().map(|token| token["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_secret_is_printed_once_and_stored_nowhere() {
    let folder = Folder::new("new");
    let added = folder.run(&["new", "gateway", "--scope", "check,read", "--attr", "customer=acme"]);
    assert_eq!(added.status.code(), Some(0), "{added:?}");
    let secret = text(&added.stdout).trim().to_owned();
    assert!(secret.starts_with("tg_") && secret.len() == 46, "{secret}");
    let path = folder.0.join("tokens.toml");
    let stored = fs::read_to_string(&path).unwrap();
    assert!(
        !stored.contains(&secret) && stored.contains(r#"{ "customer" = ["acme"] }"#),
        "{stored}"
    );
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!text(&folder.run(&["list"]).stdout).contains(&secret));
    for wrong in [
        &["new", "a b", "--scope", "check"][..],
        &["new", "x", "--scope", "check", "--limit", "0/s"],
    ] {
        assert_eq!(folder.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), stored, "nothing is changed by an error");
}

#[test]
fn revoking_removes_what_it_says_or_nothing() {
    let folder = Folder::new("revoke");
    for name in ["a", "b", "a"] {
        assert!(folder.run(&["new", name, "--scope", "check"]).status.success());
    }
    assert_eq!(folder.run(&["revoke", "c"]).status.code(), Some(1));
    assert_eq!(folder.run(&["revoke", "a", "--sha256", ""]).status.code(), Some(1), "two of them");
    assert_eq!(folder.names(), ["a", "b", "a"]);
    assert_eq!(folder.run(&["revoke", "a"]).status.code(), Some(0));
    assert_eq!(folder.names(), ["b"]);
    // A form that is not edited.
    let path = folder.0.join("tokens.toml");
    let token = |name: &str, user: u32| {
        format!("{{ name = '{name}', user = 'uid:{user}', scopes = ['check'] }}")
    };
    let inline = format!("token = [{}, {}]\n", token("a", 1), token("b", 2));
    fs::write(&path, &inline).unwrap();
    let refused = folder.run(&["revoke", "a"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("by hand"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), inline);
}

#[test]
fn the_file_keeps_its_owner_and_mode() {
    let folder = Folder::new("owner");
    assert!(folder.run(&["new", "a", "--scope", "check"]).status.success());
    let path = folder.0.join("tokens.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Root may give a file away; for others it stays theirs.
    let _ = chown(&path, Some(20_001), Some(20_002));
    let facts = || fs::metadata(&path).map(|it| (it.uid(), it.gid(), it.mode() & 0o777)).unwrap();
    let before = facts();
    assert!(folder.run(&["new", "b", "--scope", "check"]).status.success());
    assert_eq!(facts(), before);
}
