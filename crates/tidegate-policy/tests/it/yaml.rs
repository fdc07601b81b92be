//! Files of envoyproxy/ratelimit and of Limitador: the examples of their documentation, and what is
//! wrong with files.

use tidegate::policy::{Attributes, Policy, PolicyErrors, PolicyFile, RuleId};
use tidegate::{
    Edit, Request, StoreEngine, Timestamp,
    clock::ManualClock,
    policy::{RequestLimit, WindowUnit},
};

type Entries<'a> = &'a [(&'a str, &'a str)];

struct Desk {
    engine: StoreEngine,
    clock: ManualClock,
}

impl Desk {
    fn new(text: &str) -> Self {
        let policy = load("limits.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
        let again = Policy::from_toml(&policy.to_toml()).expect("it can be written");
        assert_eq!(again.rules(), policy.rules(), "{}", policy.to_toml());
        let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
        Self { engine: StoreEngine::builder(policy).clock(clock.clone()).build().unwrap(), clock }
    }

    /// Which rule has spoken about a descriptor, and whether it is allowed.
    fn check(&self, domain: &str, entries: Entries<'_>) -> (Option<String>, bool) {
        let report = self.engine.check(&Request::new(domain, entries)).block().unwrap();
        let name = report.rule().map(RuleId::name);
        let rule = if report.details().is_unlimited(0) { Some("unlimited") } else { name };
        (rule.map(Into::into), report.is_allowed())
    }

    /// How many requests pass in a row.
    fn passes(&self, domain: &str, entries: Entries<'_>) -> usize {
        (0..1_000).take_while(|_| self.check(domain, entries).1).count()
    }
}

#[test]
fn messages_by_type_and_number() {
    let desk = Desk::new(
        "domain: messaging
descriptors:
  # At most five marketing messages a day and number.
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  # And at most 100 messages of any kind.
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 100
",
    );
    let marketing: Entries<'_> = &[("message_type", "marketing"), ("to_number", "2061111111")];
    assert_eq!(desk.passes("messaging", marketing), 5);
    let other: Entries<'_> = &[("message_type", "marketing"), ("to_number", "2062222222")];
    assert_eq!(desk.passes("messaging", other), 5, "a number has its own count");
    assert_eq!(desk.passes("messaging", &[("to_number", "2061111111")]), 100);
    for unmatched in [
        &[("message_type", "marketing")][..],
        &[("to_number", "1"), ("message_type", "marketing")],
        &[("message_type", "transactional"), ("to_number", "2061111111")],
        &[],
    ] {
        assert_eq!(desk.check("messaging", unmatched), (None, true), "{unmatched:?}");
    }
    assert_eq!(desk.check("other", marketing), (None, true));
    // The day ends for all at the same time.
    desk.clock.set(Timestamp::from_secs(12 * 86_400 - 1));
    assert_eq!(desk.passes("messaging", marketing), 0);
    desk.clock.set(Timestamp::from_secs(12 * 86_400));
    assert_eq!(desk.passes("messaging", marketing), 5);
}

#[test]
fn exceptions_for_addresses() {
    let desk = Desk::new(
        "domain: edge_proxy_per_ip
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  # On the black list
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: second, requests_per_unit: 0}
  # On the white list
  - {key: remote_address, value: 50.0.0.6}
  - key: remote_address
    value: 50.0.0.7
    rate_limit: {unlimited: true}
  - key: remote_address
    value: 10.0.0.0/8
    rate_limit: {unit: second, requests_per_unit: 3}
",
    );
    let passes = |value| desk.passes("edge_proxy_per_ip", &[("remote_address", value)]);
    assert_eq!(passes("192.0.2.1"), 10);
    assert_eq!(passes("50.0.0.5"), 0);
    assert_eq!(passes("50.0.0.6"), 1_000);
    assert_eq!(passes("50.0.0.7"), 1_000);
    assert_eq!(passes("10.0.0.0/8"), 3, "a text that looks like a network is a text");
    assert_eq!(passes("10.1.2.3"), 10);
    let check = |value| desk.check("edge_proxy_per_ip", &[("remote_address", value)]).0;
    assert_eq!(check("50.0.0.7").as_deref(), Some("unlimited"));
    assert_eq!(check("50.0.0.6"), None);
}

