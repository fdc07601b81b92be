//! Several requests in one decision, and limits from requests.

use crate::Edit;
use tidegate_core::Timestamp;
use tidegate_policy::WindowUnit;
use tidegate_table::ManualClock;

use super::{ADA, BOB, Make, TestEngine, read};
use crate::{CheckError, Report, Request, RequestLimit, StoreEngine};

const TWO: &str = r#"
    [[rule]]
    name = "user"
    key = ["user"]
    missing = "skip"
    window = { max = 3, per = "10s", align = "epoch" }
    override = [{ key = { user = "root" }, unlimited = true }]
    [[rule]]
    name = "path"
    match = { path = "*" }
    key = ["path"]
    window = { max = 2, per = "10s", align = "epoch" }
"#;

/// The rules of a request, by its index: names and what remains.
fn rule_counts(report: &Report, request: usize) -> Vec<(&str, u64)> {
    report.details().rules_of(request).map(|it| (it.rule.name(), it.decision.remaining())).collect()
}

pub(super) fn each_request_has_its_rules(make: Make<'_>) {
    let desk = TestEngine::new(make, TWO);
    let requests = [
        Request::new("default", &[("path", "/a"), ("user", "ada")]),
        Request::new("default", &[("other", "x")]),
        Request::new("default", &[("user", "bob")]).cost(2),
        Request::new("default", &[("user", "ada")]),
        Request::new("default", &[("user", "root")]),
    ];
    let report = desk.engine.check_together(&requests).block().unwrap();
    assert!(report.is_allowed());
    assert_eq!(rule_counts(&report, 0), [("user", 1), ("path", 1)]);
    assert_eq!(rule_counts(&report, 1), []);
    assert_eq!(rule_counts(&report, 2), [("user", 1)]);
    assert_eq!(rule_counts(&report, 3), [("user", 1)], "the same key, once for both");
    let unlimited = [0, 1, 2, 3, 4].map(|index| report.details().is_unlimited(index));
    assert_eq!(unlimited, [false, false, false, false, true]);
    let report = desk.engine.check_together(&requests[2..]).block().unwrap();
    assert!(!report.is_allowed());
    let denying =
        [0, 1].map(|at| report.details().rules_of(at).any(|it| !it.decision.is_allowed()));
    assert_eq!(denying, [true, false], "bob is denied, ada is not charged");
    assert_eq!(desk.left(ADA, "user"), 1);
    let alone = desk.check(ADA, 1);
    assert_eq!(rule_counts(&alone, 0), [("user", 0)]);
    assert!(desk.check(&[("user", "root")], 1).details().is_unlimited(0));
}

pub(super) fn early_denial_names_the_request(make: Make<'_>) {
    let desk = TestEngine::new(make, &TWO.replace("missing = \"skip\"", "missing = \"refuse\""));
    let requests = [ADA, &[("path", "/a")]].map(|it| Request::new("default", it));
    let report = desk.engine.check_together(&requests).block().unwrap();
    assert_eq!((report.is_allowed(), report.details().denied_request()), (false, Some(1)));
    assert_eq!(desk.check(ADA, 1).details().denied_request(), None);
}

fn with_request_limits(make: Make<'_>) -> TestEngine {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let policy = read(TWO).with_request_limits();
    TestEngine {
        engine: StoreEngine::builder(policy).store(make()).clock(clock.clone()).build().unwrap(),
        clock,
    }
}

fn left(desk: &TestEngine, request: &Request<'_>) -> Option<(u64, u64)> {
    let report = desk.engine.check(request).block().unwrap();
    let counts = report.remaining().zip(report.limit());
    counts.filter(|_| report.is_allowed())
}

pub(super) fn request_limits_count_by_length(make: Make<'_>) {
    let desk = with_request_limits(make);
    let [two, five, hour] =
        [(2, WindowUnit::Minute), (5, WindowUnit::Minute), (5, WindowUnit::Hour)]
            .map(|(max, unit)| RequestLimit::new(max, unit));
    let ada = Request::new("default", ADA);
    assert_eq!(left(&desk, &ada.request_limit(&two)), Some((1, 2)));
    assert_eq!(left(&desk, &ada.request_limit(&two)), Some((0, 2)));
    assert_eq!(left(&desk, &ada.request_limit(&two)), None);
    assert_eq!(left(&desk, &ada.request_limit(&five)), Some((1, 5)), "the denied one counts");
    assert_eq!(left(&desk, &ada.request_limit(&hour)), Some((4, 5)), "another window");
    assert_eq!(left(&desk, &Request::new("default", BOB).request_limit(&two)), Some((1, 2)));
    assert_eq!(left(&desk, &ada), Some((2, 3)), "the rules have their own count");
    let nothing = RequestLimit::new(0, WindowUnit::Second);
    let look = ada.request_limit(&nothing).cost(0);
    assert!(desk.engine.check(&look).block().unwrap().is_allowed());
    assert_eq!(left(&desk, &ada.request_limit(&nothing)), None);
    assert!(!desk.engine.check(&look).block().unwrap().is_allowed(), "1 of 0 is used");
    assert_eq!(desk.engine.refund(&ada.request_limit(&five).cost(2)).block(), Ok(2));
    assert_eq!(left(&desk, &ada.request_limit(&five)), Some((2, 5)));
    // The minute that began at 960 s ends at 1 020 s.
    desk.at(1_019_999);
    assert_eq!(left(&desk, &ada.request_limit(&two)), None);
    desk.at(1_020_000);
    assert_eq!(left(&desk, &ada.request_limit(&two)), Some((1, 2)));
}

pub(super) fn request_limits_replace_rules(make: Make<'_>) {
    let desk = with_request_limits(make);
    let limit = RequestLimit::new(1, WindowUnit::Year);
    let unknown = Request::new("unknown", ADA).request_limit(&limit);
    for _ in 0..3 {
        let report = desk.engine.check(&unknown).block().unwrap();
        assert!(report.is_allowed() && report.rule().is_none(), "an unknown domain");
    }
    let requests = [
        Request::new("default", ADA).request_limit(&limit),
        Request::new("default", &[("user", "ada"), ("path", "/a")]),
    ];
    let report = desk.engine.check_together(&requests).block().unwrap();
    assert_eq!(rule_counts(&report, 0), [("limit per year", 0)]);
    assert_eq!(rule_counts(&report, 1), [("user", 2), ("path", 1)]);
    // Other requests denied with it are not charged, and it is, as far as it fits.
    assert!(!desk.engine.check_together(&requests).block().unwrap().is_allowed());
    assert_eq!(desk.left(ADA, "user"), 2);
    // An edit of the rules does not change the counts of requests.
    desk.engine
        .edit("test", Edit::policy(read(&TWO.replace("max = 3", "max = 4"))))
        .block()
        .unwrap();
    assert!(!desk.engine.check(&requests[0]).block().unwrap().is_allowed());
    assert_eq!(desk.left(ADA, "user"), 3);
    let rejected = TestEngine::new(make, TWO).engine.check(&requests[0]).block();
    assert!(matches!(rejected, Err(CheckError::NoOwnLimits)));
}
