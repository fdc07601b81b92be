//! Policies as TOML: what is written parses to the same policy.

use std::path::Path;
use std::time::Duration;

use tidegate::policy::{
    Condition, CostTable, Grant, Limit, Override, Parsed, Pattern, Periods, Policy, Rule,
    RuleBuilder, Slots,
};
use tidegate::{
    Bucket, Cooldown, Rate, Window,
    limiter::Debt,
    policy::{Carry, Quota},
};

use crate::sample::SAMPLE;
use crate::seconds;

/// The TOML of a policy, which parses to the same policy and is written the same way again.
fn written(policy: &Policy) -> String {
    let text = policy.to_toml();
    let read = Policy::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(&read, policy, "{text}");
    assert_eq!(read.to_toml(), text);
    text
}

/// The TOML of a file, which parses to the same policy and settings and is written the same way again.
fn reread(text: &str) -> String {
    rewritten(&parsed(text))
}

fn rewritten(file: &Parsed) -> String {
    let text = file.to_toml();
    let read = parsed(&text);
    assert_eq!((&read.policy, &read.server), (&file.policy, &file.server), "{text}");
    assert_eq!(read.to_toml(), text);
    written(&file.policy);
    text
}

fn parsed(text: &str) -> Parsed {
    let parsed = Policy::parse("policy.toml", text.as_bytes());
    parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn a_rule_with_every_field_is_written_in_this_form() {
    const RICH: &str = r#"[server]
http            = "127.0.0.1:8080"
grpc            = "off"
trusted_proxies = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
enforce         = 0.1

[[rule]]
name           = "search"
domain         = "api"
match          = { path = "/search/*", method = ["GET", "HEAD"], "x y" = "..=1000", ip = "10.0.0.0/8" }
key            = ["ip/56", "ip4/24", "user"]
bucket         = { rate = "100 per 15m", burst = 20, debt = 5 }
cost           = { by = "tier", "1..=4" = 1, "5.." = 2, free = 3 }
deny           = "slow down,\nplease"
mode           = "shadow"
group          = "search"
override       = [
    { key = { user = "ada" }, rate = "10/s" },
    { key = { user = ["bob", "e*"], ip = "192.0.2.7" }, burst = 7, debt = "none", until = "2027-01-01T00:00:00Z" },
    { key = { user = "root" }, unlimited = true },
]
on_error       = "deny"
missing        = "share"
durability     = "fsync"
reserve_for    = "1h30m"
charge_refused = true
effective      = "next"

[[rule]]
name     = "ping"
cooldown = "250ms"
"#;
    assert_eq!(reread(RICH), RICH);
}

#[test]
fn a_local_share_is_written_with_as_many_decimals_as_it_needs() {
    for (given, written) in [
        ("0.25", "0.25"),
        ("0.250000", "0.25"),
        ("0.000001", "0.000001"),
        ("1", "1.0"),
        ("1.0", "1.0"),
        ("+0.5", "0.5"),
    ] {
        let text = reread(&format!(
            "[[rule]]\nname = 'n'\nwindow = {{ max = 9, per = '1s' }}\non_error = {{ local = {given} }}\n"
        ));
        assert!(text.contains(&format!("on_error = {{ local = {written} }}\n")), "{given}: {text}");
    }
}

/// Each field of a rule, alone, as it is written; `None` where it is the default and is omitted.
#[test]
fn every_field_of_a_rule_is_written_unless_it_is_the_default() {
    for (line, expected) in [
        ("domain = 'default'", None),
        ("domain = 'api'", Some(r#"domain = "api""#)),
        ("match = {}", None),
        ("match = { b = 5, a = ['x'] }", Some(r#"match = { b = "5", a = "x" }"#)),
        ("match = { a = '' }", Some(r#"match = { a = "" }"#)),
        ("match = { a = '..' }", Some(r#"match = { a = ".." }"#)),
        (
            "match = { a = ['1..5', '-9223372036854775808..'] }",
            Some(r#"match = { a = ["1..=4", "..=9223372036854775807"] }"#),
        ),
        ("match = { ip = '::ffff:10.0.0.0/104' }", Some(r#"match = { ip = "10.0.0.0/8" }"#)),
        ("key = ['ip']", Some(r#"key = ["ip"]"#)),
        ("key = ['ip/64']", Some(r#"key = ["ip"]"#)),
        ("key = ['ip4/8']", Some(r#"key = ["ip4/8"]"#)),
        ("key = ['a/b', 'ip4/8', 'c', 'ip/1']", Some(r#"key = ["a/b", "ip/1", "ip4/8", "c"]"#)),
        ("cost = 7", Some("cost = 7")),
        (
            "cost = { by = 'a', x = 9223372036854775807 }",
            Some(r#"cost = { by = "a", x = 9223372036854775807 }"#),
        ),
        ("deny = 'no'", Some(r#"deny = "no""#)),
        ("mode = 'enforce'", None),
        ("mode = 'shadow'", Some(r#"mode = "shadow""#)),
        ("group = 'g'", Some(r#"group = "g""#)),
        ("on_error = 'allow'", Some(r#"on_error = "allow""#)),
        ("on_error = 'deny'", Some(r#"on_error = "deny""#)),
        ("missing = 'refuse'", None),
        ("missing = 'skip'", Some(r#"missing = "skip""#)),
        ("missing = 'share'", Some(r#"missing = "share""#)),
        ("empty = 'accept'", None),
        ("empty = 'reject'", Some(r#"empty = "reject""#)),
        ("durability = 'memory'", Some(r#"durability = "memory""#)),
        ("durability = 'flush'", Some(r#"durability = "flush""#)),
        ("durability = 'fsync'", Some(r#"durability = "fsync""#)),
        ("reserve_for = '600s'", None),
        ("reserve_for = '1w1ns'", Some(r#"reserve_for = "7d1ns""#)),
        ("charge_refused = false", None),
        ("charge_refused = true", Some("charge_refused = true")),
        ("effective = 'now'", None),
        ("effective = 'next'", Some(r#"effective = "next""#)),
        ("override = []", None),
    ] {
        let text = reread(&format!("[[rule]]\nname = 'n'\ncooldown = '1s'\n{line}\n"));
        let lines = text.lines().skip(1).map(plain);
        let rest: Vec<_> = lines
            .filter(|it| !["name = \"n\"", "cooldown = \"1s\""].contains(&it.as_str()))
            .collect();
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(rest, expected, "{line}");
    }
}

/// A line without its alignment.
fn plain(line: &str) -> String {
    let (name, value) = line.split_once(" = ").unwrap();
    format!("{} = {value}", name.trim())
}

#[test]
fn every_limit_is_written_without_its_defaults() {
    for (limit, expected) in [
        ("bucket = { rate = '10/s', burst = 10 }", r#"bucket = { rate = "10/s" }"#),
        ("bucket = { rate = '60 per 1m' }", r#"bucket = { rate = "60/m" }"#),
        (
            "bucket = { rate = '1 per 7d', burst = 3, debt = 4 }",
            r#"bucket = { rate = "1 per 7d", burst = 3, debt = 4 }"#,
        ),
        ("bucket = { rate = '5 per 11s' }", r#"bucket = { rate = "5 per 11s" }"#),
        (
            "bucket = { rate = '10000000000000000000/m' }",
            r#"bucket = { rate = "10000000000000000000/m" }"#,
        ),
        ("window = { max = 3, per = '36h' }", r#"window = { max = 3, per = "1d12h" }"#),
        (
            "window = { max = 3, per = '1h', align = 'epoch' }",
            r#"window = { max = 3, per = "1h", align = "epoch" }"#,
        ),
        ("sliding = { max = 3, per = '1h', parts = 10 }", r#"sliding = { max = 3, per = "1h" }"#),
        (
            "sliding = { max = 3, per = '1h', parts = 15 }",
            r#"sliding = { max = 3, per = "1h", parts = 15 }"#,
        ),
        ("cooldown = '1.5us'", r#"cooldown = "1us500ns""#),
        ("quota = { max = 3, per = 'day', carry = 'none' }", r#"quota = { max = 3, per = "day" }"#),
        (
            "quota = { max = 3, per = 'month in europe/helsinki', carry = 'all' }",
            r#"quota = { max = 3, per = "month in Europe/Helsinki", carry = "all" }"#,
        ),
        (
            "quota = { max = 3, per = 'round', carry = 9 }",
            r#"quota = { max = 3, per = "round", carry = 9 }"#,
        ),
        ("quota = { max = 3, per = 'day', debt = 'all' }", r#"quota = { max = 3, per = "day" }"#),
        (
            "quota = { max = 3, per = 'day', debt = 'none' }",
            r#"quota = { max = 3, per = "day", debt = "none" }"#,
        ),
        (
            "quota = { max = 3, per = 'day', debt = 7 }",
            r#"quota = { max = 3, per = "day", debt = 7 }"#,
        ),
        (
            "slots = { max = 3, queue = 1024, wait = 'none', expires = '10m' }",
            "slots = { max = 3 }",
        ),
        (
            "slots = { max = 3, queue = 0, wait = '1s', expires = '1s', priority = 'p' }",
            r#"slots = { max = 3, queue = 0, wait = "1s", expires = "1s", priority = "p" }"#,
        ),
    ] {
        let text = reread(&format!("[[rule]]\nname = 'n'\n{limit}\n"));
        assert_eq!(plain(text.lines().nth(2).unwrap()), expected, "{limit}");
    }
}

#[test]
fn an_override_is_written_as_what_it_changes() {
    for (limit, given, expected) in [
        ("bucket = { rate = '1/s', burst = 9 }", "rate = '2/s'", r#"rate = "2/s""#),
        ("bucket = { rate = '1/s', burst = 9 }", "burst = 9", r#"rate = "1/s""#),
        ("bucket = { rate = '1/s' }", "rate = '7/s'", r#"rate = "7/s""#),
        ("bucket = { rate = '1/s' }", "rate = '60/m'", r#"rate = "60/m""#),
        // The rule has an explicit burst, which cannot be distinguished from the default.
        ("bucket = { rate = '1/s', burst = 1 }", "rate = '7/s'", r#"rate = "7/s", burst = 1"#),
        ("bucket = { rate = '1/s', debt = 2 }", "debt = 0", r#"debt = "none""#),
        ("bucket = { rate = '1/s' }", "debt = 2", "debt = 2"),
        ("window = { max = 3, per = '1h', align = 'epoch' }", "per = '2h'", r#"per = "2h""#),
        ("sliding = { max = 3, per = '1h', parts = 3 }", "parts = 10", "parts = 10"),
        ("sliding = { max = 3, per = '1h' }", "max = 4, parts = 3", "max = 4, parts = 3"),
        ("cooldown = '1s'", "cooldown = '1s'", r#"cooldown = "1s""#),
        ("quota = { max = 3, per = 'day', carry = 5 }", "carry = 'none'", r#"carry = "none""#),
        ("quota = { max = 3, per = 'day', debt = 5 }", "debt = 'all'", r#"debt = "all""#),
        ("quota = { max = 3, per = 'day' }", "debt = 2", "debt = 2"),
        ("slots = { max = 3, wait = '1s', priority = 'p' }", "wait = 'none'", r#"wait = "none""#),
        ("slots = { max = 3, queue = 5 }", "queue = 1024", "queue = 1024"),
        ("slots = { max = 3 }", "max = 4, expires = '1s'", r#"max = 4, expires = "1s""#),
        ("slots = { max = 3 }", "unlimited = true", "unlimited = true"),
        (
            "cooldown = '1s'",
            "cooldown = '2s', until = 1970-01-01T00:00:00.000000001Z",
            r#"cooldown = "2s", until = "1970-01-01T00:00:00.000000001Z""#,
        ),
    ] {
        let text = reread(&format!(
            "[[rule]]\nname = 'n'\nkey = ['u']\n{limit}\noverride = [{{ key = {{ u = 'x' }}, {given} }}]"
        ));
        let line = text.lines().find(|line| line.starts_with("    ")).unwrap();
        assert_eq!(
            line,
            format!("    {{ key = {{ u = \"x\" }}, {expected} }},"),
            "{limit} {given}"
        );
    }
}

#[test]
fn every_field_of_the_server_is_written_unless_it_is_the_default() {
    let with = |line: &str| format!("[server]\n{line}\n[[rule]]\nname = 'n'\ncooldown = '1s'\n");
    for (line, expected) in [
        ("when_full = 'share'\nunmatched = 'allow'\nenforce = 1.0\nmax_keys = 16777216", None),
        ("http = 'localhost:1'", Some(r#"http = "localhost:1""#)),
        ("grpc = 'off'", Some(r#"grpc = "off""#)),
        ("resp = '[::1]:1'", Some(r#"resp = "[::1]:1""#)),
        ("unix = '/a b'", Some(r#"unix = "/a b""#)),
        ("unix = 'off'", Some(r#"unix = "off""#)),
        ("admin = 'off'", Some(r#"admin = "off""#)),
        (r#"tokens = "a\"b\\""#, Some(r#"tokens = "a\"b\\""#)),
        ("access = 'closed'", None),
        ("access = 'open'", Some(r#"access = "open""#)),
        ("hosts = ['A.example', 'b']", Some(r#"hosts = ["a.example", "b"]"#)),
        ("unix_users = ['a', 'b']", Some(r#"unix_users = ["a", "b"]"#)),
        ("unix_groups = ['a']", Some(r#"unix_groups = ["a"]"#)),
        ("unix_user_rate = '5 per 10s'", Some(r#"unix_user_rate = "5 per 10s""#)),
        ("unix_rate = '50/s'", Some(r#"unix_rate = "50/s""#)),
        ("headers = 'envoy-03'", Some(r#"headers = "envoy-03""#)),
        ("user_header = 'X-User'", Some(r#"user_header = "x-user""#)),
        ("encoded_slash = 'decode'", None),
        ("encoded_slash = 'keep'", Some(r#"encoded_slash = "keep""#)),
        ("merge_domains = true", Some("merge_domains = true")),
        ("quota_mode = true", Some("quota_mode = true")),
        ("response_metadata = true", Some("response_metadata = true")),
        ("merge_domains = false\nquota_mode = false\nresponse_metadata = false", None),
        ("log_keys = 'plain'", None),
        ("log_keys = 'hashed'", Some(r#"log_keys = "hashed""#)),
        ("max_connections = 7", Some("max_connections = 7")),
        ("max_connections_per_peer = 7", Some("max_connections_per_peer = 7")),
        ("max_received_bytes = 5_000_000", Some("max_received_bytes = 5000000")),
        ("max_unsent_bytes = 5_000_000", Some("max_unsent_bytes = 5000000")),
        ("store = 'redis://u:p@h/0'", Some(r#"store = "redis://u:p@h/0""#)),
        ("revision = 7", Some("revision = 7")),
        ("store_namespace = 'shop'", Some(r#"store_namespace = "shop""#)),
        ("store_secret = '0123456789abcdef'", Some(r#"store_secret = "0123456789abcdef""#)),
        ("store_password = 'p'", Some(r#"store_password = "p""#)),
        ("store_sentinel_user = 'u'", Some(r#"store_sentinel_user = "u""#)),
        ("store_sentinel_password = 'p'", Some(r#"store_sentinel_password = "p""#)),
        ("store_ca = 'ca.pem'", Some(r#"store_ca = "ca.pem""#)),
        ("store_cert = 'c.pem'", Some(r#"store_cert = "c.pem""#)),
        ("store_key = 'k.pem'", Some(r#"store_key = "k.pem""#)),
        ("store_replicas = 2", Some("store_replicas = 2")),
        ("store_deadline = '20ms'", Some(r#"store_deadline = "20ms""#)),
        (
            "trusted_proxies = ['::/0', '10.0.0.0/8']",
            Some(r#"trusted_proxies = ["::/0", "10.0.0.0/8"]"#),
        ),
        ("max_keys = 1", Some("max_keys = 1")),
        ("max_holds = 262144\nmax_idempotency_keys = 1048576", None),
        ("max_holds = 1", Some("max_holds = 1")),
        ("max_idempotency_keys = 1", Some("max_idempotency_keys = 1")),
        ("when_full = 'deny'", Some(r#"when_full = "deny""#)),
        ("unmatched = 'deny'", Some(r#"unmatched = "deny""#)),
        ("enforce = 'none'", Some(r#"enforce = "none""#)),
        ("enforce = 0.000001", Some("enforce = 0.000001")),
        ("enforce = 0.25", Some("enforce = 0.25")),
    ] {
        let text = reread(&with(line));
        let written = text.strip_prefix("[server]\n").map(|text| text.lines().next().unwrap());
        assert_eq!(written, expected, "{line}");
    }
}

#[test]
fn the_certificates_of_the_listeners_are_written_on_one_line() {
    let with = |line: &str| format!("{line}\n[[rule]]\nname = 'n'\ncooldown = '1s'\n");
    for (line, expected) in [
        (
            "[server.tls]\ncert = 'c'\nkey = 'k'\nclient_ca = 'a'",
            Some(r#"tls = { cert = "c", key = "k", client_ca = "a" }"#),
        ),
        (
            "[server.tls.http]\noff = true\n[server.tls.grpc]\nclient_ca = 'off'",
            Some(r#"tls = { http = { off = true }, grpc = { client_ca = "off" } }"#),
        ),
        ("[server.tls.resp]\n[server.tls.admin]\noff = false", None),
    ] {
        let text = reread(&with(line));
        let written = text.strip_prefix("[server]\n").map(|text| text.lines().next().unwrap());
        assert_eq!(written, expected, "{line}");
    }
}

#[test]
fn secrets_can_be_omitted() {
    let secret = "[server]\nstore = 'redis://u:p@s/s@h:1/0?x=y'\n\
                  store_secret = 'horse'\nstore_password = 'h'\nstore_sentinel_password = 'h'\n[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let mut file = parsed(secret);
    assert!(file.to_toml().contains("horse"), "the file itself has its secrets");
    file.server = file.server.without_secrets();
    let text = rewritten(&file);
    assert!(text.starts_with("[server]\nstore = \"redis://h:1/0\"\n\n[[rule]]"), "{text}");
    let file = parsed(&secret.replace("redis://u:p@s/s@h:1/0?x=y", "file:a@b"));
    assert_eq!(file.server.without_secrets().store(), Some("file:a@b"));
}

#[test]
fn secrets_are_not_printed_for_debugging() {
    let text = "[server]\nstore = 'redis://horse:ho/rse@h:1/0'\nstore_secret = 'horse'\nstore_password = 'horse'\n\
                store_sentinel_password = 'horse'\n[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let file = parsed(text);
    let debug = format!("{:?} {:?}", file.server, file);
    assert!(!debug.contains("horse") && !debug.contains("rse@"), "{debug}");
    assert!(debug.contains("redis://h:1/0"), "{debug}");
}

#[test]
fn errors_show_no_secrets_of_the_line() {
    for line in [
        "store = 'postgres://user:horse@h'",
        "store = 'redis://user:horse@h' junk",
        "store_password = 'horse' junk",
        "store_secret = ['horse']",
    ] {
        let text = format!("[server]\n{line}\n[[rule]]\nname = 'n'\ncooldown = '1s'\n");
        let errors = Policy::parse("p.toml", text.as_bytes()).unwrap_err().to_string();
        assert!(errors.contains("p.toml:2:") && !errors.contains("horse"), "{errors}");
    }
}

/// A store that daemons share has the policy: addresses and secrets of one of them are no part of it.
#[test]
fn a_policy_has_no_settings_of_a_daemon() {
    let file = parsed(SAMPLE);
    let alone = "[server]\nhttp = '127.0.0.1:1'\nstore_secret = 'horse'\nstore = 'memory'\n\
                 trusted_proxies = ['10.0.0.0/8']\nheaders = 'none'\nmax_connections = 7\n\
                 [[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let policy = parsed(alone).policy;
    assert!(policy.to_toml().starts_with("[[rule]]"), "{}", policy.to_toml());
    assert_eq!(policy, Policy::from_toml(&policy.to_toml()).unwrap());
    assert!(!format!("{:?}", file.policy).contains("127.0.0.1:8080"));
    assert!(file.to_toml().contains("127.0.0.1:8080"));
    let kept =
        "[server]\nmax_keys = 5\nunmatched = 'deny'\n[[rule]]\nname = 'n'\ncooldown = '1s'\n";
    let text = parsed(kept).policy.to_toml();
    assert!(text.starts_with("[server]\nmax_keys  = 5\nunmatched = \"deny\"\n"), "{text}");
}

#[test]
fn all_example_policies_survive_writing_and_parsing() {
    reread(SAMPLE);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".toml") && !name.ends_with(".test.toml") {
            reread(&std::fs::read_to_string(&path).unwrap());
            count += 1;
        }
    }
    assert!(count >= 4, "{count} examples");
}

#[test]
fn strings_with_special_characters_survive() {
    let odd = "\0\u{1}\u{8}\t\n\u{b}\u{c}\r\r\n\u{1b}\u{7f}\u{85}\u{9f}\"\\'''\"\"\"\u{ad}\u{61c}\
               \u{200b}\u{202e}\u{2028}\u{2069}\u{feff}\u{e0001}\u{10ffff}é\u{301}\u{1f600}#{}[]=,. ";
    let rule = || Rule::builder("ünï\u{202e}", cooldown(1)).domain("\u{feff}\"\\");
    let rule = rule().deny(odd).group(odd).matching("a\u{202e}.b\"", [odd, "*\r\n", ""]);
    let rule = rule.key(["a\u{2066}", "x/y", "ip/1"]);
    let rule =
        rule.cost(CostTable::by(odd).row(odd.parse().unwrap(), 1).row("".parse().unwrap(), 2));
    let text = written(&Policy::new([rule.build().unwrap()]).unwrap());
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{e0001}']));
    assert!(text.contains(r"\u0000\u0001\u0008\t\n\u000B\u000C\r\r\n\u001B\u007F"), "{text}");
    assert!(text.contains("é\u{301}\u{1f600}"), "printable characters are not escaped: {text}");
}

fn cooldown(secs: u64) -> Limit {
    Limit::Cooldown(Cooldown::new(seconds(secs)))
}

/// Rules that code can build but no file can express are rejected.
#[test]
fn rules_that_cannot_be_written_are_rejected() {
    let rule = || Rule::builder("a", cooldown(1)).key(["u"]);
    let of = |limit| Rule::builder("a", limit).key(["u"]);
    let u = || Condition::new("u", ["x"]).unwrap();
    let over =
        |rule: RuleBuilder, limit| rule.overridden(Override::new(vec![u()], Grant::Limit(limit)));
    let quota = |max, carry| Limit::Quota(Quota::new(max, carry), Periods::Round);
    let cost = |pattern, cost| rule().cost(CostTable::by("t").row(pattern, cost));
    let slots = Slots::new;
    let window = Window::new(1, seconds(1));
    let daily = Limit::Quota(Quota::new(1, Carry::All), Periods::Calendar("day".parse().unwrap()));
    let extended = Limit::Cooldown(Cooldown::new(seconds(1)).extended_by_refusals());
    for (rule, what) in [
        (Rule::builder(" ", cooldown(1)), "is empty"),
        (rule().domain("\u{2003}"), "is empty"),
        (rule().deny(""), "the reason or the group is empty"),
        (rule().group(" "), "the reason or the group is empty"),
        (rule().key([" "]), "attribute in the key is empty"),
        (of(Limit::Slots(slots(1).queue(1 << 32))), "`queue` is above"),
        (of(Limit::Slots(slots(1).priority(" "))), "`priority` is empty"),
        (of(extended.clone()), "charge_refused"),
        (over(rule(), extended), "charge_refused"),
        (over(of(Limit::Slots(slots(1))), Limit::Slots(slots(0))), "at least 1"),
        (over(of(Limit::Slots(slots(1))), Limit::Slots(slots(1).expires(seconds(0)))), "expire"),
        (over(of(Limit::Slots(slots(1))), Limit::Slots(slots(1).wait(seconds(0)))), "above zero"),
        (over(of(Limit::Slots(slots(1))), Limit::Slots(slots(1).priority("p"))), "cannot change"),
        (over(of(Limit::Window(window)), Limit::Window(window.aligned())), "cannot change"),
        (over(of(daily), quota(2, Carry::All)), "cannot change"),
        (cost(Pattern::Equals("by".into()), 1), "cannot be written"),
        (cost(Pattern::Glob("a".into()), 1), "cannot be written"),
        (cost(Pattern::Range(2, 1), 1), "cannot be written"),
        (cost(Pattern::Network([10, 0, 0, 1].into(), 8), 1), "cannot be written"),
        (rule().cost(CostTable::by("").row(Pattern::Equals("".into()), 1)), "by which attribute"),
        (
            rule().cost(CostTable::fixed(1).row(Pattern::Equals("a".into()), 2)),
            "by which attribute",
        ),
        (rule().overridden(Override::new(vec![u(), u()], Grant::Unlimited)), "of its key twice"),
    ] {
        let errors = Policy::new([rule.build().unwrap()]).expect_err(what).to_string();
        assert!(errors.contains(what), "{what}: {errors}");
    }
}

/// A leading `=` makes any text a literal.
#[test]
fn literals_that_look_like_other_patterns_are_written() {
    for text in ["1..=9", "10.0.0.1", "10.0.0.0/8", "10.0.0/8", "a*", "=", "=a", ""] {
        let pattern = Pattern::Equals(text.into());
        assert_eq!(pattern.to_string().parse(), Ok(pattern.clone()), "{text}");
        let cost = CostTable::by("t").row(pattern, 1);
        let policy =
            Policy::new([Rule::builder("a", cooldown(1)).cost(cost).build().unwrap()]).unwrap();
        assert_eq!(Policy::from_toml(&policy.to_toml()).unwrap(), policy, "{text}");
    }
    assert_eq!(Pattern::Equals("plain".into()).to_string(), "plain");
}

#[test]
fn infinite_durations_are_written_as_the_longest_of_a_file() {
    let forever = Slots::new(1).wait(Duration::MAX).expires(Duration::MAX);
    let rule = Rule::builder("a", Limit::Slots(forever)).reserve_for(Duration::MAX);
    let text = written(&Policy::new([rule.build().unwrap()]).unwrap());
    assert_eq!(text.matches("\"213503d23h34m33s709ms551us615ns\"").count(), 3, "{text}");
}

#[test]
fn numbers_beyond_the_range_of_toml_are_written() {
    const MOST: u64 = u64::MAX;
    let bucket = |count, burst, debt| {
        let rate = Rate::new(count, Duration::from_nanos(1));
        Limit::Bucket(Bucket::try_new(rate, burst).unwrap().with_debt(Debt::up_to(debt)).unwrap())
    };
    let quota = Quota::new(MOST, Carry::UpTo(MOST));
    let given = Override::new(
        vec![Condition::new("u", ["x"]).unwrap()],
        Grant::Limit(bucket(2, MOST - 1, 0)),
    );
    let text = written(
        &Policy::new(
            [
                Rule::builder("a", bucket(1, MOST, MOST - 1)).key(["u"]).overridden(given),
                Rule::builder("b", Limit::Quota(quota, Periods::Round))
                    .cost(CostTable::fixed(MOST)),
                Rule::builder("c", Limit::Slots(Slots::new(MOST))),
            ]
            .map(|rule| rule.build().unwrap()),
        )
        .unwrap(),
    );
    assert_eq!(text.matches("18446744073709551615").count(), 5, "{text}");
}
