//! Several rules and keys in one decision.

use crate::Edit;
use tidegate_core::{Timestamp, Wait};
use tidegate_policy::policy::{Mode, RuleId};

use super::{ADA, BOB, Make, TestEngine, ms};
use crate::{Ban, CheckError, Request};

const THREE: &str = r#"
    [[rule]]
    name = "user"
    key = ["user"]
    window = { max = 5, per = "10s" }
    [[rule]]
    name = "org"
    key = ["org"]
    sliding = { max = 4, per = "20s" }
    [[rule]]
    name = "all"
    bucket = { rate = "1/30s", burst = 3 }
"#;

pub(super) fn all_or_nothing(make: Make<'_>) {
    let desk = TestEngine::new(make, THREE);
    let attributes: &[(&str, &str)] = &[("user", "ada"), ("org", "x")];
    let left = || ["user", "org", "all"].map(|rule| desk.left(attributes, rule));
    assert!(desk.allows(attributes, 2));
    assert_eq!(left(), [3, 2, 1]);
    for _ in 0..3 {
        let denied = desk.check(attributes, 2);
        assert_eq!((denied.is_allowed(), denied.rule().map(RuleId::name)), (false, Some("all")));
        let remaining: Vec<_> =
            denied.rules().map(|it| (it.rule.name(), it.decision.remaining())).collect();
        assert_eq!(remaining, [("user", 3), ("org", 2), ("all", 1)]);
        assert_eq!(left(), [3, 2, 1], "a denial by the last charges the others nothing");
    }
    // New keys at the first two rules leave nothing behind either.
    let keys = desk.engine.len();
    assert!(!desk.allows(&[("user", "eve"), ("org", "y")], 2));
    assert_eq!(desk.engine.len(), keys);
    assert!(desk.allows(attributes, 1));
    assert_eq!(left(), [2, 1, 0]);
    // The denial by the second, and by the first.
    let desk = TestEngine::new(make, THREE);
    let left = || ["user", "org", "all"].map(|rule| desk.left(attributes, rule));
    assert!(desk.at(0).allows(attributes, 3));
    assert!(desk.at(19_000).allows(attributes, 0));
    assert_eq!(left(), [5, 1, 0]);
    assert_eq!(desk.at(19_500).check(attributes, 2).rule().map(RuleId::name), Some("all"));
    assert_eq!(
        desk.at(19_500).check(attributes, 6).rule().map(RuleId::name),
        Some("user"),
        "never is longest"
    );
    assert_eq!(left(), [5, 1, 0]);
}

pub(super) fn longest_wait_is_reported(make: Make<'_>) {
    let policy = |first: &str, second: &str| {
        format!(
            "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = {{ max = 1, per = \"{first}\" }}\n\
             [[rule]]\nname = \"b\"\nkey = [\"user\"]\nwindow = {{ max = 1, per = \"{second}\" }}\n"
        )
    };
    for (first, second, rule, wait) in
        [("5s", "9s", "b", 9_000), ("9s", "5s", "a", 9_000), ("5s", "5s", "a", 5_000)]
    {
        let desk = TestEngine::new(make, &policy(first, second));
        assert!(desk.allows(ADA, 1));
        let denied = desk.check(ADA, 1);
        assert_eq!(
            (denied.rule().map(RuleId::name), denied.retry_after()),
            (Some(rule), Some(Wait::After(ms(wait))))
        );
        assert!(!desk.at(wait - 1).allows(ADA, 1));
        assert!(desk.at(wait).allows(ADA, 1));
        assert_eq!(desk.at(wait).check(ADA, 2).retry_after(), Some(Wait::Never));
    }
}

