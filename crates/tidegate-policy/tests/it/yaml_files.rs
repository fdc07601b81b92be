//! Several files of envoyproxy/ratelimit: domains that are in two of them, and options that the
//! files have no place for.

use tidegate::policy::{
    MetadataValue, Mode, Parsed, Policy, PolicyErrors, PolicyFile, YamlOptions,
};
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock};

fn file(name: &str, text: &str) -> PolicyFile {
    PolicyFile { name: name.into(), bytes: text.into() }
}

fn merged(files: &[PolicyFile]) -> Result<Parsed, PolicyErrors> {
    Policy::load_files_with(files, YamlOptions::default().merge_domains(true))
}

fn error(files: &[PolicyFile]) -> String {
    Policy::load_files(files).expect_err("an error").to_string()
}

/// The rule that a descriptor finds.
fn rule(policy: &Policy, entries: &[(&str, &str)]) -> Option<String> {
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let engine = StoreEngine::builder(policy.clone()).clock(clock).build().unwrap();
    let report = engine.check(&Request::new("edge", entries)).block().unwrap();
    report.rule().map(|rule| rule.name().into())
}

const LIMIT: &str = "rate_limit: {unit: day, requests_per_unit: 1}";

#[test]
fn a_domain_in_two_files_is_an_error_that_names_both_places() {
    let one = format!("# edge\ndomain: edge\ndescriptors: [{{key: a, {LIMIT}}}]\n");
    let two = format!("---\n# more\n\ndomain:   edge\ndescriptors: [{{key: b, {LIMIT}}}]\n");
    let native = "[[rule]]\nname = 'n'\ndomain = 'edge'\ncooldown = '1s'\n";
    let default = "[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let of_default = format!("domain: default\ndescriptors: [{{key: b, {LIMIT}}}]\n");
    let cases = [
        ([file("1.yaml", &one), file("2.yaml", &two)], "2.yaml:4:11: ", "1.yaml:2:9"),
        ([file("1.toml", native), file("2.toml", native)], "2.toml:3:10: ", "1.toml:3:10"),
        // Files in YAML are read last.
        ([file("1.yaml", &one), file("2.toml", native)], "1.yaml:2:9: ", "2.toml:3:10"),
        ([file("1.toml", default), file("2.yaml", &of_default)], "2.yaml:1:9: ", "1.toml:1:1"),
    ];
    for (files, second, first) in cases {
        let error = error(&files);
        assert!(error.starts_with(&format!("{second}error: domain `")), "{error}");
        assert!(error.contains("` appears twice"), "{error}");
        assert!(error.contains(&format!("note: the first is at {first}")), "{error}");
        assert!(error.contains("merge_domains"), "{error}");
    }
    // Two documents of one file, and all domains that are there twice.
    let twice = format!("{one}---\n{one}");
    assert!(error(&[file("1.yaml", &twice)]).starts_with("1.yaml:6:9: error: domain `edge`"));
    let other = format!("domain: other\ndescriptors: [{{key: a, {LIMIT}}}]\n");
    let both = format!("{one}---\n{other}");
    let all = error(&[file("1.yaml", &both), file("2.yaml", &both)]);
    assert!(all.contains("2.yaml:2:9: ") && all.contains("2.yaml:5:9: "), "{all}");
}

#[test]
fn merged_files_are_one_tree() {
    let files = [
        file("1.yaml", &format!("domain: edge\ndescriptors:\n  - {{key: path, {LIMIT}}}\n")),
        file(
            "2.yaml",
            &format!(
                "domain: edge\ndescriptors:\n  - {{key: path, value: /a, {LIMIT}}}\n  - {{key: path, \
                 value: /a*, {LIMIT}}}\n"
            ),
        ),
        file("3.yaml", &format!("domain: edge\ndescriptors: [{{key: path, value: '*', {LIMIT}}}]")),
        file("4.yaml", "domain: edge\ndescriptors: []\n"),
    ];
    let policy = merged(&files).unwrap().policy;
    // The exact value first, then patterns in the order of the files, then the key alone.
    assert_eq!(rule(&policy, &[("path", "/a")]).as_deref(), Some("path_/a"));
    assert_eq!(rule(&policy, &[("path", "/ab")]).as_deref(), Some("path_/a*"));
    assert_eq!(rule(&policy, &[("path", "/b")]).as_deref(), Some("path_*"));
    let again = Policy::from_toml(&policy.to_toml()).unwrap();
    assert_eq!(again, policy, "the option is in the text");
    // The setting in a file does the same, and an option overrides it.
    let server = file("0.toml", "[server]\nmerge_domains = true\n");
    let with_server: Vec<_> = [server].into_iter().chain(files).collect();
    assert_eq!(Policy::load_files(&with_server).unwrap().policy, policy);
    let off = YamlOptions::default().merge_domains(false);
    assert!(Policy::load_files_with(&with_server, off).is_err());
}

