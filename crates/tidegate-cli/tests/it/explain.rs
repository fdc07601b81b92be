use crate::run::{folder, tidegate, tidegate_in};

const POLICY: &str = r#"
[[rule]]
name   = "reads"
domain = "api"
match  = { method = "GET", plan = ["free", "trial"] }
key    = ["ip"]
window = { max = 3, per = "10s" }
group  = "methods"

[[rule]]
name   = "all-methods"
domain = "api"
key    = ["ip"]
bucket = { rate = "3/s", burst = 2 }
group  = "methods"
deny   = "too fast"

[[rule]]
name     = "watched"
domain   = "api"
key      = ["ip"]
cooldown = "1m"
mode     = "shadow"

[[rule]]
name     = "partner"
domain   = "partners"
key      = ["ip"]
window   = { max = 3, per = "10s" }
override = [{ key = { ip = "192.0.2.1" }, unlimited = true }]

[[rule]]
name   = "tokens"
domain = "council"
key    = ["governor"]
quota  = { max = 2, per = "round" }
cost   = { by = "tier", "1..=4" = 1, "5.." = 3 }

[[rule]]
name   = "tried"
domain = "trial"
mode   = "shadow"
key    = ["user"]
window = { max = 3, per = "10s" }
cost   = { by = "tier", "1..=4" = 1 }
"#;

/// Explains a request to the policy; `args` follow `explain policy.toml`.
fn explain(test: &str, args: &str) -> crate::run::Ended {
    let folder = folder(test, &[("policy.toml", POLICY)]);
    let mut all = vec!["explain", "policy.toml", "--time", "2026-01-01T00:00:00Z"];
    all.extend(args.split_whitespace());
    tidegate_in(&folder, &all, b"")
}

#[test]
fn explains_which_rules_apply_and_why_others_do_not() {
    explain("explain-rules", "--domain api --attr ip=192.0.2.1 -a method=POST")
        .with(0)
        .silent_err()
        .out(&[
            "allowed; lowest remaining: rule `all-methods`\nnext allowed: now\n",
            "reads: does not match: `method` is \"POST\", not `GET`; `plan` is missing, expected \
             `free` or `trial`\n",
            "all-methods: allows it\n    key: ip = \"192.0.2.1/32\"\n    state: 2 of 2 remaining, \
             full; the request costs 1\n",
        ]);
    explain("explain-group", "--domain api --attr ip=192.0.2.1 -a method=GET -a plan=free")
        .with(0)
        .out(&["all-methods: does not apply: `reads` matches first in its group\n"]);
    explain("explain-override", "--domain partners --attr ip=192.0.2.1").with(0).out(&[
        "allowed; no rule limits it",
        "partner: does not limit it: override 1 is unlimited\n",
    ]);
}

/// A third of a second is not a whole number of milliseconds: waits are rounded up.
#[test]
fn denial_has_the_next_allowed_time() {
    explain("explain-refusal", "--domain api --attr ip=192.0.2.1 --repeat 5").with(0).out(&[
        "before: 5 identical requests, 2 allowed\n",
        "denied by rule `all-methods`: too fast\n",
        "next allowed: after 334ms, at 2026-01-01T00:00:00.334Z\n",
        "all-methods: denies it; retry after 334ms\n",
        "state: 0 of 2 remaining, full again after 667ms; the request costs 1\n",
        "watched: would deny it, but is in shadow mode; retry after 1m\n",
    ]);
}

#[test]
fn unknown_and_endless_waits_are_explained() {
    explain("explain-round", "--domain council -a governor=g -a tier=1 --repeat 2")
        .with(0)
        .out(&["next allowed: when the round is closed; time unknown\n"]);
    explain("explain-never", "--domain council -a governor=g -a tier=7")
        .with(0)
        .out(&["denied by rule `tokens`\nnext allowed: never; no wait helps\n"]);
    explain("explain-missing", "--domain api").with(0).out(&[
        "denied by rule `all-methods`: rule `all-methods` needs the attribute `ip`\n",
        "all-methods: denies it: `ip`, which its key needs, is missing\n",
    ]);
    tidegate(&["explain", "examples/policies/api.toml", "--domain=interpreter", "--repeat=3"])
        .with(0)
        .out(&["3 allowed\n", "next allowed: when a slot is released; time unknown\n"]);
}

