//! `tidegate test`.

use crate::run::{Ended, GOOD, finish, folder, tidegate_in};

const QUOTA: &str = r#"
[[rule]]
name  = "monthly"
key   = ["customer"]
quota = { max = 2, per = "month in Europe/Helsinki" }
"#;

fn run(test: &str, policy: &str, cases: &str, args: &[&str]) -> Ended {
    let folder = folder(test, &[("policy.toml", policy), ("cases.toml", cases)]);
    let all: Vec<&str> =
        ["test", "policy.toml", "cases.toml"].into_iter().chain(args.iter().copied()).collect();
    tidegate_in(&folder, &all, b"")
}

const MIXED: &str = r#"
[[case]]
name       = "twelve at once"
domain     = "relay"
attributes = { connection = 7 }
expect     = "allow"
repeat     = 12

[[case]]
domain      = "relay"
attributes  = { connection = "7" }
expect      = "deny"
rule        = "messages"
remaining   = 1
retry_after = "2s"

[[case]]
at         = "1s"
domain     = "relay"
attributes = { connection = 0x7 }
expect     = "allow"
remaining  = 0
"#;

#[test]
fn failed_case_has_position_expectation_and_decision() {
    run("cases-mixed", GOOD, MIXED, &[]).with(1).silent_err().out(&[
        "cases.toml:2:1: FAILED `twelve at once`: request 11 of 12: expected allow, got deny by \
         `messages` (0 of 10 remaining, retry_after = \"1s\")\n",
        "cases.toml:9:1: FAILED case 2: expected remaining = 1, got 0; \
         expected retry_after = \"2s\", got \"1s\"\n",
        "cases.toml: 2 failed, 1 passed\n",
    ]);
}

#[test]
fn json_and_github_report_the_same_failures() {
    let json = run("cases-json", GOOD, MIXED, &["--format=json"]).with(1).silent_err().json();
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &2.into()));
    let case = &json["files"][0]["cases"][1];
    assert_eq!(case["ok"], false);
    assert_eq!(case["line"], 9);
    assert_eq!(case["expected"]["retry_after"], "2s");
    assert_eq!(case["got"]["retry_after_ms"], 1000);
    assert_eq!(json["files"][0]["cases"][2]["at"], "2026-01-01T00:00:01Z");
    run("cases-github", GOOD, MIXED, &["--format=github"]).with(1).out(&[
        "::error file=cases.toml,line=2,col=1::`twelve at once`: request 11 of 12: expected allow",
    ]);
}

#[test]
fn calendars_follow_the_times_of_the_cases() {
    // March begins in Helsinki two hours before it does in UTC.
    let cases = r#"
        start = "2026-02-28T20:00:00Z"
        [[case]]
        attributes = { customer = "c" }
        expect     = "allow"
        repeat     = 2
        [[case]]
        at          = 2026-02-28T23:59:59.5+02:00
        attributes  = { customer = "c" }
        expect      = "deny"
        retry_after = "500ms"
        [[case]]
        at         = "2h"
        attributes = { customer = "c" }
        expect     = "allow"
        remaining  = 1
    "#;
    run("cases-calendar", QUOTA, cases, &[]).with(0).out(&["cases.toml: ok, 3 cases passed\n"]);
}

#[test]
fn each_test_file_starts_fresh() {
    let case = "[[case]]\nattributes = { customer = 1 }\nexpect = 'allow'\nrepeat = 2\n";
    let files = [("policy.toml", QUOTA), ("a.toml", case), ("b.toml", case)];
    let folder = folder("cases-fresh", &files);
    tidegate_in(&folder, &["test", "policy.toml", "a.toml", "b.toml"], b"").with(0);
    // One of them may come from a pipe.
    let mut command = crate::run::command(&folder);
    let ended = finish(command.args(["test", "policy.toml", "-"]), case.as_bytes());
    let _ = ended.with(0).out(&["<stdin>: ok, 1 case passed\n"]);
}

