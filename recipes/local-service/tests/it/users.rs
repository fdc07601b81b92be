//! Real users: the kernel says who they are.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Folder, InProcess, Running, answers, can_be_others, cleared, copy_of_the_command, ping_as,
    pongs,
};

/// Numbers that no system gives to anybody.
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
    assert_eq!(pongs(&second), 4, "another process is no other user");
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(pongs(&ping_as(&server.folder, ADA, GRACE, 6)), 0, "nor is another group");
    assert_eq!(pongs(&ping_as(&server.folder, GRACE, GRACE, 20)), 10);
    assert_eq!(server.call().pings(20), 10, "nor does root spend theirs");
    let last = ping_as(&server.folder, EDSGER, EDSGER, 1);
    assert_eq!(answers(&last)[0]["limit"], "global");
    server.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(pongs(&ping_as(&server.folder, EDSGER, EDSGER, 20)), 10);
}

#[test]
fn by_default_only_root_and_the_services_own_user_are_answered() {
    if !can_be_others() {
        return;
    }
    // The file lets everybody connect, so that the list has its say.
    let mut running = Running::start(&["--mode", "0666"]);
    let denied = ping_as(&running.folder, ADA, ADA, 1);
    assert!(answers(&denied)[0]["error"].as_str().unwrap().starts_with("Access denied"));
    assert_eq!(denied.status.code(), Some(1));
    assert!(running.call().ping());
    running.wait_for(&format!("Access denied for client: uid:{ADA}"), 1);

    // A service of Ada's: she and root, but not Grace.
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
fn the_mode_of_the_file_keeps_others_out_by_default() {
    if !can_be_others() {
        return;
    }
    let running = Running::start(&[]);
    let refused = ping_as(&running.folder, ADA, ADA, 1);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
}

#[test]
fn users_and_groups_on_the_list_are_answered() {
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
fn one_warning_for_each_refusal_and_none_for_success() {
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

/// A service among other users: the files that say who is who are those of a test.
struct Town {
    running: Running,
}

impl Town {
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
        let answers: Vec<Value> = answers(&ping_as(&self.running.folder, uid, uid, 1));
        answers[0]["error"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn names_come_from_the_user_database_and_case_counts() {
    if !can_be_others() {
        return;
    }
    let town = Town::new(
        "ada:x:20001:20001::/:/bin/sh\nAda:x:20002:20002::/:/bin/sh\n",
        "",
        &["--allow-everybody", "--user-override", "ada=3"],
    );
    assert_eq!(town.pongs(ADA, 10), 3, "ada has numbers of her own");
    assert_eq!(town.pongs(GRACE, 12), 10, "Ada is somebody else");
    assert_eq!(town.pongs(EDSGER, 12), 10, "and who has no name is somebody too");
    town.running.wait_for("Rate limit exceeded for client: ada", 7);
    town.running.wait_for("Rate limit exceeded for client: Ada", 2);
    town.running.wait_for("Rate limit exceeded for client: uid:20003", 2);
}

#[test]
fn two_numbers_of_one_name_are_one_user() {
    if !can_be_others() {
        return;
    }
    let passwd = "ada:x:20001:20001::/:/bin/sh\nada:x:20002:20002::/:/bin/sh\n";
    let town = Town::new(passwd, "", &["--allow-everybody"]);
    assert_eq!(town.pongs(ADA, 6), 6);
    assert_eq!(town.pongs(GRACE, 6), 4);
}

#[test]
fn odd_names_have_budgets_and_lines_of_their_own() {
    if !can_be_others() {
        return;
    }
    let passwd = "o'brien \\n two:x:20001:20001::/:/bin/sh\n\
                  \u{202e}łukasz\u{1b}[31m🦀:x:20002:20002::/:/bin/sh\n";
    let town = Town::new(passwd, "", &["--allow-everybody"]);
    assert_eq!(town.pongs(ADA, 11), 10);
    assert_eq!(town.pongs(GRACE, 11), 10);
    town.running.wait_for(r"Rate limit exceeded for client: o\'brien \\n two", 1);
    town.running.wait_for(r"Rate limit exceeded for client: \u{202e}łukasz\u{1b}[31m🦀", 1);
}

#[test]
fn members_of_a_group_are_answered_however_they_are_members() {
    if !can_be_others() {
        return;
    }
    let passwd = "ada:x:20001:20001::/:/bin/sh\n\
                  grace:x:20002:30000::/:/bin/sh\n\
                  edsger:x:20003:20003::/:/bin/sh\n\
                  alan:x:20004:20004::/:/bin/sh\n";
    let group = "operators:x:30000:ada\nothers:x:30001:edsger\n";
    let args = ["--allow-group", "operators", "--allow-user", "alan"];
    let town = Town::new(passwd, group, &args);
    assert_eq!(town.pongs(ADA, 1), 1, "the group file says so");
    assert_eq!(town.pongs(GRACE, 1), 1, "her own group");
    assert_eq!(town.pongs(ALAN, 1), 1, "by name");
    assert!(town.error(EDSGER).starts_with("Access denied"), "of another group");
}

#[test]
fn a_user_without_a_name_in_the_database_is_nobody() {
    if !can_be_others() {
        return;
    }
    let town = Town::new("", "", &["--allow-everybody", "--user-override", "uid:20001=4"]);
    assert_eq!(town.pongs(ADA, 10), 4, "a number is a name as well");
    fs::write(town.running.folder.path().join("passwd"), ":x:20002:20002::/:/bin/sh\n").unwrap();
    let error = town.error(GRACE);
    assert!(error.starts_with("Access denied"), "an empty name is nobody's: {error}");
}