#[test]
fn cost_table_without_a_row_is_explained_in_shadow_mode() {
    let why = "does not apply, as it is in shadow mode: its cost table";
    explain("explain-tried", "--domain trial -a user=ada -a tier=7").with(0).silent_err().out(&[
        "allowed; no rule limits it\nnext allowed: now\n",
        &format!("tried: {why} does not cover `tier` = \"7\"\n"),
    ]);
    explain("explain-untried", "--domain trial -a user=ada")
        .with(0)
        .out(&[&format!("tried: {why} needs `tier`, which is missing\n")]);
    let json = explain("explain-tried-json", "--domain trial -a user=ada --format json").json();
    let rule = &json["rules"][0];
    assert_eq!((&rule["applies"], &rule["denies"]), (&false.into(), &false.into()));
    assert!(rule["why"].as_str().unwrap().starts_with(why), "{json}");
}

#[test]
fn undecidable_request_has_a_hint() {
    explain("explain-cost", "--domain council -a governor=g")
        .with(2)
        .silent_out()
        .err(&["needs the attribute `tier`", "add --attr tier=VALUE"]);
    explain("explain-cover", "--domain council -a governor=g -a tier=0")
        .with(2)
        .err(&["does not cover tier = \"0\"", "add a row"]);
    explain("explain-domain", "--domain apis -a ip=1 -a ip=2").with(0).err(&[
        "no rule in domain `apis`; did you mean `api`?",
        "attribute `ip` appears twice; the first is used",
    ]);
}

#[test]
fn invalid_policy_is_not_explained() {
    let folder = folder("explain-bad", &[("bad.toml", "[[rule]]\nname = 'a'\ncooldwn = '1s'\n")]);
    tidegate_in(&folder, &["explain", "bad.toml"], b"")
        .with(2)
        .silent_out()
        .err(&["bad.toml:3:1: error", "did you mean `cooldown`?"]);
}

#[test]
fn json_has_the_daemons_fields_and_the_rules() {
    let json = explain("explain-json", "--domain api -a ip=192.0.2.1 --repeat 2 --format json")
        .with(0)
        .silent_err()
        .json();
    assert_eq!(json["allowed"], false);
    assert_eq!(json["rule"], "all-methods");
    assert_eq!(json["retry_after_ms"], 334);
    assert_eq!(json["next_allowed"], "2026-01-01T00:00:00.334Z");
    assert_eq!(json["reason"], "too fast");
    assert_eq!(json["rules"][0]["applies"], false);
    assert!(json["rules"][0]["why"].as_str().unwrap().contains("`method` is missing"));
    assert_eq!(json["rules"][1]["key"]["ip"], "192.0.2.1/32");
    assert_eq!(json["rules"][1]["denies"], true);
    assert_eq!(json["rules"][2]["mode"], "shadow");
    assert_eq!(json["rules"][2]["denies"], false);
    assert_eq!(json["rules"][2]["allowed"], false);
}

#[test]
fn list_of_unmatched_rules_is_bounded() {
    let rule = |number: usize| {
        format!("[[rule]]\nname = 'r{number}'\nmatch = {{ n = '{number}' }}\ncooldown = '1s'\n")
    };
    let policy: String = (0..100).map(rule).collect();
    let folder = folder("explain-many", &[("policy.toml", &policy)]);
    let ended = tidegate_in(&folder, &["explain", "policy.toml", "--attr", "n=99"], b"").with(0);
    assert!(ended.out.lines().count() < 40, "{}", ended.out);
    let _ = ended
        .out(&["  r99: allows it\n", "  and 79 more that do not match; --format json lists all\n"]);
}

#[test]
fn control_characters_do_not_break_lines() {
    let policy = "[[rule]]\nname = 'r'\nmatch = { path = \"a\\r\\nallowed\" }\n\
                  key = ['user']\nwindow = { max = 1, per = '1s' }\n";
    let folder = folder("explain-lines", &[("policy.toml", policy)]);
    let other = ["--attr", "path=x\r\nallowed", "--attr", "user=y\r\nallowed"];
    let mut args = vec!["explain", "policy.toml"];
    args.extend(other);
    tidegate_in(&folder, &args, b"").with(0).out(&[
        "r: does not match: `path` is \"x\\r\\nallowed\", not `a\u{fffd}\u{fffd}allowed`\n",
    ]);
    let mut args = vec!["explain", "policy.toml", "--domain", "d\r\nx", "--attr", "a\nb=1"];
    args.extend(["--attr", "a\nb=2"]);
    tidegate_in(&folder, &args, b"").with(0).err(&[
        "note: no rule in domain `d\u{fffd}\u{fffd}x`",
        "note: attribute `a\u{fffd}b` appears twice",
    ]);
    let matching = ["--attr", "path=a\r\nallowed", "--attr", "user=y\r\nallowed"];
    let mut args = vec!["explain", "policy.toml"];
    args.extend(matching);
    tidegate_in(&folder, &args, b"").with(0).out(&["    key: user = \"y\\r\\nallowed\"\n"]);
}