#[test]
fn wildcards_shadows_and_shared_counters() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: path
    value: /api/v1*
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: /api*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 4, name: shared}
  - key: path
    value: /api/v1/free
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
",
    );
    let passes = |value| desk.passes("d", &[("path", value)]);
    assert_eq!(passes("/api/v1/a"), 2, "the first that fits, in the order of the file");
    assert_eq!(passes("/api/v1/b"), 2, "each value has its own count");
    assert_eq!(passes("/api/x"), 4);
    assert_eq!(passes("/api/y"), 0, "unless they share it");
    assert_eq!(desk.check("d", &[("path", "/api/z")]), (Some("shared".into()), false));
    assert_eq!(passes("/api/v1/free"), 1_000, "shadow mode denies nothing");
    assert_eq!(passes("/other"), 9);
}

#[test]
fn a_request_never_backtracks_in_the_tree() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - key: a
    value: x
    descriptors:
      - key: b
        value: y
        rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a
    descriptors:
      - key: b
        rate_limit: {unit: minute, requests_per_unit: 2}
",
    );
    assert_eq!(desk.passes("d", &[("a", "x"), ("b", "y")]), 1);
    assert_eq!(desk.passes("d", &[("a", "z"), ("b", "y")]), 2);
    assert_eq!(desk.check("d", &[("a", "x"), ("b", "z")]), (None, true), "a dead end");
}

#[test]
fn several_documents_and_files_are_several_domains() {
    let one = |domain: &str, max: u32| {
        let limit = format!("{{unit: day, requests_per_unit: {max}}}");
        format!("domain: {domain}\ndescriptors: [{{key: k, rate_limit: {limit}}}]\n")
    };
    let desk = Desk::new(&format!("{}---\n{}", one("a", 1), one("b", 2)));
    assert_eq!(desk.passes("a", &[("k", "v")]), 1);
    assert_eq!(desk.passes("b", &[("k", "v")]), 2);
    let file = |name: &str, text: String| PolicyFile { name: name.into(), bytes: text.into() };
    let native = "[[rule]]\nname = \"n\"\nwindow = { max = 1, per = \"1s\" }\n".to_owned();
    let files = [file("a.yaml", one("a", 1)), file("n.toml", native)];
    assert_eq!(Policy::load_files(&files).expect("two domains").policy.rules().len(), 2);
}

#[test]
fn limits_of_limitador() {
    let desk = Desk::new(
        r#"
- namespace: test_namespace
  max_value: 10
  seconds: 60
  name: gets
  conditions:
    - "descriptors[0]['req.method'] == 'GET'"
  variables:
    - descriptors[0].user
- namespace: test_namespace
  max_value: 5
  seconds: 60
  conditions:
    - "req.method == 'POST' && int(descriptors[0].size) >= 100"
    - "descriptors[0].user != 'root'"
  variables: [user]
- {namespace: other, max_value: 0, seconds: 1, conditions: [], variables: []}
"#,
    );
    let get = |user| desk.passes("test_namespace", &[("req.method", "GET"), ("user", user)]);
    assert_eq!((get("ada"), get("bob"), get("ada")), (10, 10, 0));
    assert_eq!(desk.passes("test_namespace", &[("req.method", "GET")]), 1_000, "no variable");
    let post = |user, size| {
        desk.passes("test_namespace", &[("req.method", "POST"), ("user", user), ("size", size)])
    };
    assert_eq!((post("ada", "100"), post("bob", "99"), post("root", "100")), (5, 1_000, 1_000));
    assert_eq!(post("ada", "many"), 1_000, "not a number");
    assert_eq!(desk.passes("other", &[]), 0);
    // The window opens with the first request.
    desk.clock.set(Timestamp::from_millis(1_000_059_999));
    assert_eq!(get("ada"), 0);
    desk.clock.set(Timestamp::from_secs(1_000_060));
    assert_eq!(get("ada"), 10);
}

