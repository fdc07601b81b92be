//! Warnings about valid policies with probable mistakes, and descriptions of rules.

use tidegate::policy::{Diagnostic, Policy, Severity};

use crate::sample::SAMPLE;

fn warnings(text: &str) -> Vec<Diagnostic> {
    let parsed = Policy::parse("p.toml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parsed.policy.warnings(), parsed.warnings, "the policy keeps them");
    assert_eq!(Policy::from_toml(text).unwrap().warnings().len(), parsed.warnings.len());
    let warnings = parsed.warnings.clone();
    assert_eq!(parsed.strict().is_err(), !warnings.is_empty());
    warnings
}

/// Two rules of one domain.
fn two(first: &str, second: &str) -> String {
    format!("[[rule]]\nname = 'a'\n{first}\n[[rule]]\nname = 'b'\n{second}\n")
}

#[test]
fn a_rule_that_an_earlier_one_of_its_group_shadows() {
    for (first, second, is_covered) in [
        ("", "", true),
        ("", "match = { plan = 'free' }", true),
        ("match = { plan = 'free' }", "", false),
        ("match = { plan = ['free', 'trial'] }", "match = { plan = 'trial' }", true),
        ("match = { plan = 'free' }", "match = { plan = ['free', 'trial'] }", false),
        ("match = { path = '/a/*' }", "match = { path = '/a/b/*' }", true),
        ("match = { path = '/a/*' }", "match = { path = '/a/x' }", true),
        ("match = { path = '/a/b/*' }", "match = { path = '/a/*' }", false),
        ("match = { path = '/a/*' }", "match = { path = '/a*' }", false),
        ("match = { path = '/a*b*' }", "match = { path = '/aXb' }", true),
        ("match = { ip = '10.0.0.0/8' }", "match = { ip = '10.1.0.0/16' }", true),
        ("match = { ip = '10.0.0.0/8' }", "match = { ip = '10.1.2.3', plan = 'x' }", true),
        ("match = { ip = '10.1.0.0/16' }", "match = { ip = '10.0.0.0/8' }", false),
        ("match = { n = '1..=9' }", "match = { n = '2..=9' }", true),
        ("match = { n = '1..=9' }", "match = { n = [3, '4..5'] }", true),
        ("match = { n = '1..=9' }", "match = { n = '9..' }", false),
        ("match = { n = '*' }", "match = { n = '9..' }", true),
        ("match = { n = '*' }", "match = { m = '9..' }", false),
    ] {
        let group = "cooldown = '1s'\ngroup = 'g'\n";
        let found = warnings(&two(&format!("{group}{first}"), &format!("{group}{second}")));
        assert_eq!(found.len(), usize::from(is_covered), "{first} | {second}: {found:?}");
        for warning in found {
            assert!(warning.message.contains("`b` never applies: `a` comes first"), "{warning}");
            assert_eq!(warning.severity, Severity::Warning);
            assert_eq!(warning.note.as_deref(), Some("the earlier rule is at p.toml:2:8"));
        }
    }
    // Without a group both apply, and in two groups too.
    let found = warnings(&two("cooldown = '1s'\ngroup = 'g'", "cooldown = '2s'\ngroup = 'h'"));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_prepaid_rule_that_can_prevent_a_booking() {
    let tokens = "key = ['u']\nquota = { max = 9, per = 'day' }\npostpaid = true\n";
    for (first, second, is_preventable) in [
        ("", "", true),
        ("", "mode = 'shadow'", false),
        ("", "postpaid = true", false),
        ("match = { kind = 'tokens' }", "match = { kind = 'calls' }", false),
        ("match = { kind = 'tokens' }", "match = { kind = ['calls', 'tokens'] }", true),
        ("match = { kind = 'tokens' }", "match = { path = '/a*' }", true),
        ("match = { kind = 'tokens' }", "match = { kind = 't*' }", true),
        ("group = 'g'\nmatch = { kind = 'tokens' }", "group = 'g'", false),
        ("", "domain = 'other'", false),
    ] {
        let second = format!("key = ['u']\nwindow = {{ max = 5, per = '1m' }}\n{second}");
        let found = warnings(&two(&format!("{tokens}{first}"), &second));
        assert_eq!(found.len(), usize::from(is_preventable), "{first} | {second}: {found:?}");
        for warning in found {
            let message = "`a` is postpaid and `b` is not: the cost of a request that `b` denies";
            assert!(warning.message.contains(message), "{warning}");
        }
    }
}

#[test]
fn a_quota_of_tokens_that_envoy_is_served() {
    let policy = |grpc: &str, more: &str| {
        format!(
            "[server]\ngrpc = '{grpc}'\n[[rule]]\nname = 'llm-tokens'\n\
             quota = {{ max = 9, per = 'day' }}\n{more}"
        )
    };
    for (grpc, more, is_found) in [
        ("127.0.0.1:8081", "", true),
        ("127.0.0.1:8081", "postpaid = true", false),
        ("127.0.0.1:8081", "cost = 1", false),
        ("off", "", false),
    ] {
        let parsed = Policy::parse("p.toml", policy(grpc, more).as_bytes()).unwrap();
        assert_eq!(parsed.warnings.len(), usize::from(is_found), "{grpc} {more}");
        for warning in parsed.warnings {
            assert!(warning.message.contains("counts tokens and is not postpaid"), "{warning}");
        }
    }
}

#[test]
fn a_rule_that_repeats_another() {
    let found = warnings(&two("key = ['ip']\ncooldown = '1s'", "key = ['ip']\ncooldown = '1s'"));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("`b` duplicates `a`"), "{}", found[0]);
    assert!(
        warnings(&two("key = ['ip']\ncooldown = '1s'", "key = ['u']\ncooldown = '1s'")).is_empty()
    );
}

#[test]
fn a_limit_for_all_that_is_below_one_per_key() {
    for (all, key, is_below) in [
        ("bucket = { rate = '10/s' }", "bucket = { rate = '11/s', burst = 5 }", true),
        ("bucket = { rate = '10/s' }", "bucket = { rate = '10/s' }", false),
        ("bucket = { rate = '10/s' }", "bucket = { rate = '600/m', burst = 10 }", false),
        ("bucket = { rate = '10/s' }", "bucket = { rate = '5/s', burst = 11 }", true),
        ("window = { max = 100, per = '1m' }", "sliding = { max = 2, per = '1s' }", true),
        ("window = { max = 120, per = '1m' }", "sliding = { max = 2, per = '1s' }", false),
        ("cooldown = '2s'", "cooldown = '1s'", true),
        ("slots = { max = 3 }", "slots = { max = 4 }", true),
        ("slots = { max = 4 }", "slots = { max = 4 }", false),
        ("quota = { max = 3, per = 'day' }", "quota = { max = 4, per = 'day' }", true),
        ("quota = { max = 3, per = 'day' }", "quota = { max = 4, per = 'month' }", false),
        ("cooldown = '2s'\nmatch = { a = 'x' }", "cooldown = '1s'", false),
        ("cooldown = '2s'", "cooldown = '1s'\nmatch = { a = 'x' }", true),
        ("cooldown = '2s'\ndomain = 'other'", "cooldown = '1s'", false),
        ("cooldown = '2s'\ncost = 2", "cooldown = '1s'", false),
        (
            "cooldown = '2s'\ngroup = 'g'\nmatch = { a = '*' }",
            "cooldown = '1s'\ngroup = 'g'",
            false,
        ),
    ] {
        let found = warnings(&two(all, &format!("key = ['ip']\n{key}")));
        assert_eq!(found.len(), usize::from(is_below), "{all} | {key}: {found:?}");
        for warning in found {
            assert!(warning.message.contains("`a` allows less for all"), "{warning}");
        }
    }
}

#[test]
fn an_override_that_an_earlier_one_shadows() {
    for (first, second, is_covered) in [
        ("ip = '10.0.0.0/8' }", "ip = '10.0.0.1' }", true),
        ("ip = '10.0.0.1' }", "ip = '10.0.0.0/8' }", false),
        ("ip = '*' }, until = '2030-01-01T00:00:00Z'", "ip = '10.0.0.1' }", false),
        (
            "ip = '*' }, until = '2030-01-01T00:00:00Z'",
            "ip = '10.0.0.1' }, until = '2029-01-01T00:00:00Z'",
            true,
        ),
    ] {
        let text = format!(
            "[[rule]]\nname = 'a'\nkey = ['ip']\ncooldown = '1s'\noverride = [\n\
             {{ cooldown = '2s', key = {{ {first} }},\n{{ cooldown = '3s', key = {{ {second} }},\n]"
        );
        let found = warnings(&text);
        assert_eq!(found.len(), usize::from(is_covered), "{first} | {second}: {found:?}");
        for warning in found {
            assert_eq!((warning.line, warning.column), (7, 1), "{warning}");
            assert!(warning.message.contains("override never applies"), "{warning}");
        }
    }
}

#[test]
fn settings_that_do_nothing_and_costs_that_never_fit() {
    for (line, what) in [
        ("bucket = { rate = '1/s' }\neffective = 'next'", "no next window"),
        ("bucket = { rate = '1/s', burst = 4 }\ncost = 5", "cost 5 is never allowed"),
        (
            "window = { max = 4, per = '1s' }\ncost = { by = 't', '1' = 1, '2' = 5 }",
            "cost 5 is never",
        ),
        ("quota = { max = 4, per = 'day' }\ncost = 5", "cost 5 is never allowed"),
    ] {
        let found = warnings(&format!("[[rule]]\nname = 'a'\n{line}\n"));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].message.contains(what), "{line}: {}", found[0]);
    }
}

