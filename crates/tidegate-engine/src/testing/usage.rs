//! What keys have used of their limits.

use std::time::Duration;

use tidegate_policy::policy::Mode;

use super::{ADA, Attributes, BOB, Make, TestEngine, ms, rule};
use crate::{Request, RuleUsage};

impl TestEngine {
    fn usage(&self, attributes: Attributes<'_>) -> Vec<RuleUsage> {
        self.engine.usage(&Request::new("default", attributes)).block().unwrap()
    }

    /// Used, held, limit, remaining and the share in millionths, of the only rule.
    fn numbers(&self, attributes: Attributes<'_>) -> [u64; 5] {
        let usage = self.usage(attributes);
        let [it] = &*usage else { panic!("{usage:?}") };
        let (limit, remaining) = (it.limit.unwrap(), it.remaining.unwrap());
        assert_eq!(remaining, self.left(attributes, "r"), "as a peek: {it:?}");
        [it.used, it.held, limit, remaining, it.share_ppm().unwrap()]
    }

    fn names(&self, attributes: Attributes<'_>) -> Vec<String> {
        self.usage(attributes).iter().map(|it| it.rule.name().to_owned()).collect()
    }
}

pub(super) fn every_limit_is_measured(make: Make<'_>) {
    for (limit, reset) in [
        ("bucket = { rate = \"1/s\", burst = 10 }", Some(ms(3_000))),
        ("window = { max = 10, per = \"1h\" }", Some(ms(3_600_000))),
        ("sliding = { max = 10, per = \"1h\" }", Some(ms(3_600_000))),
        ("quota = { max = 10, per = \"day\" }", Some(ms(86_400_000))),
        ("quota = { max = 10, per = \"round\" }", None),
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        assert_eq!(desk.numbers(ADA), [0, 0, 10, 10, 0], "{limit}");
        assert_eq!(desk.usage(ADA)[0].reset, Some(Duration::ZERO), "{limit}");
        assert!(desk.allows(ADA, 3));
        assert_eq!(desk.numbers(ADA), [3, 0, 10, 7, 300_000], "{limit}");
        assert_eq!(desk.usage(ADA)[0].reset, reset, "{limit}");
        assert_eq!(desk.numbers(BOB), [0, 0, 10, 10, 0], "{limit}");
        let id = desk.hold(ADA, 4);
        assert_eq!(desk.numbers(ADA), [3, 4, 10, 3, 700_000], "{limit}");
        desk.commit(id, 2);
        assert_eq!(desk.numbers(ADA), [5, 0, 10, 5, 500_000], "{limit}");
        assert_eq!(desk.refund(ADA, 1), 1);
        assert_eq!(desk.numbers(ADA), [4, 0, 10, 6, 400_000], "{limit}");
        let id = desk.hold(ADA, 6);
        assert_eq!(desk.numbers(ADA), [4, 6, 10, 0, 1_000_000], "{limit}");
        desk.cancel(id);
        assert_eq!(desk.numbers(ADA), [4, 0, 10, 6, 400_000], "{limit}");
    }
    let desk = TestEngine::new(make, &rule("cooldown = \"60s\""));
    assert_eq!(desk.numbers(ADA), [0, 0, 1, 1, 0]);
    assert!(desk.allows(ADA, 1));
    assert_eq!(desk.numbers(ADA), [1, 0, 1, 0, 1_000_000]);
    assert_eq!(desk.at(59_000).usage(ADA)[0].reset, Some(ms(1_000)));
    assert_eq!(desk.at(60_000).numbers(ADA), [0, 0, 1, 1, 0]);
    // What is refilled or over no longer counts; a part of a unit counts as one.
    let desk = TestEngine::new(make, &rule("bucket = { rate = \"1/s\", burst = 10 }"));
    assert!(desk.at(0).allows(ADA, 3));
    assert_eq!(desk.at(500).numbers(ADA), [3, 0, 10, 7, 300_000]);
    assert_eq!(desk.at(1_000).numbers(ADA), [2, 0, 10, 8, 200_000]);
    let desk = TestEngine::new(make, &rule("window = { max = 3, per = \"10s\" }"));
    assert!(desk.at(0).allows(ADA, 1));
    assert_eq!(desk.at(9_999).numbers(ADA), [1, 0, 3, 2, 333_333]);
    assert_eq!(desk.at(10_000).numbers(ADA), [0, 0, 3, 3, 0]);
}