#[test]
fn limitador_reads_the_first_descriptor_only() {
    let desk = Desk::new("limits: [{namespace: n, max_value: 1, seconds: 9, variables: [user]}]");
    let entries = [("user", "ada")];
    let second = Request::with_attributes("n", Attributes::new(&entries).with_number(1));
    for _ in 0..3 {
        let report = desk.engine.check(&second).block().unwrap();
        assert!(report.is_allowed() && report.rule().is_none());
    }
    assert_eq!(desk.passes("n", &entries), 1);
}

#[test]
fn errors_say_where_and_what() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let envoy = |rest: &str| format!("domain: d\ndescriptors:\n{rest}");
    for (text, expected) in [
        ("descriptors: []".to_owned(), "1:1: error: the file has no `domain`"),
        ("# nothing".to_owned(), "1:1: error: the file has no limit"),
        (envoy(&format!("  - {{value: v, {limit}}}")), "3:5: error: the descriptor has no `key`"),
        (
            envoy(&format!("  - {{key: k, {limit}}}\n  - {{key: k, {limit}}}")),
            "4:5: error: descriptor `k` appears twice at this level",
        ),
        (
            envoy("  - key: k\n    rate_limits: {}\n"),
            "4:5: error: unknown field `rate_limits` in a descriptor",
        ),
        (
            envoy("  - key: k\n    rate_limit: {unlimited: true, unit: day}"),
            "4:41: error: an unlimited rate limit has no `unit`",
        ),
        (
            envoy("  - key: k\n    rate_limit: {unit: fortnight, requests_per_unit: 1}"),
            "4:24: error: `fortnight` is not a unit",
        ),
        (
            envoy("  - key: k\n    rate_limit: {unit: day, requests_per_unit: -1}"),
            "4:48: error: `requests_per_unit` is a whole number",
        ),
        (envoy("  - key: k\n    key: k"), "4:5: error: field `key` appears twice"),
        (envoy("  - {key: [}"), "error: not valid YAML"),
        ("just a text".to_owned(), "1:1: error: this is not a policy"),
        ("- {namespace: n, seconds: 1}".to_owned(), "1:3: error: the limit has no `max_value`"),
        (
            "- {namespace: n, max_value: 1, seconds: 0}".to_owned(),
            "1:41: error: `seconds` is a whole number from 1",
        ),
        (
            "- {namespace: n, max_value: 1, seconds: 1, conditions: [\"a || b\"]}".to_owned(),
            "1:57: error: the condition `a || b` is not supported",
        ),
        (
            "- {namespace: n, max_value: 1, seconds: 1, conditions: [[\"a == 'b'\"]]}".to_owned(),
            "1:57: error: each of `conditions` is a text, not a list",
        ),
        (
            "- {namespace: n, max_value: 1, seconds: 1, conditions: [{x: y}, ~]}".to_owned(),
            "1:65: error: each of `conditions` is a text, not nothing",
        ),
        (
            "- {namespace: n, max_value: 1, seconds: 1, variables: [{x: y}]}".to_owned(),
            "1:56: error: each of `variables` is a text, not a mapping",
        ),
        (
            envoy(&format!("  - {{key: k, <<: [[a]], {limit}}}")),
            "3:19: error: `<<` merges mappings, not a list",
        ),
        (
            "- {namespace: n, max_value: 1, seconds: 1, conditions: [a > 5, a < 5]}".to_owned(),
            "1:3: error: the conditions on `a` never hold",
        ),
    ] {
        let error = load("f.yaml", &text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

/// The policy of a file of envoyproxy/ratelimit, or of one of Limitador after its conversion.
fn load(name: &str, text: &str) -> Result<Policy, PolicyErrors> {
    let is_limitador = text.trim_start().starts_with(['-', '[']) || text.starts_with("limits:");
    match is_limitador {
        true => Policy::from_toml(&Policy::limitador_to_toml(name, text.as_bytes())?),
        false => Policy::load(name, text.as_bytes()).map(|parsed| parsed.policy),
    }
}

#[test]
fn variables_of_limitador_count_as_they_are_written() {
    let desk = Desk::new("- {namespace: n, max_value: 1, seconds: 9, variables: [ip, ip]}");
    for ip in ["2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1", "10.0.0.1"] {
        assert_eq!(desk.passes("n", &[("ip", ip)]), 1, "{ip}");
        assert_eq!(desk.passes("n", &[("ip", ip)]), 0, "{ip}");
    }
}

#[test]
fn names_of_any_length_and_values_of_any_letters() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let long = "x".repeat(130);
    let desk = Desk::new(&format!(
        "domain: d
descriptors:
  - {{key: city, value: café, {limit}}}
  - {{key: city, value: é*, {limit}}}
  - {{key: {long}, value: a, {limit}}}
  - {{key: {long}, value: b, {limit}}}
  - {{key: {long}, {limit}}}
  - key: n
    rate_limit: {{unit: day, requests_per_unit: 1, name: {long}}}
  - key: m
    rate_limit: {{unit: day, requests_per_unit: 1, name: {long}}}
"
    ));
    assert_eq!(desk.passes("d", &[("city", "café")]), 1);
    assert_eq!(desk.passes("d", &[("city", "été")]), 1);
    for key in [&long, "n", "m"] {
        assert_eq!(desk.passes("d", &[(key, "b")]), 1, "{key}");
    }
}

#[test]
fn yaml_of_go_parses() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - key: a
    rate_limit: &limit {unit: day, requests_per_unit: 0x10}
  - key: b
    rate_limit:
      <<: *limit
      requests_per_unit: 1_0
  - key: c
    rate_limit: {<<: [{requests_per_unit: 3}, *limit]}
  - {key: e, rate_limit: {unit: day}}
",
    );
    let passes = |key| desk.passes("d", &[(key, "x")]);
    assert_eq!((passes("a"), passes("b"), passes("c"), passes("e")), (16, 10, 3, 0));
}