#[test]
fn descriptions_of_rules() {
    for (lines, words) in [
        (
            "key = ['ip']\nbucket = { rate = '10/s', burst = 20 }",
            "`a` applies to all requests of domain `default`. Each ip (IPv4 whole, IPv6 /64) has its \
             own limit. One every 100ms; at most 20 at once and 620 in any 1m. From empty it is \
             full again after 2s.",
        ),
        (
            "match = { plan = ['free', 'trial'], size = '..=9' }\nbucket = { rate = '3/day' }",
            "`a` applies to requests of domain `default` with plan = free or = trial, size up to \
             9. All of them share one limit. One every 8h; at most 3 at once and 6 in any 1d. From \
             empty it is full again after 1d.",
        ),
        (
            "sliding = { max = 100, per = '1m' }\nmode = 'shadow'",
            "`a` applies to all requests of domain `default`. All of them share one limit. At most \
             100 in any 1m. A steady 100 per 1m6s is always allowed (it is counted in 10 parts). \
             From empty it is full again after 1m6s at most. It is in shadow mode: a denial is \
             counted, and the request is allowed.",
        ),
        (
            "quota = { max = 2, per = 'day' }",
            "`a` applies to all requests of domain `default`. All of them share one limit. At most 2 \
             per day; unused units lapse. So up to 4 can be allowed in a row around the end of a \
             period. It is full again when the period ends. Commits may overdraw it; the next \
             periods pay.",
        ),
    ] {
        let policy = Policy::from_toml(&format!("[[rule]]\nname = 'a'\n{lines}\n")).unwrap();
        assert_eq!(policy.rules()[0].describe(), words);
    }
    for rule in Policy::from_toml(SAMPLE).unwrap().rules() {
        assert!(rule.describe().len() > 50, "{}", rule.describe());
    }
}

