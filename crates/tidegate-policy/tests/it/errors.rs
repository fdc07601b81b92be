//! The errors of an invalid policy file.

use tidegate::policy::{Diagnostic, Policy, Severity};

fn errors(text: &str) -> Vec<Diagnostic> {
    match Policy::parse("p.toml", text.as_bytes()) {
        Err(errors) => errors.diagnostics().to_vec(),
        Ok(_) => panic!("accepted: {text}"),
    }
}

/// A rule that is valid, but for this line.
fn with(line: &str) -> String {
    format!("[[rule]]\nname = 'a'\nkey = ['ip', 'user']\nbucket = {{ rate = '1/s' }}\n{line}\n")
}

/// A rule with this limit.
fn limit(line: &str) -> String {
    format!("[[rule]]\nname = 'a'\n{line}\n")
}

#[test]
fn an_error_shows_where_and_what_and_what_to_do() {
    let text = limit("bucket = { rate = '1/s', burts = 5 }");
    let shown = errors(&text)[0].to_string();
    let expected = "\
p.toml:3:26: error: unknown field `burts` in a bucket
  |
3 | bucket = { rate = '1/s', burts = 5 }
  |                          ^^^^^
  = hint: did you mean `burst`?";
    assert_eq!(shown, expected);
}

#[test]
fn a_setting_that_was_removed_is_an_error_that_says_what_to_do() {
    for mode in ["spread", "together"] {
        let found = errors(&format!("[server]\nstore_cluster = '{mode}'\n{}", with("")));
        assert_eq!((found.len(), found[0].line, found[0].column), (1, 2, 1));
        let shown = found[0].to_string();
        assert!(shown.contains("unknown field `store_cluster`"), "{shown}");
        assert!(shown.contains("hint: delete this line: in a cluster"), "{shown}");
    }
}

#[test]
fn all_errors_come_at_once_in_the_order_of_the_file() {
    let text = "\
[[rule]]
name = 'a'
zindow = 3
bucket = { rate = '0/s', burst = -1 }
[[rule]]
name = 'a'
cooldown = 60
key = 'ip'
[serwer]
";
    let found: Vec<_> = errors(text).iter().map(|e| (e.line, e.column)).collect();
    assert_eq!(found, [(3, 1), (4, 19), (4, 34), (6, 8), (7, 12), (8, 7), (9, 2)]);
}

#[test]
fn a_duplicate_name_points_to_both_rules() {
    let found = errors("rule = [\n {name='a',cooldown='1s'},\n {name='a',cooldown='1s'}]");
    assert_eq!((found.len(), found[0].line, found[0].column), (1, 3, 8));
    assert_eq!(found[0].note.as_deref(), Some("it is first used at p.toml:2:8"));
}

#[test]
fn columns_count_characters() {
    let found = errors("[[rule]]\r\nname = 'äöü'\r\ndeny = 'ä' ; x = 1\r\ncooldown = '1s'\r\n");
    assert_eq!((found[0].line, found[0].column), (3, 12));
    assert!(!found[0].to_string().contains('\r'));
    let found = errors("\u{feff}rule = [{ name = 'ä', 'ö' = 1, cooldown = '1s' }]");
    assert_eq!((found[0].line, found[0].column, found[0].span.start), (1, 23, 26));
}

#[test]
fn syntax_and_meaning_are_reported_together() {
    let found = errors("[[rule]]\nname = \n[[rule]]\nname = 'b'\ncooldown = '0s'\n");
    let lines: Vec<_> = found.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 5], "{found:?}");
}