pub(super) fn shadow_rules_deny_nothing(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        r#"
        [[rule]]
        name = "real"
        key = ["user"]
        window = { max = 4, per = "10s" }
        [[rule]]
        name = "shadow"
        key = ["user"]
        window = { max = 2, per = "10s" }
        mode = "shadow"
        "#,
    );
    assert!(desk.allows(ADA, 1));
    assert_eq!(desk.left(ADA, "shadow"), 1);
    assert!(!desk.allows(ADA, 5));
    assert!(desk.allows(ADA, 2), "a rule in shadow mode does not deny");
    assert_eq!(desk.left(ADA, "shadow"), 1, "what it would deny it does not charge");
    let report = desk.check(ADA, 1);
    assert!(report.is_allowed());
    assert_eq!(report.rule().map(RuleId::name), Some("real"));
    let modes: Vec<_> = report.rules().map(|it| it.mode).collect();
    assert_eq!(modes, [Mode::Enforce, Mode::Shadow]);
    assert_eq!(desk.left(ADA, "shadow"), 0);
    assert!(!desk.allows(ADA, 1));
    // Where the enforced rule denies, the rule in shadow mode is not charged.
    assert!(desk.at(10_000).allows(ADA, 3));
    assert_eq!(desk.left(ADA, "shadow"), 2);
    assert!(!desk.allows(ADA, 2));
    assert_eq!(desk.left(ADA, "shadow"), 2);
    // A hold holds only what the rule in shadow mode has room for.
    let id = desk.at(20_000).hold(ADA, 3);
    assert_eq!(desk.left(ADA, "shadow"), 2);
    desk.cancel(id);
    let id = desk.hold(ADA, 2);
    assert_eq!(desk.left(ADA, "shadow"), 0);
    desk.commit(id, 1);
    assert_eq!((desk.left(ADA, "real"), desk.left(ADA, "shadow")), (3, 1));
}

pub(super) fn groups_apply_the_first(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        r#"
        [[rule]]
        name = "free"
        match = { plan = "free" }
        key = ["user"]
        window = { max = 1, per = "10s" }
        group = "plan"
        [[rule]]
        name = "other"
        key = ["user"]
        window = { max = 3, per = "10s" }
        group = "plan"
        "#,
    );
    assert_eq!(desk.admits(&[("user", "ada"), ("plan", "free")]), 1);
    assert_eq!(desk.admits(&[("user", "ada"), ("plan", "gold")]), 3);
    assert_eq!(desk.check(&[("user", "ada"), ("plan", "free")], 1).rules().count(), 1);
}

pub(super) fn missing_attributes(make: Make<'_>) {
    let policy = |missing: &str| {
        format!(
            "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = {{ max = 2, per = \"10s\" }}\n\
             missing = \"{missing}\"\n[[rule]]\nname = \"all\"\nwindow = {{ max = 9, per = \"1m\" }}"
        )
    };
    let desk = TestEngine::new(make, &policy("refuse"));
    let denied = desk.check(&[], 1);
    assert_eq!(
        (denied.rule().map(RuleId::name), denied.retry_after()),
        (Some("r"), Some(Wait::Never))
    );
    assert_eq!(desk.left(ADA, "all"), 9, "nothing was charged");
    let desk = TestEngine::new(make, &policy("skip"));
    assert_eq!(desk.admits(&[]), 9);
    let desk = TestEngine::new(make, &policy("share"));
    assert_eq!(desk.admits(&[]), 2, "requests without it share one key");
    assert_eq!(desk.admits(&[("user", "")]), 2, "an empty one is another");
    assert_eq!(desk.admits(ADA), 2);
}