#[test]
fn attributes_without_a_descriptor_are_one_with_their_order() {
    // With few attributes in the rules, and with so many that they are looked up by name.
    for others in [0, 40] {
        let mut text = "domain: d
descriptors:
  - key: model
    value: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: plan
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: open
    rate_limit: {unlimited: true}
"
        .to_owned();
        for other in 0..others {
            text += &format!("  - {{key: k{other}, value: v, rate_limit: {{unit: day}}}}\n");
        }
        let desk = Desk::new(&text);
        let passes = |attributes: Entries<'_>| {
            let request = Request::new("d", attributes);
            let check = || desk.engine.check(&request).block().unwrap().is_allowed();
            (0..1_000).take_while(|_| check()).count()
        };
        assert_eq!(passes(&[("model", "banned")]), 0);
        assert_eq!(passes(&[("model", "good")]), 1_000);
        assert_eq!(passes(&[("plan", "free"), ("user", "ada")]), 2);
        assert_eq!(passes(&[("user", "ada"), ("plan", "free")]), 1_000, "another order");
        assert_eq!(desk.passes("d", &[("plan", "free"), ("user", "ada")]), 0, "the same count");
        assert_eq!(passes(&[("open", "x")]), 1_000);
        assert_eq!(passes(&[("plan", "free"), ("user", "ada"), ("more", "x")]), 1_000);
        if others > 0 {
            assert_eq!(passes(&[("k7", "v")]), 0);
        }
    }
}

#[test]
fn a_domain_without_limits_is_one() {
    let text = "domain: d\n";
    let parsed = Policy::load("f.yaml", text.as_bytes()).expect("a warning only");
    let warning = parsed.warnings[0].to_string();
    assert!(warning.contains("1:9: warning: domain `d` has no limits"), "{warning}");
    let engine = StoreEngine::builder(parsed.policy.with_request_limits())
        .clock(ManualClock::default())
        .build()
        .unwrap();
    let limit = RequestLimit::new(1, WindowUnit::Year);
    let check = |domain| {
        let request = Request::new(domain, &[("user", "ada")]);
        let report = engine.check(&request).block().unwrap();
        assert!(report.is_allowed() && report.rule().is_none());
        engine.check(&request.request_limit(&limit)).block().unwrap().is_allowed()
    };
    assert_eq!((check("d"), check("d")), (true, false));
    assert_eq!((check("other"), check("other")), (true, true));
}

