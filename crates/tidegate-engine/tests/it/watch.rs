//! A policy file that is watched by a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::policy::{Policy, ReloadError};
use tidegate::{Engine, Request};

struct PolicyPath(PathBuf);

impl PolicyPath {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-watch-{name}-{}.toml", std::process::id());
        let path = Self(std::env::temp_dir().join(name));
        path.write(&policy(2));
        path
    }

    fn write(&self, text: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &self.0).unwrap();
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PolicyPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn policy(max: u64) -> String {
    format!("[[rule]]\nname = 'all'\nwindow = {{ max = {max}, per = '1h' }}\n")
}

#[test]
fn changes_are_applied_and_errors_change_nothing() {
    let file = PolicyPath::new("changes");
    let engine = Engine::open(file.path()).unwrap();
    let request = Request::new("default", &[]);
    assert!(engine.check(&request).unwrap().is_allowed());
    let (sender, reloads) = mpsc::channel();
    let watcher = engine
        .watch(file.path(), move |reload| {
            let text = match reload {
                Ok(changes) => changes.len().to_string(),
                Err(error @ ReloadError::Load(_)) => error.to_string(),
                Err(error) => format!("rejected: {error}"),
            };
            sender.send(text).unwrap();
        })
        .unwrap();
    let next = || reloads.recv_timeout(Duration::from_secs(60)).expect("a reload");
    file.write(&policy(5));
    assert_eq!(next(), "1", "the file of the start was no change");
    assert_eq!(engine.peek(&request).unwrap().remaining(), Some(4), "the charge stays");
    file.write("[[rule]]\nname = 'all'\nwindw = 3\n");
    assert!(next().contains("windw"));
    assert_eq!(*engine.policy(), Policy::from_toml(&policy(5)).unwrap());
    fs::remove_file(file.path()).unwrap();
    assert!(next().starts_with("cannot read"));
    file.write(&policy(6));
    assert_eq!(next(), "1");
    drop(watcher);
    assert!(reloads.try_recv().is_err(), "its thread has ended");
}

#[test]
fn a_policy_that_cannot_be_opened_says_why() {
    let error = Engine::open("/nonexistent/policy.toml").unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nonexistent/policy.toml: "), "{error}");
    let file = PolicyPath::new("invalid");
    file.write("[[rule]]\nname = 'all'\nwindow = { max = 0, per = '1h' }\n");
    let error = Engine::open(file.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("{}:3", file.path().display())), "{error}");
}