pub(super) fn enforcement_can_be_switched_off(make: Make<'_>) {
    let policy = |enforce: &str| {
        format!(
            "[server]\nenforce = {enforce}\n[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
             window = {{ max = 2, per = \"10s\" }}"
        )
    };
    let desk = TestEngine::new(make, &policy("\"none\""));
    assert_eq!(desk.admits(ADA), 10_000);
    assert_eq!(desk.left(ADA, "r"), 0);
    desk.edit(&policy("\"all\""));
    assert_eq!(desk.admits(ADA), 0);
    let desk = TestEngine::new(make, &policy("0.25"));
    let names: Vec<String> = (0..400).map(|name| format!("user-{name}")).collect();
    let denied = names.iter().filter(|name| !desk.allows(&[("user", name)], 3)).count();
    assert!((50..150).contains(&denied), "{denied} of 400");
    let again = names.iter().filter(|name| !desk.allows(&[("user", name)], 3)).count();
    assert_eq!(again, denied, "the same keys every time");
}

pub(super) fn charge_refused_charges(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        r#"
        [[rule]]
        name = "counts"
        key = ["user"]
        window = { max = 5, per = "10s" }
        charge_refused = true
        [[rule]]
        name = "refuses"
        key = ["user"]
        window = { max = 1, per = "10s" }
        "#,
    );
    assert!(desk.allows(ADA, 1));
    assert!(!desk.allows(ADA, 1));
    assert_eq!(desk.left(ADA, "counts"), 3, "charged though denied");
    assert!(!desk.allows(ADA, 4));
    assert_eq!(desk.left(ADA, "counts"), 0, "a window counts past its maximum");
    assert_eq!(desk.left(ADA, "refuses"), 0);
    let desk = TestEngine::new(
        make,
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"10s\" }\n\
         charge_refused = true",
    );
    assert!(desk.allows(ADA, 3));
    let denied = desk.check(ADA, 3);
    assert!(!denied.is_allowed());
    assert_eq!(denied.remaining(), Some(0), "what is left after the charge");
    assert_eq!(desk.left(ADA, "r"), 0);
    assert!(!desk.peek(ADA, 0).is_allowed(), "6 of 5 are used, so not even nothing fits");
    desk.engine.refund(&Request::new("default", ADA)).block().unwrap();
    assert!(desk.peek(ADA, 0).is_allowed() && !desk.allows(ADA, 1));
    let _ = desk.peek(BOB, 9);
    assert_eq!(desk.left(BOB, "r"), 5, "a peek charges nothing");
}

pub(super) fn unmatched_can_be_denied(make: Make<'_>) {
    let rule = "[[rule]]\nname = \"r\"\nmatch = { user = \"ada\" }\nkey = [\"user\"]\n\
                window = { max = 1, per = \"10s\" }";
    let desk = TestEngine::new(make, rule);
    assert_eq!(desk.admits(BOB), 10_000);
    assert_eq!(desk.check(BOB, 1).rule(), None);
    let desk = TestEngine::new(make, &format!("[server]\nunmatched = \"deny\"\n{rule}"));
    assert_eq!((desk.admits(BOB), desk.admits(ADA)), (0, 1));
    let elsewhere = Request::new("elsewhere", ADA);
    assert!(!desk.engine.check(&elsewhere).block().unwrap().is_allowed());
}

pub(super) fn bans_deny(make: Make<'_>) {
    let rule = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 9, per = \"1m\" }\n\
                override = [{ key = { user = \"ada\" }, unlimited = true }]";
    let desk = TestEngine::new(make, rule);
    let ada = super::read(rule).rules()[0].overrides()[0].key().to_vec();
    let until = Timestamp::from_secs(10);
    desk.engine
        .edit("test", Edit::ban(Ban::new("default", ada.clone()).until(until).reason("spam")))
        .block()
        .unwrap();
    let denied = desk.check(ADA, 1);
    assert_eq!(denied.reason().as_deref(), Some("spam"));
    assert_eq!(denied.retry_after(), Some(Wait::After(ms(10_000))));
    assert!(desk.allows(BOB, 1));
    assert!(!desk.at(9_999).allows(ADA, 1));
    assert!(desk.at(10_000).allows(ADA, 1));
    desk.engine.edit("test", Edit::ban(Ban::new("default", ada.clone()))).block().unwrap();
    assert_eq!(desk.check(ADA, 1).retry_after(), Some(Wait::Never));
    desk.engine.edit("test", Edit::unban("default", &ada)).block().unwrap();
    assert!(desk.allows(ADA, 1));
    desk.engine.edit("test", Edit::ban(Ban::new("no rules here", ada))).block().unwrap();
    let elsewhere = desk.engine.check(&Request::new("no rules here", ADA)).block().unwrap();
    assert!(!elsewhere.is_allowed(), "a ban needs no rule");
}

pub(super) fn several_requests_are_one_decision(make: Make<'_>) {
    let desk = TestEngine::new(make, THREE);
    let requests = [
        Request::new("default", &[("user", "ada"), ("org", "x")]).cost(1),
        Request::new("default", &[("user", "bob"), ("org", "x")]).cost(1),
    ];
    let attributes: &[(&str, &str)] = &[("user", "ada"), ("org", "x")];
    assert!(desk.engine.check_together(&requests).block().unwrap().is_allowed());
    assert_eq!(["user", "org", "all"].map(|rule| desk.left(attributes, rule)), [4, 2, 1]);
    assert!(!desk.engine.check_together(&requests).block().unwrap().is_allowed());
    assert_eq!(["user", "org", "all"].map(|rule| desk.left(attributes, rule)), [4, 2, 1]);
}

/// Rules that find attributes by their positions apply to those of any request, in their order.
pub(super) fn attributes_can_be_entries(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        "[[rule]]\nname = \"r\"\nmatch = { \"1.plan\" = \"free\" }\nkey = [\"2.user\"]\n\
         window = { max = 3, per = \"100s\" }\noverride = [{ key = { \"2.user\" = \"ada\" }, \
         max = 1, until = \"1970-01-01T00:00:30Z\" }]",
    );
    let ada: &[(&str, &str)] = &[("plan", "free"), ("user", "ada")];
    let swapped: &[(&str, &str)] = &[("user", "ada"), ("plan", "free")];
    assert!(desk.check(swapped, 1).rule().is_none());
    assert!(desk.allows(ada, 1));
    assert_eq!(desk.left(ada, "r"), 0);
    let denied = desk.at(1).check(ada, 1);
    assert_eq!(denied.retry_after(), Some(Wait::After(ms(29_999))), "the override ends");
    assert_eq!(desk.refund(ada, 1), 1);
    desk.cancel(desk.hold(ada, 1));
    assert!(desk.allows(ada, 1));
    assert!(desk.engine.forget(&Request::new("default", ada)).block().unwrap());
    assert_eq!(desk.admits(ada), 1);
    assert_eq!(desk.at(30_000).admits(ada), 2);
    assert_eq!(desk.admits(&[("plan", "free"), ("user", "bob")]), 3);
}

