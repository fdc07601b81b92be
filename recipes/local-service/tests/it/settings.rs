//! Settings from flags, environment and policy file, and those that prevent the start.

use std::process::Output;

use crate::harness::{Folder, Running, command};

/// The output of a start that fails before listening.
fn failed_start(args: &[&str], environment: &[(&str, &str)]) -> String {
    let folder = Folder::new();
    let mut command = command();
    command.arg("serve").arg("--socket").arg(folder.socket()).args(args);
    let output: Output = command.envs(environment.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?} {environment:?} {output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(folder.names(), Vec::<String>::new());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn zero_and_negative_values_prevent_the_start_and_are_named() {
    for setting in [
        "--user-max",
        "--user-burst",
        "--global-max",
        "--global-burst",
        "--max-connections",
        "--max-connections-per-user",
    ] {
        for value in ["0", "-1", "-10", "1.5", "", "ten", "99999999999999999999999"] {
            let message = failed_start(&[setting, value], &[]);
            assert!(message.contains(&format!("'{setting} <N>'")), "{setting} {value}: {message}");
        }
    }
    for setting in [
        "--user-per",
        "--global-per",
        "--frame-timeout",
        "--idle-timeout",
        "--write-timeout",
        "--close-timeout",
    ] {
        for value in ["0s", "-1s", "0", "10", "", "soon"] {
            let message = failed_start(&[setting, value], &[]);
            assert!(
                message.contains(&format!("'{setting} <TIME>'")),
                "{setting} {value}: {message}"
            );
        }
    }
}

#[test]
fn invalid_value_of_the_environment_is_named_too() {
    let message = failed_start(&[], &[("TIDEGATE_LOCAL_USER_MAX", "0")]);
    assert!(message.contains("'--user-max <N>'"), "{message}");
    assert!(message.contains("the environment has TIDEGATE_LOCAL_USER_MAX=\"0\""), "{message}");
}

#[test]
fn contradictory_settings_prevent_the_start() {
    for (args, message) in [
        (&["--global-max", "9"][..], "--global-max: the limit for all users is below"),
        (&["--user-max", "31"], "--global-max: the limit for all users is below"),
        (&["--global-per", "1m"], "--global-per: "),
        (&["--user-override", "ada=31"], "--user-override: \"ada\": exceeds"),
        (&["--user-override", "ada=5:5"], "--user-override: \"ada\": a burst needs --user-burst"),
        (&["--user-max", "4294967296", "--global-max", "4294967296"], "--user-max: max must be"),
        (&["--max-connections", "128"], "--max-connections-per-user: one user could hold all"),
        (&["--allow-user", "no-such-user"], "--allow-user: the system does not know"),
        (&["--allow-group", "no-such-group"], "--allow-group: the system does not know"),
        (&["--allow-user", "uid:x"], "--allow-user: \"uid:x\" is not uid: and a number"),
        (&["--policy", "/nowhere.toml"], "--policy: /nowhere.toml: No such file"),
        (&["--allow-everybody", "--allow-user", "root"], "cannot be used with"),
        (&["--mode", "0888"], "'--mode <OCTAL>'"),
        (&["--mode", "17777"], "'--mode <OCTAL>'"),
        (&["--user-override", "ada"], "'--user-override <NAME=…>'"),
        (&["--user-override", "=5"], "'--user-override <NAME=…>'"),
        (&["--user-override", "ada=0"], "'--user-override <NAME=…>'"),
        (&["--user-override", "ada=5/0s"], "'--user-override <NAME=…>'"),
    ] {
        let text = failed_start(args, &[]);
        assert!(text.contains(message), "{args:?}: {text}");
    }
}

#[test]
fn no_limit_contradicts_every_setting_of_a_limit() {
    for (flag, value) in [
        ("--user-max", "5"),
        ("--user-per", "5s"),
        ("--user-burst", "5"),
        ("--user-override", "ada=5"),
        ("--global-max", "50"),
        ("--global-per", "5s"),
        ("--global-burst", "50"),
        ("--policy", "/nowhere.toml"),
    ] {
        let reason = format!("'--no-limit' cannot be used with '{flag}'");
        let text = failed_start(&["--no-limit", flag, value], &[]);
        assert!(text.contains(&reason), "{text}");
        let variable = format!("TIDEGATE_LOCAL_{}", flag[2..].to_uppercase().replace('-', "_"));
        let text = failed_start(&["--no-limit"], &[(&variable, value)]);
        assert!(text.contains(&reason) && text.contains(&variable), "{text}");
        let text = failed_start(&[flag, value], &[("TIDEGATE_LOCAL_NO_LIMIT", "1")]);
        assert!(text.contains(&reason), "{text}");
    }
}

/// A variable that switches something off contradicts nothing.
#[test]
fn switch_that_is_off_contradicts_nothing() {
    for off in ["0", "false", "no", ""] {
        let mut command = command();
        command.env("TIDEGATE_LOCAL_NO_LIMIT", off).env("TIDEGATE_LOCAL_ALLOW_EVERYBODY", off);
        let args = ["--user-max", "3", "--user-per", "1h", "--global-per", "1h"];
        let args = [&args[..], &["--allow-user", "uid:0", "--allow-user"]].concat();
        let me = format!("uid:{}", nix::unistd::geteuid());
        let running = Running::start_in(Folder::new(), command, &[&args[..], &[&me]].concat());
        assert_eq!(running.call().pings(10), 3, "{off:?}");
    }
}

#[test]
fn flags_change_the_limits() {
    let running = Running::start(&["--user-max", "3", "--user-per", "1h", "--global-per", "1h"]);
    assert_eq!(running.call().pings(10), 3);
    let running = Running::start(&["--user-max", "1", "--user-per", "1h", "--user-burst", "7"]);
    assert_eq!(running.call().pings(10), 7);
    let running = Running::start(&[
        "--global-max",
        "1",
        "--global-per",
        "1h",
        "--global-burst",
        "12",
        "--user-max",
        "1",
        "--user-per",
        "1h",
        "--user-burst",
        "12",
    ]);
    assert_eq!(running.call().pings(20), 12);
    let running = Running::start(&["--no-limit"]);
    assert_eq!(running.call().pings(100), 100);
}

#[test]
fn environment_changes_the_limits_and_flags_take_precedence() {
    let start = |args: &[&str]| {
        let mut command = command();
        command.envs([
            ("TIDEGATE_LOCAL_USER_MAX", "4"),
            ("TIDEGATE_LOCAL_USER_PER", "1h"),
            ("TIDEGATE_LOCAL_GLOBAL_PER", "1h"),
        ]);
        Running::start_in(Folder::new(), command, args)
    };
    assert_eq!(start(&[]).call().pings(10), 4);
    assert_eq!(start(&["--user-max", "6"]).call().pings(10), 6);
    let mut command = command();
    command.env("TIDEGATE_LOCAL_NO_LIMIT", "1");
    let running = Running::start_in(Folder::new(), command, &[]);
    assert_eq!(running.call().pings(100), 100);
}

#[test]
fn user_override_flag_changes_the_limit() {
    let me = nix::unistd::geteuid();
    let known = nix::unistd::User::from_uid(me).unwrap();
    let name = known.map_or(format!("uid:{me}"), |user| user.name);
    for (numbers, passed) in [("20", 20), ("2/1h", 2), ("unlimited", 30)] {
        let numbers = format!("{name}={numbers}");
        let running = Running::start(&["--user-override", &numbers]);
        assert_eq!(running.call().pings(40), passed, "{numbers}");
    }
    let numbers = format!("{name}=1/1h:9");
    let running = Running::start(&["--user-burst", "10", "--user-override", &numbers]);
    assert_eq!(running.call().pings(40), 9);
}

#[test]
fn policy_file_replaces_the_limits() {
    let folder = Folder::new();
    let file = folder.write(
        "policy.toml",
        r#"
            [[rule]]
            name   = "user"
            domain = "ipc"
            key    = ["user"]
            window = { max = 5, per = "1h" }

            [[rule]]
            name    = "global"
            domain  = "ipc"
            sliding = { max = 100, per = "1h" }

            [[rule]]
            name     = "one-report-an-hour"
            domain   = "ipc"
            match    = { type = "report" }
            key      = ["user"]
            cooldown = "1h"
        "#,
    );
    let running = Running::start_in(folder, command(), &["--policy", file.to_str().unwrap()]);
    let mut caller = running.call();
    let report = r#"{"type":"report"}"#;
    assert!(caller.send_request(report)["error"].as_str().unwrap().starts_with("Unknown type"));
    let failed_start = caller.send_request(report);
    assert_eq!(failed_start["limit"], "one-report-an-hour");
    assert_eq!(caller.pings(10), 4);
}

#[test]
fn invalid_policy_file_prevents_the_start() {
    let rule = |domain: &str, rest: &str| {
        format!("[[rule]]\nname = \"user\"\ndomain = \"{domain}\"\n{rest}\n")
    };
    let window = "window = { max = 10, per = \"10s\" }";
    let below = rule("ipc", &format!("key = [\"user\"]\n{window}"))
        + "[[rule]]\nname = \"global\"\ndomain = \"ipc\"\nwindow = { max = 9, per = \"10s\" }\n";
    for (text, message) in [
        (String::new(), "the policy has no rule"),
        (rule("icp", window), "rule `user` is not in domain `ipc`"),
        (rule("ipc", "slots = { max = 3 }"), "use --max-connections"),
        (rule("ipc", &format!("key = [\"ip\"]\n{window}")), "needs `ip`; requests have"),
        (rule("ipc", &format!("match = {{ path = \"/\" }}\n{window}")), "needs `path`"),
        (rule("ipc", "window = { max = 0, per = \"10s\" }"), "policy.toml:4:"),
        (below, "allows less for all keys together"),
    ] {
        let folder = Folder::new();
        let file = folder.write("policy.toml", &text);
        let output = failed_start(&["--policy", file.to_str().unwrap()], &[]);
        assert!(output.contains("--policy: ") && output.contains(message), "{output}");
    }
    let message = failed_start(&["--policy", "x.toml", "--user-max", "5"], &[]);
    assert!(message.contains("cannot be used with"), "{message}");
}

#[test]
fn help_lists_every_setting() {
    let output = command().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let readme = include_str!("../../README.md");
    let mut count = 0;
    for word in help.split_whitespace() {
        let Some(name) = word.strip_prefix("[env:").or(word.strip_prefix("TIDEGATE_LOCAL_")) else {
            continue;
        };
        if let Some(name) = name.strip_suffix("=]") {
            let flag = format!("--{}", name.to_lowercase().replace('_', "-"));
            assert!(help.contains(&flag), "{flag}");
            assert!(readme.contains(&format!("`{flag}`")), "{flag} is not in the README");
            count += 1;
        }
    }
    assert_eq!(count, 21, "each setting has a variable");
}