#[test]
fn the_server_table_may_have_its_own_file() {
    let file = |name: &str, text: &str| PolicyFile { name: name.into(), bytes: text.into() };
    let server = file("server.toml", "[server]\nheaders = 'x-ratelimit'\n");
    let limit = file(
        "a.yaml",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    let nothing = file("b.yaml", "# later\n");
    for files in
        [[server.clone(), limit.clone(), nothing.clone()], [nothing.clone(), limit, server.clone()]]
    {
        let file = Policy::load_files(&files).expect("others have rules");
        assert!(file.server.headers().is_some());
        assert_eq!(file.policy.rules().len(), 1);
    }
    for files in [&[server.clone()][..], &[server, nothing]] {
        let error = Policy::load_files(files).expect_err("no file has rules").to_string();
        assert!(error.contains("the policy has no rule"), "{error}");
    }
}

#[test]
fn files_whose_names_begin_with_a_dot_are_skipped() {
    let folder = std::env::temp_dir().join(format!("tidegate-dots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in [".hidden.yaml", ".#a.yaml", "a.yaml", "a.yaml~", "readme.md"] {
        std::fs::write(folder.join(name), "domain: d\n").unwrap();
    }
    let files = PolicyFile::read(&folder).unwrap();
    // A file that is named is read, whatever its name.
    assert_eq!(PolicyFile::read(&folder.join(".hidden.yaml")).unwrap().len(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(files.len(), 1);
    assert!(files[0].name.ends_with("/a.yaml"));
}

#[test]
fn a_limit_replaces_others_of_the_same_call() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - {key: all, rate_limit: {unit: day, requests_per_unit: 2, name: all}}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 2, name: all}}
  - {key: plan, value: big, rate_limit: {unit: day, requests_per_unit: 5, name: b, replaces: [{name: all}]}}
  - {key: plan, value: free, rate_limit: {unlimited: true, replaces: [{name: all}]}}
",
    );
    let passes = |descriptors: &[(&str, &str)]| {
        let request = |(number, entry)| {
            let attributes = Attributes::new(std::slice::from_ref(entry)).with_number(number);
            Request::with_attributes("d", attributes)
        };
        let requests: Vec<_> = descriptors.iter().enumerate().map(request).collect();
        let check = || desk.engine.check_together(&requests).block().unwrap().is_allowed();
        (0..20).take_while(|_| check()).count()
    };
    assert_eq!(passes(&[("all", "x"), ("plan", "big")]), 5);
    assert_eq!(passes(&[("plan", "free"), ("all", "x"), ("other", "x")]), 20);
    assert_eq!(passes(&[("all", "x")]), 2, "nothing was counted");
    assert_eq!(passes(&[("all", "x"), ("plan", "none")]), 0);
    assert_eq!(passes(&[("other", "x")]), 2);
}

