//! The schema of the policy file is the committed one, and agrees with the parser.

use std::path::Path;

use serde_json::Value;
use tidegate::policy::{Policy, schema};

const SAMPLE: &str = include_str!("../../../tidegate-policy/tests/it/sample.toml");

/// `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test it schema` regenerates the file.
#[test]
fn committed_schema_is_current() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/policy.schema.json");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, schema()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == schema(), "run this test with TIDEGATE_BLESS=1 to regenerate it");
}

fn is_valid(toml: &str) -> bool {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let table: toml::Table = toml.parse().unwrap();
    validator.is_valid(&serde_json::to_value(table).unwrap())
}

#[test]
fn schema_is_a_valid_json_schema() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
}

#[test]
fn parser_and_schema_agree() {
    assert!(is_valid(SAMPLE));
    for (line, fine) in [
        ("cooldown = '1h30m'", true),
        ("cooldown = '15 min'", true),
        ("cooldown = 60", false),
        ("cooldown = '60'", false),
        ("bucket = { rate = '1_000/s' }", true),
        ("bucket = { rate = '100 per 15m', burst = 5, debt = 2 }", true),
        ("bucket = { rate = '1 per 6 seconds' }", true),
        ("bucket = { rate = '1/s', burst = 0 }", false),
        ("bucket = { rate = '1/s', burst = 1.5 }", false),
        ("bucket = { rate = '1/s', burts = 5 }", false),
        ("bucket = { rate = '0.5/s' }", false),
        ("bucket = { burst = 5 }", false),
        ("bucket = { rate = '1/s' }\ncooldown = '1s'", false),
        ("mode = 'shadow'", false),
        ("cooldown = '1s'\nmode = 'shadow'", true),
        ("cooldown = '1s'\nmode = 'shadwo'", false),
        ("cooldown = '1s'\nmatch = { tier = [1, '2..'] }", true),
        ("cooldown = '1s'\nmatch = { tier = [] }", false),
        ("cooldown = '1s'\nmatch = { tier = 1.5 }", false),
        ("cooldown = '1s'\ncost = 3", true),
        ("cooldown = '1s'\ncost = 0", false),
        ("cooldown = '1s'\ncost = { by = 'tier', '1..' = 3 }", true),
        ("cooldown = '1s'\ncost = { '1..' = 3 }", false),
        ("window = { max = 5, per = '1s', align = 'epoch' }", true),
        ("window = { max = 4294967296, per = '1s' }", false),
        ("sliding = { max = 5, per = '1s', parts = 16 }", false),
        ("quota = { max = 5, per = 'day', carry = 'all' }", true),
        ("quota = { max = 5, per = 'day', carry = 10 }", true),
        ("quota = { max = 5, per = 'day', debt = 'all' }", true),
        ("quota = { max = 5, per = 'day', debt = 10 }", true),
        ("quota = { max = 5, per = 'day', debt = 0 }", false),
        ("quota = { max = 5, per = 'day', carry = 'some' }", false),
        ("slots = { max = 1, queue = 0, wait = '1s', priority = 'plan' }", true),
        (
            "key = ['ip']\ncooldown = '1s'\noverride = [{ key = { ip = '10.0.0.1' }, unlimited = true }]",
            true,
        ),
        ("key = ['ip']\ncooldown = '1s'\noverride = [{ unlimited = true }]", false),
        ("key = 'ip'\ncooldown = '1s'", false),
    ] {
        let text = format!("[[rule]]\nname = 'a'\n{line}\n");
        let parsed = Policy::from_toml(&text);
        assert_eq!(parsed.is_ok(), fine, "the parser on {line}: {parsed:?}");
        assert_eq!(is_valid(&text), fine, "the schema on {line}");
    }
    for (line, fine) in
        [("enforce = 0.5", true), ("enforce = 1.5", false), ("enforce = 'all'", true)]
    {
        let text = format!("rule = [{{ name = 'a', cooldown = '1s' }}]\n[server]\n{line}\n");
        assert_eq!(Policy::from_toml(&text).is_ok(), fine, "the parser on {line}");
        assert_eq!(is_valid(&text), fine, "the schema on {line}");
    }
}
