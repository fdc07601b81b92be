//! `tidegate diff`, with and without logs.

use serde_json::json;

use crate::run::{folder, tidegate_in};

const OLD: &str = "\
[[rule]]
name   = \"per-ip\"
key    = [\"ip\"]
window = { max = 2, per = \"1m\" }

[[rule]]
name     = \"gone\"
cooldown = \"1s\"
mode     = \"shadow\"
";

const NEW: &str = "\
[[rule]]
name   = \"per-ip\"
key    = [\"ip\"]
window = { max = 1, per = \"1m\" }
match  = { ip = \"192.0.2.*\" }

[[rule]]
name   = \"new\"
key    = [\"user\"]
bucket = \"1/s\"
missing = \"skip\"
";

/// Two requests of each address, but three of the last; the last but one is in another network.
fn log() -> String {
    let ips =
        ["192.0.2.1", "192.0.2.2", "198.51.100.3", "198.51.100.3", "198.51.100.3", "192.0.2.2"];
    let line = |(second, ip): (usize, &&str)| {
        format!("{ip} - - [12/May/2024:00:00:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
    };
    ips.iter().enumerate().map(line).collect()
}

fn files(name: &str) -> std::path::PathBuf {
    let new = NEW.replace("bucket = \"1/s\"", "bucket = { rate = \"1/s\" }");
    folder(name, &[("old.toml", OLD), ("new.toml", &new), ("a.log", &log())])
}

#[test]
fn the_same_policy_exits_with_0() {
    let folder = files("diff-same");
    std::fs::write(folder.join("copy.toml"), format!("# a comment\n{OLD}")).unwrap();
    let ended = tidegate_in(&folder, &["diff", "old.toml", "copy.toml"], b"").with(0);
    assert_eq!(ended.out, "the policies are the same\n");
    let ended = tidegate_in(&folder, &["diff", "old.toml", "copy.toml", "a.log"], b"").with(0);
    let _ = ended.out(&["denied          1\n"]);
}

#[test]
fn text_has_one_line_for_each_number_and_the_keys_that_are_denied_now() {
    let folder = files("diff-text");
    let ended = tidegate_in(&folder, &["diff", "old.toml", "new.toml", "a.log"], b"").with(1);
    let rules = "\
rule `per-ip` of domain `default` changed
  window.max 2 → 1
  match.ip \"192.0.2.*\" added
rule `new` of domain `default` added
";
    assert!(ended.out.starts_with(rules), "{}", ended.out);
    let effect = "
requests        6
denied          1
keys denied     1

newly denied: 1 key
  ip=192.0.2.2  0 → 1 (+1)

no longer denied: 1 key
  ip=198.51.100.3  1 → 0 (-1)
";
    let ended =
        ended.out(&["rule `gone` of domain `default` removed\n  `gone` applies to all requests"]);
    let shadow = ended.out.replace("shadow denied   5 → 0 (-5)\n", "");
    assert!(shadow.ends_with(effect), "{}", ended.out);
}

#[test]
fn json_and_markdown_have_the_same() {
    let folder = files("diff-formats");
    let args = ["diff", "old.toml", "new.toml", "a.log", "--format", "json"];
    let json = tidegate_in(&folder, &args, b"").with(1).json();
    assert_eq!(json["same"], false);
    assert_eq!(json["rules"][0]["fields"][0]["line"], "window.max 2 → 1");
    assert_eq!(json["rules"][0]["starts_fresh"], false);
    assert_eq!(json["rules"][1]["change"], "added");
    assert_eq!(
        json["effect"]["newly_denied"]["top"][0],
        json!({
            "key": { "ip": "192.0.2.2" }, "old_denied": 0, "new_denied": 1,
        })
    );
    assert_eq!(json["effect"]["no_longer_denied"]["keys"], 1);
    let args = ["diff", "old.toml", "new.toml", "a.log", "--format", "markdown"];
    let _ = tidegate_in(&folder, &args, b"").with(1).out(&[
        "- `per-ip` in domain `default` changed\n  - `window.max 2 → 1`\n",
        "### Effect on 6 logged requests",
        "| `ip=192.0.2.2` | 0 → 1 (+1) |",
    ]);
}

#[test]
fn a_change_of_the_key_or_the_algorithm_starts_fresh_and_says_so() {
    let folder = files("diff-fresh");
    for (name, change) in [
        ("key", OLD.replace("[\"ip\"]", "[\"user\"]")),
        ("algorithm", OLD.replace("window", "sliding")),
    ] {
        std::fs::write(folder.join("new.toml"), change).unwrap();
        let ended = tidegate_in(&folder, &["diff", "old.toml", "new.toml"], b"").with(1);
        assert!(ended.out.contains("its keys start fresh"), "{name}: {}", ended.out);
    }
}

#[test]
fn errors_exit_with_2_and_stdin_is_a_policy() {
    let folder = files("diff-errors");
    let _ =
        tidegate_in(&folder, &["diff", "old.toml", "no.toml"], b"").with(2).err(&["no such file"]);
    let _ = tidegate_in(&folder, &["diff", "old.toml", "new.toml", "no.log"], b"").with(2);
    let _ = tidegate_in(&folder, &["diff", "-", "-"], b"").with(2).err(&["only once"]);
    let _ = tidegate_in(&folder, &["diff", "-", "old.toml"], OLD.as_bytes()).with(0);
    std::fs::write(folder.join("cut.gz"), [0x1f, 0x8b, 8, 0, 0, 0]).unwrap();
    let _ = tidegate_in(&folder, &["diff", "old.toml", "new.toml", "cut.gz"], b"").with(2);
}
