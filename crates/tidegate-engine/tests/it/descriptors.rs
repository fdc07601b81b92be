//! Rules that name attributes by their positions, as those from trees of descriptors do: every verb finds
//! them.

use tidegate::policy::{Attributes, Condition, Policy, RuleId};
use tidegate::{
    CheckError, Edit, NotGranted, Request, StoreEngine, Timestamp,
    clock::ManualClock,
    edit::Ban,
    report::{Applies, Explanation, KeyName},
};

type TestEngine = StoreEngine;

const TREE: &str = "domain: d
descriptors:
  - key: plan
    value: free
    descriptors:
      - {key: user, rate_limit: {unit: day, requests_per_unit: 2, name: users}}
";

const FREE: &[(&str, &str)] = &[("plan", "free"), ("user", "ada")];

fn tree() -> Policy {
    Policy::load("limits.yaml", TREE.as_bytes()).unwrap_or_else(|errors| panic!("{errors}")).policy
}

fn engine(policy: Policy) -> TestEngine {
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    StoreEngine::builder(policy).clock(clock).build().unwrap()
}

fn left(engine: &TestEngine) -> Option<u64> {
    engine.peek(&Request::new("d", FREE)).block().unwrap().remaining()
}

#[test]
fn every_verb_takes_attributes_for_a_descriptor() {
    let engine = engine(tree());
    let request = Request::new("d", FREE);
    assert_eq!(left(&engine), Some(2));
    assert!(engine.check(&request).block().unwrap().is_allowed());
    assert_eq!(left(&engine), Some(1));
    assert_eq!(engine.refund(&request).block(), Ok(1));
    assert_eq!(left(&engine), Some(2));
    let id = engine.hold(&request).block().unwrap().hold().expect("a reservation");
    assert_eq!(left(&engine), Some(1));
    engine.commit(id, None).block().unwrap();
    assert!(engine.ready(&request).block().unwrap().is_allowed());
    assert_eq!(left(&engine), Some(0));
    assert!(
        !engine.check(&engine.domain("d").unwrap().request(FREE)).block().unwrap().is_allowed()
    );
    let (free, other) = (request.cost(0), Request::new("d", &[("plan", "pro")]));
    let together = engine.check_together(&[free, other]).block().unwrap();
    assert_eq!(together.rule().map(|it| it.name().to_owned()), Some("users".into()));
    assert_eq!(engine.forget(&request).block(), Ok(true));
    assert_eq!(left(&engine), Some(2));
    assert_eq!(engine.enrol(&request).block().unwrap().without_carry, 1);
    let swapped = [("user", "ada"), ("plan", "free")];
    assert!(engine.check(&Request::new("d", &swapped)).block().unwrap().rule().is_none());
}

#[test]
fn the_key_and_the_explanation_have_the_entries() {
    let engine = engine(tree());
    let request = Request::new("d", FREE);
    let report = engine.check(&request).block().unwrap();
    let key = report.details().key_of(&request).expect("a rule decided");
    let parts = vec![("1.plan", Some("free")), ("2.user", Some("ada"))];
    assert_eq!(key.parts().collect::<Vec<_>>(), parts);
    let Explanation { rules, .. } = engine.explain(&request).block().unwrap();
    let applied: Vec<_> = rules
        .iter()
        .filter_map(|it| match &it.applies {
            Applies::Yes { key, .. } => Some((it.rule.name(), key)),
            _ => None,
        })
        .map(|(rule, key)| (rule, key.iter().map(|(name, it)| (&**name, it.as_deref())).collect()))
        .collect();
    assert_eq!(applied, [("users", parts)]);
}

#[test]
fn slots_are_found_by_position() {
    let policy = Policy::from_toml(
        "[[rule]]\nname = 'calls'\ndomain = 'd'\nmatch = { '1.plan' = 'free' }\nkey = ['2.user']\n\
         slots = { max = 1, queue = 1 }\n",
    )
    .unwrap();
    let engine = engine(policy);
    let request = Request::new("d", FREE);
    let lease = engine.acquire(&request, None).block().expect("a slot is free");
    let denied = engine.acquire(&request, Some(std::time::Duration::ZERO)).block();
    assert!(matches!(denied, Err(NotGranted::TimedOut)), "it waits for the slot of its key");
    let bob = [("plan", "free"), ("user", "bob")];
    assert!(engine.acquire(&Request::new("d", &bob), None).block().is_ok(), "another key");
    drop(lease);
    assert!(engine.acquire(&request, None).block().is_ok());
}

#[test]
fn bans_and_overrides_find_entries_by_position() {
    let engine = engine(Policy::from_toml(
        "[[rule]]\nname = 'r'\ndomain = 'd'\nkey = ['1.user']\nwindow = { max = 1, per = '1d' }\n\
         override = [{ key = { '1.user' = 'root' }, unlimited = true }]\n",
    )
    .unwrap());
    let passes = |user: &str| {
        let attributes = [("user", user)];
        let check = || engine.check(&Request::new("d", &attributes)).block().unwrap().is_allowed();
        (0..3).filter(|_| check()).count()
    };
    assert_eq!((passes("ada"), passes("root")), (1, 3));
    let is_root = Condition::new("1.user", ["root"]).unwrap();
    engine.edit("test", Edit::ban(Ban::new("d", vec![is_root]))).block().unwrap();
    assert_eq!(passes("root"), 0);
}

