use crate::run::{GOOD, finish, folder, tidegate, tidegate_in};

const TYPO: &str = "[[rule]]\nname = 'a'\nbucket = { rate = '1/s', burts = 5 }\n\n\
                    [[rule]]\nname = 'b'\nwindow = { max = 0, per = '10s' }\n";

/// The second rule's limit for all is below the first rule's limit per key.
const ODD: &str = "[[rule]]\nname = 'each'\nkey = ['ip']\nwindow = { max = 10, per = '1s' }\n\n\
                   [[rule]]\nname = 'all'\nwindow = { max = 5, per = '1s' }\n";

#[test]
fn sample_policy_is_valid() {
    tidegate(&["validate", "crates/tidegate-policy/tests/it/sample.toml"])
        .with(0)
        .out(&["sample.toml: ok, 7 rules in 6 domains, at most 2 checked per request\n"])
        .silent_err();
}

/// A file of envoyproxy/ratelimit, and one of Limitador, which is not a policy.
const ENVOY: &str = "domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit:\n      \
                     unit: second\n      requests_per_unit: 2\n";
const LIMITADOR: &str = "- {namespace: ns, max_value: 1, seconds: 60, variables: [user]}\n";

#[test]
fn yaml_of_envoy_is_validated() {
    let folder = folder("of-others", &[("a.yaml", ENVOY), ("c.toml", GOOD)]);
    tidegate_in(&folder, &["validate", "a.yaml"], b"")
        .with(0)
        .silent_err()
        .out(&["a.yaml: ok, 1 rule in 1 domain, at most 1 checked per request\n"]);
    tidegate_in(&folder, &["validate", "."], b"").with(0).out(&[".: ok, 2 rules in 2 domains"]);
    tidegate_in(&folder, &["validate", "-"], ENVOY.as_bytes()).with(0).silent_err();
    let bad = ENVOY.replace("second", "fortnight");
    tidegate_in(&folder, &["validate", "-"], bad.as_bytes())
        .with(1)
        .err(&["<stdin>:5:13: error: `fortnight` is not a unit", "write one of second, minute"]);
    let explain = ["explain", "a.yaml", "--domain", "edge", "-a", "remote_address=192.0.2.1"];
    tidegate_in(&folder, &[&explain[..], &["--repeat", "2"]].concat(), b"")
        .with(0)
        .out(&["denied by rule `remote_address`", "key: 1.remote_address = \"192.0.2.1\""]);
}

#[test]
fn limits_of_limitador_are_converted_and_not_loaded() {
    let bad = "- {namespace: ns, max_value: 1, seconds: 60}\n\
               - {namespace: ns, max_value: 1, seconds: 60, conditions: [\"size(a) > 1\"]}\n";
    let folder = folder("of-limitador", &[("a.yaml", LIMITADOR), ("bad.yaml", bad)]);
    let hint = "tidegate import limitador FILE > policy.toml";
    let error = "a.yaml:1:1: error: this is a file of Limitador";
    tidegate_in(&folder, &["validate", "a.yaml"], b"").with(1).err(&[error, hint]);
    let import = ["import", "limitador", "a.yaml"];
    let policy = tidegate_in(&folder, &import, b"").with(0).silent_err().out;
    assert!(policy.contains("# a.yaml:1:3: the limit\n[[rule]]\n"), "{policy}");
    let stdin = tidegate_in(&folder, &["import", "limitador", "-"], LIMITADOR.as_bytes()).with(0);
    assert_eq!(stdin.out, policy.replace("a.yaml", "<stdin>"));
    tidegate_in(&folder, &["validate", "-"], policy.as_bytes()).with(0).silent_err();
    tidegate_in(&folder, &["import", "limitador", "bad.yaml"], b"")
        .with(1)
        .silent_out()
        .err(&["bad.yaml:2:59: error: the condition `size(a) > 1` is not supported"]);
    tidegate_in(&folder, &["import", "limitador", "none.yaml"], b"").with(2).silent_out();
}