#[test]
fn a_descriptor_in_two_merged_files_is_an_error_that_names_both_places() {
    let text = format!("domain: edge\ndescriptors:\n  - {{key: a, value: v, {LIMIT}}}\n");
    let error = merged(&[file("1.yaml", &text), file("2.yaml", &format!("\n{text}"))]);
    let error = error.expect_err("twice").to_string();
    assert!(error.starts_with("2.yaml:4:5: error: descriptor `a_v` appears twice"), "{error}");
    assert!(error.contains("note: the first is at 1.yaml:3:5"), "{error}");
}

#[test]
fn errors_of_several_files_have_their_own_positions() {
    let wrong = "domain: größe\ndescriptors:\n  - {key: a, shadow: true}\n";
    let other = "domain: b\ndescriptors:\n  - key: a\n    rate_limit: {unit: eon}\n";
    let files = [
        file("1.yaml", wrong),
        file("2.yaml", "a: [\n"),
        file("3.yaml", other),
        PolicyFile { name: "4.yaml".into(), bytes: b"domain: \xff".to_vec() },
    ];
    for error in [error(&files), merged(&files).expect_err("an error").to_string()] {
        for at in ["1.yaml:3:14: ", "2.yaml:2:1: ", "3.yaml:4:24: ", "4.yaml:1:9: "] {
            assert!(error.contains(at), "no {at} in {error}");
        }
    }
}

#[test]
fn all_descriptors_can_be_in_quota_mode() {
    let text = format!(
        "domain: edge\ndescriptors:\n  - {{key: a, {LIMIT}}}\n  - {{key: b, shadow_mode: true, \
         {LIMIT}}}\n"
    );
    let files = [file("1.yaml", &text)];
    let modes = |policy: &Policy| -> Vec<(bool, Mode)> {
        policy.rules().iter().map(|it| (it.is_in_quota_mode(), it.mode())).collect()
    };
    let ordinary = Policy::load_files(&files).unwrap().policy;
    assert_eq!(modes(&ordinary), [(false, Mode::Enforce), (false, Mode::Shadow)]);
    let on = YamlOptions::default().quota_mode(true);
    let quota = Policy::load_files_with(&files, on).unwrap().policy;
    assert_eq!(modes(&quota), [(true, Mode::Shadow), (false, Mode::Shadow)]);
    assert!(quota.settings().quota_mode());
    assert_eq!(Policy::from_toml(&quota.to_toml()).unwrap(), quota);
    let server = file("0.toml", "[server]\nquota_mode = true\n");
    let [yaml] = files;
    assert_eq!(Policy::load_files(&[server, yaml]).unwrap().policy, quota);
}

#[test]
fn metadata_is_kept_and_what_cannot_be_passed_on_is_an_error() {
    let metadata = "{model: {name: large, tier: 2, price: 0.5}, tags: [a, true], 'n': '1'}";
    let text =
        format!("domain: edge\ndescriptors:\n  - {{key: a, metadata: {metadata}, {LIMIT}}}\n");
    let policy = Policy::load("f.yaml", text.as_bytes()).unwrap().policy;
    let toml = policy.to_toml();
    let written = "metadata       = { model = { name = \"large\", price = 0.5, tier = 2.0 }, n = \"1\", \
                   tags = [\"a\", true] }";
    assert!(toml.contains(written), "{toml}");
    assert_eq!(Policy::from_toml(&toml).unwrap(), policy);
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let engine = StoreEngine::builder(policy).clock(clock).build().unwrap();
    let report = engine.check(&Request::new("edge", &[("a", "v")])).block().unwrap();
    let metadata = report.rules().find_map(|rule| rule.metadata.cloned()).unwrap();
    let (_, first) = metadata.iter().next().unwrap();
    assert!(matches!(first, MetadataValue::Table(it) if it.iter().count() == 3), "{first:?}");
    let deep = format!("{}1{}", "[".repeat(20), "]".repeat(20));
    for (wrong, at) in [
        ("text", "f.yaml:3:2"),
        ("[1]", "f.yaml:3:2"),
        ("{a: }", "f.yaml:3:2"),
        ("{a: [~]}", "f.yaml:3:2"),
        (&format!("{{a: {deep}}}"), "nested deeper"),
    ] {
        let text =
            format!("domain: edge\ndescriptors:\n  - {{key: a, metadata: {wrong}, {LIMIT}}}\n");
        let error = Policy::load("f.yaml", text.as_bytes()).expect_err(wrong).to_string();
        assert!(error.contains(at), "no {at} in {error}");
    }
    for wrong in [
        "1",
        "[]",
        "{ a = 2026-01-01 }",
        "{ a = nan }",
        "{ a = [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]] }",
    ] {
        let text = format!("[[rule]]\nname = 'n'\ncooldown = '1s'\nmetadata = {wrong}\n");
        let error = Policy::from_toml(&text).expect_err(wrong).to_string();
        assert!(error.starts_with("policy.toml:4:"), "{error}");
    }
}
