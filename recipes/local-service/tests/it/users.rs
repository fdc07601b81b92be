//! Real users, identified by the kernel.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Folder, InProcess, Running, can_be_others, cleared, copy_of_the_command, ping_as, pongs,
    responses,
};

/// Ids that no system assigns.
const ADA: u32 = 20_001;
const GRACE: u32 = 20_002;
const EDSGER: u32 = 20_003;
const ALAN: u32 = 20_004;

#[test]
fn each_user_has_a_budget_and_its_processes_share_it() {
    if !can_be_others() {
        return;
    }
    let server = InProcess::usual();
    assert_eq!(pongs(&ping_as(&server.folder, ADA, ADA, 6)), 6);
    let second = ping_as(&server.folder, ADA, ADA, 6);
    assert_eq!(pongs(&second), 4, "another process is the same user");
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(pongs(&ping_as(&server.folder, ADA, GRACE, 6)), 0, "so is another group");
    assert_eq!(pongs(&ping_as(&server.folder, GRACE, GRACE, 20)), 10);
    assert_eq!(server.call().pings(20), 10, "root has a separate budget");
    let last = ping_as(&server.folder, EDSGER, EDSGER, 1);
    assert_eq!(responses(&last)[0]["limit"], "global");
    server.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(pongs(&ping_as(&server.folder, EDSGER, EDSGER, 20)), 10);
}

#[test]
fn default_access_is_root_and_the_services_own_user() {
    if !can_be_others() {
        return;
    }
    // The file lets all users connect, so that the access list decides.
    let mut running = Running::start(&["--mode", "0666"]);
    let denied = ping_as(&running.folder, ADA, ADA, 1);
    assert!(responses(&denied)[0]["error"].as_str().unwrap().starts_with("Access denied"));
    assert_eq!(denied.status.code(), Some(1));
    assert!(running.call().ping());
    running.wait_for(&format!("Access denied for client: uid:{ADA}"), 1);

    // A service of Ada's: for her and root, but not for Grace.
    let folder = Folder::new();
    std::os::unix::fs::chown(folder.path(), Some(ADA), Some(ADA)).unwrap();
    let mut command = cleared(Command::new("setpriv"));
    command.args(["--reuid=20001", "--regid=20001", "--clear-groups"]);
    command.arg(copy_of_the_command(&folder));
    running = Running::start_in(folder, command, &["--mode", "0666"]);
    assert_eq!(pongs(&ping_as(&running.folder, ADA, ADA, 1)), 1);
    assert_eq!(pongs(&ping_as(&running.folder, GRACE, GRACE, 1)), 0);
    assert!(running.call().ping());
}

#[test]
fn default_mode_excludes_other_users() {
    if !can_be_others() {
        return;
    }
    let running = Running::start(&[]);
    let denied = ping_as(&running.folder, ADA, ADA, 1);
    assert_eq!(denied.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&denied.stderr).contains("Permission denied"));
}

#[test]
fn listed_users_and_groups_are_served() {
    if !can_be_others() {
        return;
    }
    let running =
        Running::start(&["--allow-user", "uid:20001", "--allow-group", "gid:30000,gid:30001"]);
    assert_eq!(pongs(&ping_as(&running.folder, ADA, ADA, 1)), 1);
    assert_eq!(pongs(&ping_as(&running.folder, GRACE, 30_001, 1)), 1);
    assert_eq!(pongs(&ping_as(&running.folder, GRACE, GRACE, 1)), 0);
    assert!(!running.call().ping(), "root is not on this list");
}

#[test]
fn one_warning_per_denial_and_none_per_success() {
    if !can_be_others() {
        return;
    }
    let running = Running::start(&["--allow-everybody"]);
    assert_eq!(pongs(&ping_as(&running.folder, ADA, ADA, 13)), 10);
    let line = format!("Rate limit exceeded for client: uid:{ADA}");
    running.wait_for(&line, 3);
    let (status, log) = running.stop(nix::sys::signal::Signal::SIGTERM);
    assert!(status.success());
    assert_eq!(log.iter().filter(|it| it.contains(" WARN ")).count(), 3, "{log:#?}");
    assert_eq!(log.iter().filter(|it| it.ends_with(&line)).count(), 3, "{log:#?}");
}

/// A service with its own user database.
struct UserDatabase {
    running: Running,
}