/// A retry may send its attributes in another order: the order is no part of an idempotency key.
#[test]
fn a_repeat_has_the_same_attributes_in_any_order() {
    let text = format!(
        "[[rule]]\nname = 'r'\ndomain = 'd'\nmatch = {{ '{}' = '2' }}\n\
         window = {{ max = 2, per = '1d' }}\n",
        Attributes::COUNT
    );
    let engine = engine(Policy::from_toml(&text).unwrap());
    let request = Request::new("d", FREE).idempotency_key("order 17");
    assert!(engine.check(&request).block().unwrap().is_allowed());
    let swapped = [("user", "ada"), ("plan", "free")];
    let repeat = Request::new("d", &swapped).idempotency_key("order 17");
    assert!(engine.check(&repeat).block().unwrap().is_repeat());
    let other = Request::new("d", &[("user", "eve"), ("plan", "free")]).idempotency_key("order 17");
    assert_eq!(engine.check(&other).block().err(), Some(CheckError::OtherRequest));
    assert_eq!(left(&engine), Some(1));
    let refund = Request::new("d", FREE).idempotency_key("back");
    assert_eq!(engine.refund(&refund).block(), Ok(1));
    assert_eq!(engine.refund(&refund).block(), Ok(1), "the same again");
    assert_eq!(left(&engine), Some(2));
}

#[test]
fn a_policy_that_begins_to_read_descriptors_gets_them() {
    let native = Policy::from_toml(
        "[[rule]]\nname = 'users'\ndomain = 'd'\nkey = ['user']\nwindow = { max = 9, per = '1d' }\n",
    )
    .unwrap();
    let engine = engine(native.clone());
    let keyed = Request::new("d", FREE).idempotency_key("k");
    assert!(engine.check(&keyed).block().unwrap().is_allowed());
    assert_eq!(left(&engine), Some(8));
    engine.edit("test", Edit::policy(tree())).block().unwrap();
    assert_eq!(left(&engine), Some(2));
    assert!(engine.check(&keyed).block().unwrap().is_repeat(), "the request is the same");
    engine.edit("test", Edit::policy(native)).block().unwrap();
    assert!(left(&engine).is_some_and(|left| left > 2));
}

/// Values that rules find by a name in place of those at a position, as Envoy's path in its normal form.
#[test]
fn attributes_without_a_position_count_for_names_alone() {
    let text = "[[rule]]\nname = 'by-name'\ndomain = 'd'\nkey = ['path']\nwindow = { max = 9, per = '1d' }\n\
                [[rule]]\nname = 'by-position'\ndomain = 'd'\nkey = ['1.path']\nwindow = { max = 9, per = '1d' }\n";
    let engine = engine(Policy::from_toml(text).unwrap());
    let list = [("path", "/a"), ("path", "/./a")];
    let request = Request::with_attributes("d", Attributes::new(&list).with_unordered(1));
    let report = engine.check(&request).block().unwrap();
    let keys: Vec<_> = engine.usage(&request).block().unwrap();
    assert_eq!((report.rules().count(), keys.len()), (2, 2));
    let used = |name: &str, value: &str| {
        let rule = RuleId::named(name).in_domain("d");
        let attribute = if name == "by-name" { "path" } else { "1.path" };
        let key = KeyName::new(rule, vec![(attribute.into(), Some(value.into()))]);
        engine.usage_of_key(&key).block().unwrap().unwrap().used
    };
    assert_eq!((used("by-name", "/a"), used("by-name", "/./a")), (1, 0));
    assert_eq!((used("by-position", "/a"), used("by-position", "/./a")), (0, 1));
}

/// A service may confine its clients to some values of an attribute. None of them gets around that
/// by the names that only descriptors have.
#[test]
fn text_of_a_client_stands_for_no_descriptor() {
    let text = format!(
        "[[rule]]\nname = 'r'\ndomain = 'd'\nmatch = {{ '{}' = '1' }}\nkey = ['1.customer']\n\
         window = {{ max = 9, per = '1d' }}\n",
        Attributes::COUNT
    );
    let engine = engine(Policy::from_toml(&text).unwrap());
    let victim = Request::new("d", &[("customer", "victim")]);
    assert!(engine.check(&victim.cost(2)).block().unwrap().is_allowed());
    let left = || engine.peek(&victim).block().unwrap().remaining();
    let forged = [("customer", "acme"), (Attributes::COUNT, "1"), ("1.customer", "victim")];
    for length in [2, 3] {
        let (first, last) = (&forged[..length], [&forged[3 - length..], &forged[..1]].concat());
        for forged in [first, &last] {
            let request = Request::new("d", forged);
            assert!(engine.check(&request).block().unwrap().rule().is_none(), "{forged:?}");
            assert_eq!(engine.refund(&request).block(), Ok(0), "{forged:?}");
            assert_eq!(engine.forget(&request).block(), Ok(false), "{forged:?}");
            assert!(engine.usage(&request).block().unwrap().is_empty(), "{forged:?}");
            let _ = engine.hold(&request).block();
            for report in engine.check_many(&[request]) {
                assert!(report.block().unwrap().rule().is_none(), "{forged:?}");
            }
        }
    }
    assert_eq!(left(), Some(7));
}

/// Rules from files of Limitador decide by the first descriptor of a call alone.
#[test]
fn text_of_a_client_does_not_make_a_request_a_later_descriptor() {
    let limits = "[{namespace: d, max_value: 1, seconds: 600, variables: [user]}]";
    let policy = Policy::limitador_to_toml("limits.yaml", limits.as_bytes()).unwrap();
    let engine = engine(Policy::from_toml(&policy).unwrap());
    let attributes = [("user", "ada"), (Attributes::NUMBER, "1")];
    let check = || engine.check(&Request::new("d", &attributes)).block().unwrap().is_allowed();
    assert_eq!([check(), check()], [true, false]);
}