#[test]
fn what_a_limit_replaces_is_checked() {
    let text = |replaces: &str| {
        let limit = format!("{{unit: day, requests_per_unit: 1, name: a, replaces: {replaces}}}");
        format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {limit}\n")
    };
    for (replaces, expected) in [
        ("[{name: a}]", "4:71: error: the limit replaces itself"),
        ("[{name: ''}]", "4:71: error: the replaced limit has no `name`"),
        ("[{}]", "error: the replaced limit has no `name`"),
        ("[b]", "a replaced limit is a mapping"),
        ("b", "`replaces` is a list"),
        ("[{name: b, unit: day}]", "unknown field `unit`"),
    ] {
        let error = Policy::load("f.yaml", text(replaces).as_bytes()).expect_err(replaces);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let parsed = Policy::load("f.yaml", text("[{name: b}]").as_bytes()).expect("a warning only");
    let warning = parsed.warnings[0].to_string();
    assert!(
        warning.contains("4:71: warning: no limit of the domain has the name `b`"),
        "{warning}"
    );
}

#[test]
fn anchors_work_and_cannot_explode() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - key: a
    rate_limit: &limit {unit: day, requests_per_unit: 2}
  - key: b
    rate_limit: *limit
",
    );
    assert_eq!(desk.passes("d", &[("b", "x")]), 2);
    let mut bomb = "domain: d\nmetadata:\n".to_owned();
    bomb += "  - &a0 {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    for level in 1..60 {
        let below = level - 1;
        bomb += &format!("  - &a{level} {{key: k, descriptors: [*a{below}, *a{below}]}}\n");
    }
    bomb += "descriptors: [*a59]\n";
    assert!(Policy::load("f.yaml", bomb.as_bytes()).is_err());
    // Aliases that are not deep, but make millions of the same; or few that make much text.
    let mut wide = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*x{}", level - 1); 10].join(", ");
        wide += &format!("x{level}: &x{level} [{aliases}]\n");
    }
    let error = Policy::load("f.yaml", wide.as_bytes()).expect_err("too much").to_string();
    assert!(error.contains("6:") && error.contains("too large up to here; each alias"), "{error}");
    let text = format!("- &t {}\n{}", "x".repeat(1 << 20), "- *t\n".repeat(100));
    let error = Policy::load("f.yaml", text.as_bytes()).expect_err("too much").to_string();
    assert!(error.contains("too large up to here; each alias"), "{error}");
    let mut deep = String::new();
    for level in 1..100_000 {
        deep += &format!("- &a{level} [*a{}]\n", level - 1);
    }
    assert!(Policy::load("f.yaml", format!("- &a0 []\n{deep}").as_bytes()).is_err());
    assert!(Policy::load("f.yaml", "[".repeat(1 << 20).as_bytes()).is_err());
    assert!(Policy::load("f.yaml", "{a: ".repeat(1 << 18).as_bytes()).is_err());
}

#[test]
fn a_wildcard_may_be_anywhere_in_a_value() {
    let desk = Desk::new(
        "domain: d
descriptors:
  - {key: path, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: path, value: '/v*/sign-up', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: path, value: '*.php*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, value: '/v1/a*b*', rate_limit: {unit: day, requests_per_unit: 3}}
",
    );
    let passes = |value| desk.passes("d", &[("path", value)]);
    assert_eq!([passes("/v1/sign-up"), passes("/v2/sign-up"), passes("/v/sign-up")], [1, 1, 1]);
    assert_eq!([passes("/a.php"), passes("/b.php?x")], [2, 0], "they share a counter");
    assert_eq!([passes("/v1/ab"), passes("/v1/axxbxx"), passes("/v1/a")], [3, 3, 9]);
    assert_eq!(passes("/v1/sign-up/"), 9);
}

#[test]
fn no_rule_is_listed_that_the_file_does_not_have() {
    let envoy = "domain: d
descriptors:
  - {key: a, value: x, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: a, rate_limit: {unit: day, requests_per_unit: 2}}
";
    let limitador =
        "- {namespace: d, max_value: 2, seconds: 9, conditions: [\"a != 'x'\"], name: n}";
    for (text, names) in [(envoy, &["a_x.b", "a"][..]), (limitador, &["n"]), ("domain: d", &[])] {
        let desk = Desk::new(text);
        let attributes = [("a", "x")];
        let explained = desk.engine.explain(&Request::new("d", &attributes)).block().unwrap();
        let found: Vec<_> = explained.rules.iter().map(|it| it.rule.name()).collect();
        assert_eq!(found, names);
        let text = explained.to_string();
        assert!(!text.contains("nothing else") && !text.contains("not 1"), "{text}");
        let tallies = desk.engine.tallies();
        assert_eq!(tallies.iter().map(|it| it.rule.name()).collect::<Vec<_>>(), names);
        let native = Policy::from_toml("[[rule]]\nname = 'r'\ncooldown = '1s'\n").unwrap();
        let changes = desk.engine.edit("test", Edit::policy(native)).block().unwrap();
        assert_eq!(changes.len(), names.len() + 1, "{changes:?}");
    }
}