impl UserDatabase {
    fn new(passwd: &str, group: &str, args: &[&str]) -> Self {
        let folder = Folder::new();
        folder.write("passwd", &format!("root:x:0:0::/:/bin/sh\n{passwd}"));
        folder.write("group", &format!("root:x:0:\n{group}"));
        let script = "mount --bind \"$1/passwd\" /etc/passwd && \
                      mount --bind \"$1/group\" /etc/group && shift && exec \"$@\"";
        let mut command = cleared(Command::new("unshare"));
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(folder.path());
        command.arg(copy_of_the_command(&folder));
        Self { running: Running::start_in(folder, command, args) }
    }

    fn pongs(&self, uid: u32, count: u32) -> usize {
        pongs(&ping_as(&self.running.folder, uid, uid, count))
    }

    fn error(&self, uid: u32) -> String {
        let responses: Vec<Value> = responses(&ping_as(&self.running.folder, uid, uid, 1));
        responses[0]["error"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn names_come_from_the_user_database_and_are_case_sensitive() {
    if !can_be_others() {
        return;
    }
    let database = UserDatabase::new(
        "ada:x:20001:20001::/:/bin/sh\nAda:x:20002:20002::/:/bin/sh\n",
        "",
        &["--allow-everybody", "--user-override", "ada=3"],
    );
    assert_eq!(database.pongs(ADA, 10), 3, "ada has an override");
    assert_eq!(database.pongs(GRACE, 12), 10, "Ada is another user");
    assert_eq!(database.pongs(EDSGER, 12), 10, "a user without a name counts too");
    database.running.wait_for("Rate limit exceeded for client: ada", 7);
    database.running.wait_for("Rate limit exceeded for client: Ada", 2);
    database.running.wait_for("Rate limit exceeded for client: uid:20003", 2);
}

#[test]
fn two_uids_of_one_name_are_one_user() {
    if !can_be_others() {
        return;
    }
    let passwd = "ada:x:20001:20001::/:/bin/sh\nada:x:20002:20002::/:/bin/sh\n";
    let database = UserDatabase::new(passwd, "", &["--allow-everybody"]);
    assert_eq!(database.pongs(ADA, 6), 6);
    assert_eq!(database.pongs(GRACE, 6), 4);
}

#[test]
fn odd_names_have_separate_budgets_and_escaped_log_lines() {
    if !can_be_others() {
        return;
    }
    let passwd = "o'brien \\n two:x:20001:20001::/:/bin/sh\n\
                  \u{202e}łukasz\u{1b}[31m🦀:x:20002:20002::/:/bin/sh\n";
    let database = UserDatabase::new(passwd, "", &["--allow-everybody"]);
    assert_eq!(database.pongs(ADA, 11), 10);
    assert_eq!(database.pongs(GRACE, 11), 10);
    database.running.wait_for(r"Rate limit exceeded for client: o\'brien \\n two", 1);
    database.running.wait_for(r"Rate limit exceeded for client: \u{202e}łukasz\u{1b}[31m🦀", 1);
}

#[test]
fn primary_and_listed_group_members_are_served() {
    if !can_be_others() {
        return;
    }
    let passwd = "ada:x:20001:20001::/:/bin/sh\n\
                  grace:x:20002:30000::/:/bin/sh\n\
                  edsger:x:20003:20003::/:/bin/sh\n\
                  alan:x:20004:20004::/:/bin/sh\n";
    let group = "operators:x:30000:ada\nothers:x:30001:edsger\n";
    let args = ["--allow-group", "operators", "--allow-user", "alan"];
    let database = UserDatabase::new(passwd, group, &args);
    assert_eq!(database.pongs(ADA, 1), 1, "a member in the group file");
    assert_eq!(database.pongs(GRACE, 1), 1, "her own group");
    assert_eq!(database.pongs(ALAN, 1), 1, "by name");
    assert!(database.error(EDSGER).starts_with("Access denied"), "of another group");
}

#[test]
fn user_with_an_empty_name_is_denied() {
    if !can_be_others() {
        return;
    }
    let database =
        UserDatabase::new("", "", &["--allow-everybody", "--user-override", "uid:20001=4"]);
    assert_eq!(database.pongs(ADA, 10), 4, "the uid is used as the name");
    fs::write(database.running.folder.path().join("passwd"), ":x:20002:20002::/:/bin/sh\n")
        .unwrap();
    let error = database.error(GRACE);
    assert!(error.starts_with("Access denied"), "an empty name is denied: {error}");
}