pub(super) fn forgetting(make: Make<'_>) {
    let desk = TestEngine::new(make, THREE);
    let attributes: &[(&str, &str)] = &[("user", "ada"), ("org", "x")];
    assert!(desk.allows(attributes, 3));
    assert!(desk.engine.forget(&Request::new("default", attributes)).block().unwrap());
    assert_eq!(["user", "org", "all"].map(|rule| desk.left(attributes, rule)), [5, 4, 3]);
    assert!(desk.engine.is_empty());
    assert!(!desk.engine.forget(&Request::new("default", attributes)).block().unwrap());
}

pub(super) fn forgetting_all(make: Make<'_>) {
    let other = "[[rule]]\nname = \"user\"\ndomain = \"other\"\nkey = [\"user\"]\n\
                 sliding = { max = 2, per = \"1h\" }\n";
    let desk = TestEngine::new(make, &format!("{THREE}\n{other}"));
    let users: Vec<String> = (0..300).map(|user| format!("user-{user}")).collect();
    let charge_all = || {
        for user in &users {
            let attributes = [("user", user.as_str()), ("org", user.as_str())];
            let _ = desk.check(&attributes, 1);
            let request = Request::new("other", &attributes);
            assert!(desk.engine.check(&request).block().unwrap().is_allowed());
        }
    };
    let attributes: &[(&str, &str)] = &[("user", "user-0"), ("org", "user-0")];
    let left = || ["user", "org", "all"].map(|rule| desk.left(attributes, rule));
    let left_in_other = || {
        let report = desk.engine.peek(&Request::new("other", attributes)).block().unwrap();
        report.remaining().unwrap()
    };
    charge_all();
    assert_eq!((left(), left_in_other()), ([4, 3, 0], 1));
    let before = desk.engine.len() as u64;
    let of_domain = desk.engine.forget_domain("default", None).block().unwrap();
    assert_eq!((left(), left_in_other()), ([5, 4, 3], 1), "only that domain");
    assert_eq!(before - of_domain, 300);
    assert_eq!(desk.engine.forget_domain("nowhere", None).block(), Ok(0));
    charge_all();
    let all = desk.engine.forget_all(None).block().unwrap();
    assert_eq!((left(), left_in_other(), all), ([5, 4, 3], 2, before));
    assert!(desk.engine.is_empty());
    assert_eq!(desk.engine.forget_all(None).block(), Ok(0));
}

pub(super) fn empty_keys_can_be_rejected(make: Make<'_>) {
    let rule = |empty: &str| {
        format!(
            "[[rule]]\nname = \"all\"\nwindow = {{ max = 3, per = \"1h\" }}\n\
             [[rule]]\nname = \"user\"\nkey = [\"org\", \"user\"]\n{empty}\n\
             window = {{ max = 2, per = \"1h\" }}\n"
        )
    };
    let nameless: &[(&str, &str)] = &[("org", "x"), ("user", "")];
    let desk = TestEngine::new(make, &rule("empty = \"reject\""));
    let error = desk.try_check(nameless, 1).unwrap_err();
    let user = RuleId::named("user");
    let expected = CheckError::EmptyAttribute { rule: user, attribute: "user".into() };
    assert_eq!(error, expected);
    assert!(desk.engine.is_empty(), "no rule was charged");
    assert!(desk.allows(&[("org", "x"), ("user", " ")], 1), "only empty text is empty");
    for lenient in ["", "empty = \"accept\"", "empty = \"reject\"\nmode = \"shadow\""] {
        let desk = TestEngine::new(make, &rule(lenient));
        assert!(desk.allows(nameless, 2), "{lenient}");
    }
}