/// Each with its position, message and hint.
#[test]
fn invalid_case_has_position_message_and_hint() {
    for (index, (case, expected)) in [
        ("expct = 'allow'", &["2:1: error: unknown field `expct`", "did you mean `expect`?"][..]),
        ("name = 'x'", &["1:1: error: a case needs `expect`", "expect = \"allow\""]),
        ("expect = 'alow'", &["2:10: error: `expect` cannot be `alow`", "did you mean `allow`?"]),
        ("expect = 'deny'\nretry_after = 5", &["3:15: error: `retry_after` has no unit", "\"5s\""]),
        ("expect = 'deny'\nretry_after = 'soon'", &["3:15: error: `soon` is not a duration"]),
        ("expect = 'deny'\nretry_after = '0s'", &["must be above zero"]),
        ("expect = 'allow'\nretry_after = '1s'", &["an allowed request has no `retry_after`"]),
        ("expect = 'allow'\nat = 10", &["3:6: error: `at` must be text"]),
        ("expect = 'allow'\nat = '10'", &["a unit is missing", "\"10s\""]),
        ("expect = 'allow'\nat = 2026-01-01", &["is not a time", "2026-01-31T12:00:00Z"]),
        ("expect = 'allow'\ncost = 0", &["3:8: error: `cost` must be at least 1"]),
        ("expect = 'allow'\ncost = -1", &["3:8: error: `cost` must be at least 1"]),
        ("expect = 'allow'\ncost = 99999999999999999999", &["3:8: error: `cost` is too large"]),
        ("expect = 'allow'\nrepeat = 1_000_000_000", &["`repeat` must be at most 1000000"]),
        ("expect = 'allow'\nremaining = '5'", &["`remaining` must be a whole number"]),
        ("expect = 'allow'\nclose_round = 'yes'", &["`close_round` must be true or false"]),
        ("expect = 'allow'\nattributes = 'x'", &["`attributes` must be a table"]),
        ("expect = 'allow'\nattributes = { a = 1.5 }", &["3:20: error: an attribute must be text"]),
        ("domain = 'relay'\nexpect = 'deny'\nrule = 'mesages'", &["did you mean `messages`?"]),
        ("expect = 'allow", &["2:"]),
    ]
    .into_iter()
    .enumerate()
    {
        let cases = format!("[[case]]\n{case}\n");
        let ended = run(&format!("cases-error-{index}"), GOOD, &cases, &[]).with(2).silent_out();
        let _ = ended.err(expected).err(&["cases.toml:", "; no case was run"]);
    }
}

#[test]
fn files_without_cases_are_errors() {
    for (index, (cases, expected)) in [
        ("", "the file has no cases"),
        ("case = 5", "`case` must be a list of tables"),
        ("case = [5]", "a case must be a table"),
        ("[[cases]]\nexpect = 'allow'", "did you mean `case`?"),
        ("start = 'noon'\n[[case]]\nexpect = 'allow'", "1:9: error: `noon` is not a time"),
    ]
    .into_iter()
    .enumerate()
    {
        let _ = run(&format!("cases-none-{index}"), GOOD, cases, &[]).with(2).err(&[expected]);
    }
}

#[test]
fn all_errors_of_a_test_file_are_reported_at_once() {
    let cases = "[[case]]\nat = '10s'\nexpct = 'allow'\n[[case]]\nat = '5s'\nexpect = 'x'\n";
    run("cases-all-errors", GOOD, cases, &[]).with(2).err(&[
        "cases.toml:3:1: error: unknown field `expct`",
        "cases.toml:1:1: error: a case needs `expect`",
        "cases.toml:5:6: error: time runs backwards: the previous case is at 2026-01-01T00:00:10Z",
        "cases.toml:6:10: error: `expect` cannot be `x`",
        "cases.toml: 4 errors; no case was run",
    ]);
}

#[test]
fn a_domain_without_rules_is_a_warning() {
    let cases = "[[case]]\ndomain = 'rely'\nexpect = 'allow'\n";
    run("cases-domain", GOOD, cases, &[])
        .with(0)
        .err(&["cases.toml:2:10: warning: the policy has no rule in domain `rely`"])
        .err(&["did you mean `relay`?"]);
}

#[test]
fn invalid_policy_runs_no_case() {
    let bad = "[[rule]]\nname = 'a'\ncooldwn = '1s'\n";
    run("cases-bad-policy", bad, MIXED, &[]).with(2).silent_out().err(&[
        "policy.toml:3:1: error",
        "policy.toml: ",
        "; no case was run",
    ]);
    let json = run("cases-bad-policy-json", bad, MIXED, &["--format=json"]).with(2).json();
    assert_eq!(json["files"][0]["file"], "policy.toml");
    assert_eq!(json["files"][0]["diagnostics"][1]["line"], 3);
}

#[test]
fn undecidable_request_fails_the_case() {
    let policy = "[[rule]]\nname = 'a'\ncooldown = '1s'\ncost = { by = 'tier', '1' = 1 }\n";
    let cases = "[[case]]\nattributes = { tier = 2 }\nexpect = 'deny'\n";
    run("cases-cost", policy, cases, &[]).with(1).out(&[
        "expected deny, but the request cannot be decided: the cost table of rule `a` does not cover",
    ]);
}

/// A fraction of the keys, chosen by a hash with a random seed, would make tests flaky.
#[test]
fn tests_enforce_every_key() {
    let policy = format!("[server]\nenforce = 0.5\n{GOOD}");
    let case = |connection: usize, expect: &str, repeat: usize| {
        format!(
            "[[case]]\ndomain = 'relay'\nattributes = {{ connection = {connection} }}\n\
             expect = '{expect}'\nrepeat = {repeat}\n"
        )
    };
    let cases: String = (0..20).map(|it| case(it, "allow", 10) + &case(it, "deny", 1)).collect();
    run("cases-enforce", &policy, &cases, &[])
        .with(0)
        .out(&["ok, 40 cases passed"])
        .err(&["note: `enforce` in [server] is ignored here"]);
}