pub(super) fn open_holds_and_leases_are_held(make: Make<'_>) {
    let desk =
        TestEngine::new(make, &rule("window = { max = 10, per = \"1h\" }\nreserve_for = \"30s\""));
    desk.hold(ADA, 4);
    assert_eq!(desk.at(29_999).numbers(ADA), [0, 4, 10, 6, 400_000]);
    assert_eq!(desk.at(30_000).numbers(ADA), [0, 0, 10, 10, 0], "it has expired");
    let slots = "slots = { max = 4, queue = 0, expires = \"30s\" }";
    let desk = TestEngine::new(make, &rule(slots));
    let acquire = || desk.engine.acquire(&Request::new("default", ADA), None).block().unwrap();
    let (first, _second, _third) = (acquire(), acquire(), acquire());
    assert_eq!(desk.numbers(ADA), [0, 3, 4, 1, 750_000]);
    assert_eq!(desk.usage(ADA)[0].reset, None);
    first.release().block().unwrap();
    assert_eq!(desk.numbers(ADA), [0, 2, 4, 2, 500_000]);
    assert_eq!(desk.numbers(BOB), [0, 0, 4, 4, 0]);
    assert_eq!(desk.at(30_000).numbers(ADA), [0, 0, 4, 4, 0]);
    // A hold of a quota without carry ends with its round, and goes on with it.
    for (carry, after) in [("", [0, 0, 10, 10, 0]), (", carry = 2", [0, 4, 12, 8, 333_333])] {
        let limit = format!("quota = {{ max = 10, per = \"round\"{carry} }}");
        let desk = TestEngine::new(make, &rule(&limit));
        desk.hold(ADA, 4);
        desk.engine.close_round("default", None).block().unwrap();
        assert_eq!(desk.numbers(ADA), after, "{limit}");
    }
}

pub(super) fn debt_and_carried_units_are_measured(make: Make<'_>) {
    let close = |desk: &TestEngine| desk.engine.close_round("default", None).block().unwrap();
    let desk = TestEngine::new(make, &rule("quota = { max = 10, per = \"round\" }"));
    let id = desk.hold(ADA, 4);
    desk.commit(id, 27);
    assert_eq!(desk.numbers(ADA), [27, 0, 10, 0, 2_700_000]);
    close(&desk);
    assert_eq!(desk.numbers(ADA), [17, 0, 10, 0, 1_700_000]);
    close(&desk);
    assert_eq!(desk.numbers(ADA), [7, 0, 10, 3, 700_000]);
    let desk = TestEngine::new(make, &rule("quota = { max = 10, per = \"round\", carry = 5 }"));
    assert!(desk.allows(ADA, 4));
    close(&desk);
    assert_eq!(desk.numbers(ADA), [0, 0, 15, 15, 0]);
    assert!(desk.allows(ADA, 3));
    assert_eq!(desk.numbers(ADA), [3, 0, 15, 12, 200_000]);
    let desk = TestEngine::new(make, &rule("bucket = { rate = \"1/s\", burst = 10, debt = 20 }"));
    let id = desk.at(0).hold(ADA, 5);
    desk.commit(id, 25);
    assert_eq!(desk.numbers(ADA), [25, 0, 10, 0, 2_500_000]);
    assert_eq!(desk.at(20_000).numbers(ADA), [5, 0, 10, 5, 500_000]);
}