#[test]
fn explain_speaks_of_the_limits_in_an_imported_file() {
    let tree = "domain: edge\ndescriptors:\n  - key: path\n    value: /login\n    descriptors:\n      - key: user\n        \
                rate_limit: { unit: minute, requests_per_unit: 5 }\n  - key: plan\n    value: gold\n    rate_limit: \
                { unlimited: true }\n  - key: all\n    value: all\n    rate_limit: { unit: hour, requests_per_unit: 9 }\n";
    let folder = folder("explain-imported", &[("a.yaml", tree), ("limits.yaml", LIMITADOR)]);
    let converted = tidegate_in(&folder, &["import", "limitador", "limits.yaml"], b"").with(0).out;
    let arguments = ["validate", "--explain", "a.yaml", "-"];
    let ended = tidegate_in(&folder, &arguments, converted.as_bytes()).with(0);
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "applies to descriptors of domain `edge` with the entries path = /login, user (any value), in this \
         order. Each value of user has its own limit. At most 5 in each window of 1m;",
        "whose only entry is plan = gold. They are not limited.",
        "whose only entry is all = all. All of them share one limit. At most 9 in each window of 1h;",
        "Each user has its own limit. At most 1 in each window of 1m;",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    for private in ["1.path", "entries of the descriptor", "group"] {
        assert!(!words.contains(private), "{private}: {words}");
    }
}

#[test]
fn explain_describes_each_rule() {
    let ended = tidegate(&["validate", "--explain", "examples/policies/api.toml"]).with(0);
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "ok, 6 rules in 5 domains",
        "`relay-messages` applies to all requests of domain `relay`.",
        "One every 1s; at most 10 at once and 70 in any 1m.",
        "At most 3 in flight at once.",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    assert!(ended.out.lines().all(|line| line.chars().count() <= 100), "{}", ended.out);
}

#[test]
fn all_errors_of_all_files_are_reported_at_once() {
    let folder = folder("all-errors", &[("a.toml", TYPO), ("b.toml", ODD), ("c.toml", GOOD)]);
    tidegate_in(&folder, &["validate", "a.toml", "b.toml", "c.toml"], b"")
        .with(1)
        .err(&[
            "a.toml:3:26: error: unknown field `burts` in a bucket",
            "^^^^^",
            "= hint: did you mean `burst`?",
            "a.toml:7:18: error: `max` must be at least 1",
            "b.toml:7:8: warning: ",
        ])
        .out(&[
            "a.toml: not ok, 2 errors\n",
            "b.toml: ok with 1 warning, 2 rules in 1 domain, at most 2 checked per request\n",
            "c.toml: ok, 1 rule in 1 domain, at most 1 checked per request\n",
        ]);
}

#[test]
fn strict_makes_warnings_errors() {
    let folder = folder("strict", &[("odd.toml", ODD)]);
    tidegate_in(&folder, &["validate", "odd.toml"], b"").with(0).err(&["warning: "]);
    tidegate_in(&folder, &["validate", "--strict", "odd.toml"], b"")
        .with(1)
        .err(&["odd.toml:7:8: error: "])
        .out(&["odd.toml: not ok, 1 error\n"]);
    let mut by_environment = crate::run::command(&folder);
    by_environment.args(["validate", "odd.toml"]).env("TIDEGATE_STRICT", "1");
    let _ = finish(&mut by_environment, b"").with(1);
    let _ = finish(by_environment.env("TIDEGATE_STRICT", "0"), b"").with(0);
    let _ = finish(by_environment.env("TIDEGATE_STRICT", ""), b"").with(0);
}

#[test]
fn dash_reads_stdin() {
    let folder = folder("stdin", &[]);
    tidegate_in(&folder, &["validate", "-"], GOOD.as_bytes()).with(0).out(&["<stdin>: ok, 1 rule"]);
    tidegate_in(&folder, &["validate", "-"], TYPO.as_bytes()).with(1).err(&["<stdin>:3:26: error"]);
}