#[test]
fn a_path_that_is_not_normal_never_matches() {
    let of = |server: &str, field: &str| {
        format!("{server}[[rule]]\nname = 'a'\n{field}\ncooldown = '1s'\n")
    };
    for (field, message) in [
        ("match = { path = '/%73ign-up' }", Some("write `/sign-up`")),
        ("match = { path = ['/x', '//x'] }", Some("`//x` never matches")),
        ("match = { path = '/a?b=*' }", Some("`/a?b=*` never matches")),
        ("match = { path = '/x/../*' }", Some("never matches")),
        ("match = { path = '/%zz' }", Some("without two hexadecimal digits")),
        ("match = { path = '/a%2Fb' }", Some("write `/a/b`")),
        (
            "key = ['path']\noverride = [{ key = { path = '/./x' }, unlimited = true }]",
            Some("write `/x`"),
        ),
        ("cost = { by = 'path', '//x' = 2, '*' = 1 }", Some("write `/x`")),
        (
            "match = { path = ['/search/*', '*.php', '/a%20b', '/%*', '/.*', '/a;x', '/A/', ''] }",
            None,
        ),
        ("match = { route = '//x' }", None),
    ] {
        let found = warnings(&of("", field));
        let found: Vec<_> = found.iter().map(|it| &*it.message).collect();
        match message {
            Some(message) => assert!(found.len() == 1 && found[0].contains(message), "{found:?}"),
            None => assert!(found.is_empty(), "{field}: {found:?}"),
        }
    }
    let keeps = "[server]\nencoded_slash = 'keep'\n";
    assert!(warnings(&of(keeps, "match = { path = '/a%2Fb' }")).is_empty());
    assert_eq!(warnings(&of(keeps, "match = { path = '/a%2fb' }")).len(), 1);
}

#[test]
fn a_note_names_paths_that_a_server_may_treat_alike() {
    let note = |path: &str| {
        let rule = |name: &str| {
            format!("[[rule]]\nname = '{name}'\nmatch = {{ path = {path} }}\ncooldown = '1s'\n")
        };
        Policy::from_toml(&format!("{}{}", rule("a"), rule("b"))).unwrap().path_note()
    };
    let text = note("'/sign-up'").unwrap();
    for expected in
        ["rule `a` matches `/sign-up` only", "`/SIGN-UP`, `/sign-up/` or `/sign-up;x`", "1 more"]
    {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(note("['/sign-up*', '/']"), None);
}

#[test]
fn a_replaced_rule_that_does_not_exist() {
    let found = warnings(&two("cooldown = '1s'\nreplaces = ['b', 'c']", "cooldown = '2s'"));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("no rule of the domain has the name `c`"), "{}", found[0]);
}