#[test]
fn limits_that_are_wrong() {
    for (line, column, what) in [
        ("", 1, "the rule has no limit"),
        ("bucket = { rate = '1/s' }\ncooldown = '1s'", 12, "two limits, `bucket` and `cooldown`"),
        ("bucket = {}", 10, "a bucket needs `rate`"),
        ("bucket = 5", 10, "must be a table, not a whole number"),
        ("bucket = { rate = 10 }", 19, "has no period"),
        ("bucket = { rate = '10' }", 19, "has no period"),
        ("bucket = { rate = '0/s' }", 19, "zero"),
        ("bucket = { rate = '1/s', burst = 0 }", 34, "zero does not mean unlimited"),
        ("bucket = { rate = '1/s', burst = -3 }", 34, "at least 1"),
        ("bucket = { rate = '1/s', burst = 1.5 }", 34, "not a number with a fraction"),
        ("bucket = { rate = '1/s', burst = '5' }", 34, "must be a whole number, not text"),
        ("bucket = { rate = '1/s', burst = 99999999999999999999 }", 34, "at most"),
        ("bucket = { rate = '7/w', burst = 9223372036854775807 }", 34, "exactly"),
        ("bucket = { rate = '18446744073709551557/s' }", 19, "exactly"),
        ("bucket = { rate = '1/s', debt = 0 }", 33, "at least 1"),
        ("window = { max = 5 }", 10, "a window needs `per`"),
        ("window = { max = 5, per = 10 }", 27, "no unit"),
        ("window = { max = 5, per = '10' }", 27, "a unit is missing"),
        ("window = { max = 5, per = '1month' }", 27, "an unknown unit"),
        ("window = { max = 4294967296, per = '1s' }", 18, "at most 4294967295"),
        ("window = { max = 5, per = '1s', align = 'noon' }", 41, "cannot be `noon`"),
        ("window = { max = inf, per = '1s' }", 18, "number with a fraction"),
        ("sliding = { max = 5, per = '1s', parts = 16 }", 42, "at most 15"),
        ("sliding = { max = 5, per = '5ns' }", 11, "parts must be at most 5"),
        ("cooldown = '0s'", 12, "zero"),
        ("cooldown = 5", 12, "no unit"),
        ("cooldown = true", 12, "must be text, not true or false"),
        ("quota = { max = 5, per = '10s' }", 26, "not a period"),
        ("quota = { max = 5, per = 'day', carry = 0 }", 41, "at least 1"),
        ("quota = { max = 5, per = 'day', carry = 'some' }", 41, "cannot be `some`"),
        ("quota = { max = 5, per = 'day', carry = 1.5 }", 41, "must be text"),
        ("quota = { max = 5, per = 'day', debt = 0 }", 40, "`debt` must be at least 1"),
        ("quota = { max = 5, per = 'day', debt = 'some' }", 40, "cannot be `some`"),
        ("slots = { max = 0 }", 17, "at least 1"),
        ("slots = { max = 1, queue = -1 }", 28, "at least 0"),
        ("slots = { max = 1, expires = '0s' }", 30, "zero"),
        ("slots = { max = 1, priority = '' }", 31, "empty"),
        ("slots = { max = 1 }\ncost = 5", 8, "one slot"),
        ("cooldown = '1s'\npostpaid = true", 12, "`cooldown` has nothing to book afterwards"),
        ("slots = { max = 1 }\npostpaid = true", 12, "`slots` has nothing to book afterwards"),
        (
            "window = { max = 1, per = '1s' }\npostpaid = true\ncharge_refused = true",
            18,
            "a postpaid rule charges denied requests",
        ),
        (
            "bucket = { rate = '1/s' }\npostpaid = true\nkey = ['u']\n\
             override = [{ key = { u = 'x' }, debt = 'none' }]",
            13,
            "cannot take the debt of a postpaid rule away",
        ),
    ] {
        let found = errors(&limit(line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert_eq!(found[0].column, column, "{line}: {}", found[0]);
        assert!(found[0].message.contains(what), "{line}: {}", found[0]);
        assert_eq!(found[0].severity, Severity::Error);
    }
}

#[test]
fn a_limit_that_cannot_be_divided_has_no_local_share() {
    for (line, what) in [
        ("quota = { max = 5, per = 'day' }", "a `quota` has no local share"),
        ("cooldown = '5s'", "a `cooldown` has no local share"),
        ("slots = { max = 5 }", "a `slots` has no local share"),
    ] {
        let text = limit(&format!("{line}\non_error = {{ local = 0.5 }}"));
        let found = errors(&text);
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert_eq!((found[0].line, found[0].column), (4, 12), "{line}: {}", found[0]);
        assert!(found[0].message.contains(what), "{line}: {}", found[0]);
    }
    // Where the limit itself is wrong, that is the one error.
    let found = errors(&limit("window = { max = 0, per = '1s' }\non_error = { local = 0.5 }"));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn rules_that_are_wrong() {
    for (line, column, what) in [
        ("match = { ip = '10.0.0.1/8' }", 16, "bits set after its prefix"),
        ("match = { tier = '5..5' }", 18, "empty"),
        ("match = { tier = [] }", 18, "has no patterns"),
        ("match = { tier = [1.5] }", 19, "must be text or a whole number"),
        ("match = { tier = { a = 1 } }", 18, "must be text or a whole number"),
        ("match = { '' = 'x' }", 11, "empty"),
        ("match = 'GET'", 9, "must be a table"),
        ("domain = ''", 10, "empty"),
        ("domain = \"a\\u0007\"", 10, "control character"),
        ("mode = 'shadwo'", 8, "cannot be `shadwo`"),
        ("mode = true", 8, "must be text"),
        ("on_error = 'x'", 12, "cannot be `x`"),
        ("on_error = 0.25", 12, "must be \"allow\", \"deny\" or { local = 0.25 }, not a number"),
        ("on_error = {}", 12, "`on_error` needs `local`"),
        ("on_error = { share = 0.5, local = 0.5 }", 14, "unknown field `share` in `on_error`"),
        ("on_error = { local = 0.0 }", 22, "`0.0` is not a share of the limit"),
        ("on_error = { local = 0 }", 22, "`0` is not a share of the limit"),
        ("on_error = { local = -0.5 }", 22, "not a share of the limit"),
        ("on_error = { local = 1.000001 }", 22, "not a share of the limit"),
        ("on_error = { local = 0.1234567 }", 22, "not a share of the limit"),
        ("on_error = { local = 25e-2 }", 22, "not a share of the limit"),
        ("on_error = { local = '25%' }", 22, "must be a fraction, not text"),
        ("missing = 'x'", 11, "cannot be `x`"),
        ("empty = 'refuse'", 9, "cannot be `refuse`"),
        ("charge_refused = 'yes'", 18, "must be true or false"),
        ("reserve_for = '0s'", 15, "zero"),
        ("cost = 0", 8, "at least 1"),
        ("cost = 1.5", 8, "must be a number or a table"),
        ("cost = { '1..' = 1 }", 8, "needs `by`"),
        ("cost = { by = 'tier' }", 8, "no rows"),
        ("cost = { by = '', '1' = 1 }", 15, "empty"),
        ("cost = { by = 'tier', '1..=4' = 1, '4..' = 2 }", 8, "`1..=4` and `4..` overlap"),
        ("cost = { by = 'tier', '1..=4' = 1, '3' = 2 }", 8, "overlap"),
        ("cost = { by = 'tier', '5..5' = 1 }", 23, "empty"),
        ("cost = { by = 'tier', '1..' = 0 }", 31, "at least 1"),
        ("override = [{}]", 13, "needs `key`"),
        ("override = [{ max = 5 }]", 21, "an override of `bucket` cannot set `max`"),
        ("override = [{ key = { ip = '10.0.0.1' } }]", 13, "changes nothing"),
        ("override = [{ key = {}, burst = 5 }]", 13, "for which keys"),
        ("override = [{ key = { plan = 'x' }, burst = 5 }]", 13, "`plan` is not in the key"),
        ("override = [{ key = { ip = '*' }, burst = 0 }]", 43, "zero"),
        ("override = [{ key = { ip = '*' }, unlimited = false }]", 47, "has no effect"),
        ("override = [{ key = { ip = '*' }, unlimited = true, burst = 1 }]", 47, "has numbers"),
        ("override = [{ key = { ip = '*' }, burst = 1, until = 'soon' }]", 54, "RFC 3339"),
        ("override = [{ key = { ip = '*' }, burst = 1, until = 2027-01-01 }]", 54, "RFC 3339"),
        (
            "override = [{ key = { ip = '*' }, burst = 1, until = '1969-01-01T00:00:00Z' }]",
            54,
            "3339",
        ),
        ("override = [5]", 13, "must be a table"),
        ("override = { key = { ip = '*' }, burst = 1 }", 12, "must be a list"),
        ("group = 5", 9, "must be text"),
        ("nmae = 'b'", 1, "unknown field"),
    ] {
        let found = errors(&with(line));
        let about = found.iter().find(|error| error.message.contains(what));
        let about = about.unwrap_or_else(|| panic!("{line}: {found:?}"));
        assert_eq!((about.line, about.column), (5, column), "{line}: {about}");
    }
}

#[test]
fn keys_that_are_wrong() {
    for (key, what) in [
        ("'ip'", "must be a list"),
        ("['ip', 'ip']", "twice"),
        ("['ip/56', 'ip/48']", "twice"),
        ("['user', 'user']", "twice"),
        ("['ip/129']", "from 1 to 128"),
        ("['ip4/33']", "from 1 to 32"),
        ("['ip4']", "needs a number of bits"),
        ("['ip/0']", "from 1 to 128"),
        ("['']", "empty"),
        ("[5]", "must be text"),
    ] {
        let found = errors(&limit(&format!("cooldown = '1s'\nkey = {key}")));
        assert_eq!((found.len(), found[0].line), (1, 4), "{key}: {found:?}");
        assert!(found[0].message.contains(what), "{key}: {}", found[0]);
    }
}

#[test]
fn files_that_are_wrong_as_a_whole() {
    for (text, position, what) in [
        ("", (1, 1), "no rule"),
        ("[server]\n", (1, 1), "no rule"),
        ("rule = []", (1, 1), "no rule"),
        ("[rule]\nname = 'a'", (1, 1), "not a list"),
        ("rule = [5]", (1, 9), "a rule is a table"),
        ("rules = []", (1, 1), "unknown field `rules`"),
        ("[server]\nhttps = ''", (2, 1), "unknown field `https`"),
        ("[server]\nhttp = 'localhost'", (2, 8), "not an address with a port"),
        ("[server]\nhttp = ':8080'", (2, 8), "not an address with a port"),
        ("[server]\nstore = 'disk'", (2, 9), "not a store"),
        ("[server]\ntrusted_proxies = ['10.0.0.1/8']", (2, 20), "bits set after"),
        ("[server]\ntrusted_proxies = ['proxy']", (2, 20), "not an address or network"),
        ("[server]\nmax_keys = 0", (2, 12), "at least 1"),
        ("[server]\nwhen_full = 'shar'", (2, 13), "cannot be `shar`"),
        ("[server]\nenforce = 1.5", (2, 11), "not a share"),
        ("[server]\nenforce = -0.5", (2, 11), "not a share"),
        ("[server]\nenforce = 0.1234567", (2, 11), "not a share"),
        ("[server]\nenforce = nan", (2, 11), "not a share"),
        ("[server]\nenforce = 'some'", (2, 11), "cannot be `some`"),
    ] {
        let found = errors(text);
        let about = found.iter().find(|error| error.message.contains(what));
        let about = about.unwrap_or_else(|| panic!("{text}: {found:?}"));
        assert_eq!((about.line, about.column), position, "{text}: {about}");
    }
}

#[test]
fn a_brace_that_is_not_closed_is_found_where_it_is() {
    let rule = "[[rule]]\nname = 'b'\ncooldown = '1s'\n";
    for (line, column) in [
        ("bucket = { rate = '1/s'", 10),
        ("bucket = { rate = '1/s',", 10),
        ("override = [{ key = { ip = 'a' }, burst = 1 ]", 13),
        ("match = { path = ['a', 'b'], # }", 9),
    ] {
        for next in [rule, "", "  [server]\nunmatched = 'deny'\n"] {
            let found = errors(&format!("[[rule]]\nname = 'a'\nmode = 'x'\n{line}\n{next}"));
            let positions: Vec<_> = found.iter().map(|error| (error.line, error.column)).collect();
            assert_eq!(positions, [(3, 8), (4, column)], "{line}: {found:?}");
            assert!(found[1].message.contains("not closed"), "{}", found[1]);
        }
    }
    // Lists may span lines, and so may tables.
    let fine = "[[rule]]\nname = 'a'\nkey = [\n'ip',\n]\nbucket = {\n  rate = '1/s',\n}\n\
                override = [\n  { key = { ip = [\n '10.0.0.1',\n '10.0.0.2' ] }, burst = 5 },\n]";
    assert!(Policy::from_toml(fine).is_ok());
}

#[test]
fn errors_are_readable_under_expect() {
    let policy = std::panic::catch_unwind(|| Policy::from_toml("[[rule]]\nname = 1\n").expect("p"));
    let text = *policy.unwrap_err().downcast::<String>().unwrap();
    assert!(text.starts_with("p: \npolicy.toml:1:1: error: the rule has no limit\n"), "{text}");
    assert!(text.contains("2 | name = 1"), "{text}");
    let zero = tidegate::Window::try_new(0, std::time::Duration::from_secs(1)).unwrap_err();
    assert_eq!(format!("{zero:?}"), zero.to_string());
}

/// A client that can fill the table would not be limited.
#[test]
fn a_full_table_cannot_allow() {
    let text = format!("[server]\nwhen_full = 'allow'\n{}", limit("cooldown = '1s'"));
    let shown = errors(&text)[0].to_string();
    assert!(shown.starts_with("p.toml:2:13: error: "), "{shown}");
    assert!(shown.contains("share") && shown.contains("deny"), "{shown}");
}