#[test]
fn an_empty_policy_is_an_error_with_a_hint() {
    let folder = folder("empty", &[("empty.toml", "")]);
    let _ = tidegate_in(&folder, &["validate", "empty.toml"], b"").with(1).err(&["empty.toml:1:1"]);
}

#[test]
fn test_file_in_place_of_a_policy_has_a_hint() {
    let folder = folder("not-a-policy", &[("x.toml", "[[case]]\nexpect = 'allow'\n")]);
    for args in [&["validate", "x.toml"][..], &["test", "x.toml", "x.toml"]] {
        let ended = tidegate_in(&folder, args, b"");
        let _ =
            ended.err(&["x.toml:1:3: error: unknown field `case`", "`tidegate test POLICY CASES`"]);
    }
}

#[test]
fn json_has_files_domains_and_diagnostics() {
    let folder = folder("json", &[("good.toml", GOOD), ("odd.toml", ODD), ("typo.toml", TYPO)]);
    let args =
        ["validate", "--format=json", "--explain", "good.toml", "odd.toml", "typo.toml", "no"];
    let ended = tidegate_in(&folder, &args, b"").with(2).silent_err();
    let json = ended.json();
    assert_eq!(json["ok"], false);
    let files = json["files"].as_array().unwrap();
    let (good, odd, typo, missing) = (&files[0], &files[1], &files[2], &files[3]);
    assert_eq!(good["file"], "good.toml");
    assert_eq!(good["ok"], true);
    assert_eq!(good["rules"], 1);
    assert_eq!(good["domains"][0]["name"], "relay");
    assert_eq!(good["domains"][0]["candidates"], 1);
    assert_eq!(good["explained"][0]["rule"], "messages");
    assert!(good["explained"][0]["description"].as_str().unwrap().contains("One every 1s"));
    assert_eq!(odd["ok"], true);
    assert_eq!(odd["diagnostics"][0]["severity"], "warning");
    assert_eq!(typo["ok"], false);
    assert_eq!(typo["diagnostics"][0]["line"], 3);
    assert_eq!(typo["diagnostics"][0]["column"], 26);
    assert_eq!(typo["diagnostics"][0]["hint"], "did you mean `burst`?");
    assert_eq!(missing["ok"], false);
    assert_eq!(missing["diagnostics"][0]["line"], serde_json::Value::Null);
}

#[test]
fn github_format_prints_workflow_commands() {
    let folder = folder("github", &[("typo,1.toml", TYPO), ("odd.toml", ODD)]);
    let ended =
        tidegate_in(&folder, &["validate", "--format=github", "typo,1.toml", "odd.toml"], b"")
            .with(1);
    let mut lines = ended.out.lines();
    assert_eq!(
        lines.next().unwrap(),
        "::error file=typo%2C1.toml,line=3,col=26::unknown field `burts` in a bucket%0A\
         hint: did you mean `burst`?"
    );
    assert!(ended.out.lines().all(|line| line.starts_with("::")), "{ended:#?}");
    let _ = ended.out(&["::warning file=odd.toml,line=7,col=8::"]).err(&["typo,1.toml: not ok"]);
}

#[test]
fn format_flag_overrides_the_environment() {
    let folder = folder("environment", &[("good.toml", GOOD)]);
    let mut command = crate::run::command(&folder);
    command.args(["validate", "good.toml"]).env("TIDEGATE_FORMAT", "json");
    assert_eq!(finish(&mut command, b"").with(0).json()["ok"], true);
    let _ = finish(command.arg("--format=text"), b"").with(0).out(&["good.toml: ok"]);
    let mut command = crate::run::command(&folder);
    command.args(["explain", "good.toml"]).env("TIDEGATE_FORMAT", "github");
    let _ = finish(&mut command, b"")
        .with(2)
        .err(&["TIDEGATE_FORMAT=github is set in the environment"]);
}
