//! Keys without charges, and what an edit means for them.

use tidegate::policy::Policy;
use tidegate::{Engine, ManualClock, Request};

/// A governor who cannot afford anything yet must be able to one day: a denied key is stored, and
/// carries units over from then on.
#[test]
fn unseen_keys_collect_what_is_carried() {
    let policy = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
                  quota = { max = 2, per = \"round\", carry = \"all\" }";
    let engine = Engine::with_clock(Policy::from_toml(policy).unwrap(), ManualClock::default());
    let request = Request::new("default", &[("user", "ada")]).cost(3);
    assert!(!engine.check(&request).wait().unwrap().is_allowed());
    engine.close_round("default").wait().unwrap();
    assert!(engine.check(&request).wait().unwrap().is_allowed());
}

/// An override that came and went while the key was not charged: its refill is forgotten, so the
/// key has more after the override is dropped than it had a moment before.
#[test]
fn dropping_an_override_refills_nothing_that_was_never_charged_under_it() {
    let policy = |exception: &str| {
        let text = format!(
            "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nbucket = {{ rate = \"10/s\", burst = 100 }}\n\
             override = [{exception}]"
        );
        Policy::from_toml(&text).unwrap()
    };
    let clock = ManualClock::default();
    let engine = Engine::with_clock(policy(""), clock.clone());
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(engine.check(&ada.cost(100)).wait().unwrap().is_allowed());
    engine.replace_policy("test", policy("{ key = { user = \"ada\" }, rate = \"1/day\" }"));
    clock.set(tidegate::Timestamp::from_secs(5));
    assert_eq!(engine.peek(&ada).wait().unwrap().remaining(), Some(0));
    engine.replace_policy("test", policy(""));
    assert_eq!(engine.peek(&ada).wait().unwrap().remaining(), Some(0));
}