pub(super) fn limits_in_force_are_measured(make: Make<'_>) {
    let window = "window = { max = 10, per = \"1h\" }";
    let desk = TestEngine::new(
        make,
        &rule(&format!(
            "{window}\noverride = [{{ key = {{ user = \"bob\" }}, max = 20 }}, \
             {{ key = {{ user = \"eve\" }}, unlimited = true }}]"
        )),
    );
    assert!(desk.allows(BOB, 5));
    assert_eq!(desk.numbers(BOB), [5, 0, 20, 15, 250_000]);
    assert!(desk.allows(ADA, 5));
    desk.set_override(window, "{ key = { user = \"ada\" }, max = 4 }");
    assert_eq!(desk.numbers(ADA), [5, 0, 4, 0, 1_250_000], "what was used stays used");
    let usage = desk.usage(&[("user", "eve")]);
    assert_eq!((usage[0].limit, usage[0].remaining, usage[0].share_ppm()), (None, None, None));
    assert_eq!((usage[0].used, usage[0].held, usage[0].reset), (0, 0, Some(Duration::ZERO)));
    // An edit for the next window is not in force yet.
    let next = |max: u64| {
        rule(&format!("window = {{ max = {max}, per = \"10s\" }}\neffective = \"next\""))
    };
    let desk = TestEngine::new(make, &next(10));
    assert!(desk.at(0).allows(ADA, 5));
    desk.at(1_000).edit(&next(5));
    assert_eq!(desk.at(2_000).numbers(ADA), [5, 0, 10, 5, 500_000]);
    assert_eq!(desk.at(10_000).numbers(ADA), [0, 0, 5, 5, 0]);
    desk.edit(&rule("window = { max = 8, per = \"10s\" }"));
    assert_eq!(desk.numbers(ADA), [0, 0, 8, 8, 0]);
}

pub(super) fn only_the_attributes_of_keys_are_needed(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 10, per = \"1h\" }\n\
         cost = { by = \"tier\", \"1..\" = 2 }\n\
         [[rule]]\nname = \"all\"\nwindow = { max = 100, per = \"1h\" }\n\
         [[rule]]\nname = \"search\"\nmatch = { path = \"/search\" }\nkey = [\"user\"]\n\
         window = { max = 5, per = \"1h\" }\n\
         [[rule]]\nname = \"ada\"\nmatch = { user = \"ada\" }\nwindow = { max = 50, per = \"1h\" }\n\
         mode = \"shadow\"\n\
         [[rule]]\nname = \"ip\"\nkey = [\"ip\"]\nmissing = \"share\"\n\
         window = { max = 7, per = \"1h\" }\n",
    );
    assert_eq!(desk.names(ADA), ["user", "all", "ada"]);
    assert_eq!(desk.names(BOB), ["user", "all"]);
    assert_eq!(desk.names(&[]), ["all"]);
    assert_eq!(desk.names(&[("user", "bob"), ("path", "/search")]), ["user", "all", "search"]);
    assert_eq!(desk.names(&[("user", "bob"), ("path", "/")]), ["user", "all"]);
    assert_eq!(desk.names(&[("ip", "192.0.2.1")]), ["all", "ip"]);
    let none = desk.engine.usage(&Request::new("other", ADA)).block().unwrap();
    assert_eq!(none, []);
    let modes: Vec<Mode> = desk.usage(ADA).iter().map(|it| it.mode).collect();
    assert_eq!(modes, [Mode::Enforce, Mode::Enforce, Mode::Shadow]);
    let of_ada: Attributes<'_> = &[("user", "ada"), ("tier", "1"), ("ip", "192.0.2.1")];
    assert!(desk.allows(of_ada, 1));
    let used: Vec<u64> = desk.usage(ADA).iter().map(|it| it.used).collect();
    assert_eq!(used, [2, 1, 1]);
    assert_eq!(desk.usage(ADA)[0].key, [("user".into(), Some("ada".into()))]);
}

pub(super) fn measuring_changes_nothing(make: Make<'_>) {
    for limit in [
        "bucket = { rate = \"1/h\", burst = 3 }",
        "quota = { max = 3, per = \"round\", carry = \"all\" }",
        "cooldown = \"60s\"",
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        for _ in 0..5 {
            desk.usage(ADA);
            desk.usage(BOB);
        }
        let admits = desk.admits(ADA);
        assert_eq!(desk.engine.len(), 1, "it makes no key known: {limit}");
        assert_eq!(admits, if limit.starts_with("cooldown") { 1 } else { 3 }, "{limit}");
        let denied = desk.check(ADA, 1).retry_after();
        desk.usage(ADA);
        assert_eq!(desk.check(ADA, 1).retry_after(), denied, "{limit}");
    }
    let desk = TestEngine::new(
        make,
        &rule("window = { max = 3, per = \"1h\" }\n[[rule]]\nname = \"all\"\ncooldown = \"1h\""),
    );
    let at = desk.engine.at(tidegate_core::Timestamp::from_secs(5));
    assert!(at.check(&Request::new("default", ADA)).block().unwrap().is_allowed());
    let usage = at.usage(&Request::new("default", ADA)).block().unwrap();
    assert_eq!((usage[0].used, usage[1].used), (1, 1));
}
