//! The policy file of a running daemon.

use std::fs;

use serde_json::{Value, json};
use tidegate_server::load;

use crate::running::{Folder, POLICY, Running, until};

fn started() -> (Running, std::path::PathBuf) {
    let folder = Folder::new();
    let path = folder.path().join("policy.toml");
    fs::write(&path, POLICY).unwrap();
    assert_eq!(load(&path).unwrap().policy.rules().len(), 1);
    let running = Running::start_in(folder, POLICY, |it| it.policy_path(&path)).unwrap();
    (running, path)
}

fn status(running: &Running) -> Value {
    running.admin_ok("GET", "/admin/v1/status", "")["reload"].clone()
}

#[test]
pub(crate) fn a_changed_file_is_reloaded_and_one_with_errors_is_not() {
    let (running, path) = started();
    let mut caller = running.caller();
    let check = json!({ "type": "check", "attributes": { "user": "ada" } });
    assert!(caller.ask(&check)["allowed"] == true && caller.ask(&check)["allowed"] == true);
    assert_eq!(caller.ask(&check)["allowed"], false);
    let next = path.with_extension("next");
    fs::write(&next, POLICY.replace("max = 2", "max = 3")).unwrap();
    fs::rename(&next, &path).unwrap();
    until("the new file is in force", || status(&running)["ok"] == 1);
    assert_eq!(caller.ask(&check)["allowed"], true, "what was consumed stays consumed");
    assert_eq!(caller.ask(&check)["allowed"], false);
    fs::write(&path, POLICY.replace("max = 2", "max = 0")).unwrap();
    until("the errors are reported", || status(&running)["failed"] == 1);
    let readiness = running.ask("GET", "/readyz", "").with(200).json();
    assert!(readiness["policy"].as_str().unwrap().contains("policy.toml:5:"), "{readiness}");
    let metrics = running.ask("GET", "/metrics", "").with(200).body;
    assert!(metrics.contains("\ntidegate_policy_is_current 0\n"), "{metrics}");
    assert_eq!(caller.ask(&check)["limit"], 3, "the previous policy");
    let audit = running.admin_ok("GET", "/admin/v1/audit", "");
    assert_eq!(audit["changes"][0]["actor"], "file");
    assert_eq!(audit["changes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_requested_reload_loads_the_file_at_once() {
    let (running, path) = started();
    let put = POLICY.replace("max = 2", "max = 9");
    let reply = running.admin_ok("PUT", "/admin/v1/policy", &put);
    assert_eq!(reply["until"], "the policy file changes, or the daemon restarts");
    let is_current = |is: bool| {
        let metrics = running.ask("GET", "/metrics", "").with(200).body;
        metrics.contains(&format!("\ntidegate_policy_is_current {}\n", u8::from(is)))
    };
    until("the file was polled", || status(&running)["last_ok"].is_string());
    assert!(is_current(false) && status(&running)["replaced"] == true);
    let readiness = running.ask("GET", "/readyz", "").with(200).json();
    assert_eq!(readiness["policy"], "a policy from the admin API is in force");
    let policy = running.admin_ok("GET", "/admin/v1/policy", "");
    assert!(policy["policy"].as_str().unwrap().contains("max = 9"), "the file has not changed");
    running.server().reload();
    until("the file is in force again", || {
        let policy = running.admin_ok("GET", "/admin/v1/policy", "");
        policy["policy"].as_str().unwrap().contains("max = 2")
    });
    assert_eq!(running.admin_ok("GET", "/admin/v1/policy", "")["file"], path.to_str().unwrap());
    assert!(is_current(true) && status(&running)["replaced"] == false);
}
