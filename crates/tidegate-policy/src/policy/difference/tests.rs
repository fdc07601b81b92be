use super::{Parsed, Policy, RuleChange};

fn parsed(text: &str) -> Parsed {
    Policy::parse("a.toml", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn lines(old: &str, new: &str) -> Vec<String> {
    let difference = parsed(old).difference(&parsed(new));
    let mut lines = Vec::new();
    for it in &difference.rules {
        let fresh = if it.starts_fresh { ", fresh" } else { "" };
        match &it.change {
            RuleChange::Added(_) => lines.push(format!("{} added{fresh}", it.rule.name())),
            RuleChange::Removed(_) => lines.push(format!("{} removed{fresh}", it.rule.name())),
            RuleChange::Changed(fields) => {
                lines.extend(
                    fields.iter().map(|field| format!("{} {field}{fresh}", it.rule.name())),
                );
            }
        }
    }
    lines.extend(difference.settings.iter().map(ToString::to_string));
    lines
}

const A: &str = "[[rule]]\nname = 'a'\nkey = ['user']\nwindow = { max = 3, per = '1h' }\n";

#[test]
fn every_changed_field_is_one_line() {
    let table: [(&str, String, &[&str]); 9] = [
        ("same", A.into(), &[]),
        ("number", A.replace('3', "30"), &["a window.max 3 → 30"]),
        (
            "numbers",
            A.replace("max = 3, per = '1h'", "max = 4, per = '2h'"),
            &["a window.max 3 → 4", r#"a window.per "1h" → "2h""#],
        ),
        ("key", A.replace("user", "ip"), &[r#"a key ["user"] → ["ip"], fresh"#]),
        (
            "algorithm",
            A.replace("window = { max = 3, per = '1h' }", "cooldown = '1s'"),
            &[
                "a window.max 3 removed, fresh",
                r#"a window.per "1h" removed, fresh"#,
                r#"a cooldown "1s" added, fresh"#,
            ],
        ),
        ("name", A.replace("'a'", "'b'"), &["b added, fresh", "a removed"]),
        ("mode", format!("{A}mode = 'shadow'"), &[r#"a mode "shadow" added"#]),
        ("settings", format!("[server]\nmax_keys = 5\n{A}"), &["server.max_keys 5 added"]),
        (
            "secret",
            format!("[server]\nstore_secret = 'one-two-three-four-five'\n{A}"),
            &["server: secrets changed"],
        ),
    ];
    for (name, new, expected) in table {
        let found = lines(A, &new);
        assert_eq!(found, expected, "{name}");
        assert!(!found.concat().contains("one-two"), "{name}");
        assert_eq!(parsed(A).difference(&parsed(&new)).is_empty(), expected.is_empty(), "{name}");
    }
}

#[test]
fn a_quota_that_the_host_closes_has_other_states_than_one_of_a_calendar() {
    let day = "[[rule]]\nname = 'a'\nquota = { max = 3, per = 'day' }\n";
    assert_eq!(lines(day, &day.replace("day", "round")), [r#"a quota.per "day" → "round", fresh"#]);
    assert_eq!(lines(day, &day.replace("day", "month")), [r#"a quota.per "day" → "month""#]);
}
