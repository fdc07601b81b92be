//! Edits made at run time, written and parsed again.

use std::time::Duration;

use tidegate::policy::{Condition, Grant, Limit, Override, Policy, PolicyErrors, Rule, RuleId};
use tidegate::{
    Bucket, Cooldown, Edit, StoreEngine, Timestamp,
    edit::{Ban, Overlay},
};

const SAMPLE: &str = include_str!("../../../tidegate-policy/tests/it/sample.toml");

const OVERLAY: &str = r#"[[rule]]
name   = "search"
key    = ["ip"]
bucket = { rate = "1/s", burst = 10 }

[[override]]
domain = "default"
rule   = "search"
key    = { ip = "192.0.2.7" }
bucket = { rate = "1/m", burst = 5 }
until  = "2027-01-01T00:00:00.5Z"

[[override]]
domain    = "api"
rule      = "gone"
key       = { user = ["a", "b"] }
unlimited = true

[[ban]]
domain = "default"
match  = { user = "eve", ip = "198.51.100.0/24" }
until  = "2030-01-01T00:00:00Z"
reason = "said \"no\"\r\n"

[[ban]]
domain = ""
match  = [{ ip = "10.*", a = [] }, { ip = "*.1" }]

[[ban]]
domain = "default"
match  = {}
reason = ""
"#;

fn kept(overlay: &Overlay) -> String {
    let text = overlay.to_toml();
    let read = Overlay::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(&read, overlay, "{text}");
    text
}

#[test]
fn an_overlay_looks_like_this() {
    let overlay = Overlay::from_toml(OVERLAY).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(kept(&overlay), OVERLAY);
    assert_eq!((overlay.rules().count(), overlay.overrides().count()), (1, 2));
    let [eve, twice, all] = overlay.bans() else { panic!() };
    assert_eq!(eve.ends(), Some(Timestamp::from_secs(1_893_456_000)));
    let attributes: Vec<_> = twice.conditions().iter().map(Condition::attribute).collect();
    assert_eq!(attributes, ["ip", "a", "ip"]);
    assert!(all.conditions().is_empty());
    assert_eq!(
        (Overlay::from_toml("").unwrap().is_empty(), Overlay::default().to_toml()),
        (true, String::new())
    );
}

#[test]
fn edits_of_an_engine_survive_a_restart() {
    let policy = || Policy::from_toml(SAMPLE).unwrap();
    let engine = StoreEngine::new(policy());
    let condition = |name, value| vec![Condition::new(name, [value]).unwrap()];
    let gap = Limit::Cooldown(Cooldown::new(Duration::from_secs(2)));
    let new = Rule::builder("new", gap).domain("api").build().unwrap();
    engine.edit("ada", Edit::rule(new)).block().unwrap();
    let more = Bucket::per_second(9).burst(10);
    let given = Override::new(condition("connection", "7"), Grant::Limit(Limit::Bucket(more)));
    engine
        .edit(
            "ada",
            Edit::set_override(
                &RuleId::named("relay-messages").in_domain("relay"),
                given.until(u64::MAX),
            ),
        )
        .block()
        .unwrap();
    let given = Override::new(condition("user", "root"), Grant::Unlimited);
    engine
        .edit("ada", Edit::set_override(&RuleId::named("ipc-user").in_domain("ipc"), given))
        .block()
        .unwrap();
    engine
        .edit(
            "ada",
            Edit::ban(Ban::new("ipc", condition("user", "eve")).until(Timestamp::MAX).reason("\0")),
        )
        .block()
        .unwrap();
    let other = StoreEngine::new(policy());
    other
        .edit("start", Edit::overlay(Overlay::from_toml(&kept(&engine.overlay())).unwrap()))
        .block()
        .unwrap();
    assert_eq!(other.overlay(), engine.overlay());
    assert_eq!(other.edit("again", Edit::overlay(engine.overlay())).block().unwrap(), []);
}

#[test]
fn errors_of_an_overlay_have_their_positions() {
    let errors = |text: &str| -> PolicyErrors { Overlay::from_toml(text).unwrap_err() };
    let head = "[[override]]\ndomain = 'd'\nrule = 'r'\nkey = { a = 'x' }\n";
    for (text, line, column, what) in [
        ("[[rules]]", 1, 3, "unknown field `rules` in the overlay"),
        ("ban = 1", 1, 7, "`ban` is not a list of bans"),
        ("override = [1]", 1, 13, "an override is a table, not a whole number"),
        ("[[rule]]\nname = 'a'\ncooldown = '0s'", 3, 12, "it is zero"),
        (
            "rule = [{ name = 'a', cooldown = '1s' }, { name = 'a', cooldown = '1s' }]",
            1,
            51,
            "already used",
        ),
        (
            "[[override]]\nrule = 'r'\nkey = { a = 'x' }\nunlimited = true",
            1,
            1,
            "an override needs `domain`",
        ),
        (
            "[[override]]\ndomain = 'd'\nrule = 'r'\nkey = {}\nunlimited = true",
            4,
            7,
            "for which keys",
        ),
        (head, 1, 1, "changes nothing"),
        (&format!("{head}unlimited = false"), 5, 13, "has no effect"),
        (&format!("{head}unlimited = 'x'"), 5, 13, "true or false"),
        (&format!("{head}unlimited = true\ncooldown = '1s'"), 6, 12, "two limits"),
        (
            &format!("{head}cooldown = '1s'\nwindow = {{ max = 1, per = '1s' }}"),
            5,
            12,
            "two limits",
        ),
        (&format!("{head}bucket = {{ rate = '1/s', burst = 0 }}"), 5, 34, "at least 1"),
        (&format!("{head}unlimited = true\nmax = 5"), 6, 1, "unknown field `max`"),
        (&format!("{head}cooldown = '1s'\nuntil = 'soon'"), 6, 9, "not an RFC 3339 time"),
        ("[[ban]]\ndomain = 'd'", 1, 1, "a ban needs `match`"),
        ("[[ban]]\ndomain = 'd'\nmatch = 'eve'", 3, 9, "`match` must be a table, not text"),
        ("[[ban]]\ndomain = 'd'\nmatch = []", 3, 9, "`match` is empty"),
        (
            "[[ban]]\ndomain = 'd'\nmatch = { ip = '10.0.0.1/8' }",
            3,
            16,
            "bits set after its prefix",
        ),
        ("[[ban]]\ndomain = 5\nmatch = {}", 2, 10, "must be text"),
        ("[[ban]]\ndomain = 'd'\nmatch = {", 3, 9, "not closed"),
    ] {
        let errors = errors(text);
        let first = &errors.diagnostics()[0];
        assert_eq!((first.line, first.column), (line, column), "{text}\n{errors}");
        assert!(errors.to_string().contains(what), "{what}: {errors}");
        assert!(errors.to_string().starts_with("overlay.toml:"), "{errors}");
    }
}

#[test]
fn an_overlay_cut_off_anywhere_is_an_overlay_or_has_errors() {
    for (end, _) in OVERLAY.char_indices() {
        if let Ok(overlay) = Overlay::from_toml(&OVERLAY[..end]) {
            kept(&overlay);
        }
    }
}
