//! Verbs at a given time: the engine's own clock stays at zero.

use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{Edit, Request, SettleError, StoreEngine, Timestamp, clock::ManualClock};

fn engine(text: &str) -> StoreEngine {
    let policy = Policy::from_toml(text).unwrap();
    StoreEngine::builder(policy).clock(ManualClock::default()).build().unwrap()
}

fn ada() -> Request<'static> {
    Request::new("default", &[("user", "ada")])
}

const fn secs(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

const DAILY: &str = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nreserve_for = \"60s\"\n\
                     quota = { max = 10, per = \"day\" }";
const DAY: u64 = 86_400;

#[test]
fn given_time_is_also_the_time_of_day() {
    let engine = engine(DAILY);
    let left = |day| engine.at(secs(day * DAY)).peek(&ada()).block().unwrap().remaining();
    assert!(engine.at(secs(5 * DAY)).check(&ada().cost(4)).block().unwrap().is_allowed());
    assert_eq!((left(5), left(6)), (Some(6), Some(10)));
    let explained = engine.at(secs(5 * DAY)).explain(&ada()).block().unwrap();
    assert_eq!(explained.report.remaining(), Some(6));
}

#[test]
fn settlements_happen_at_the_given_time() {
    let engine = engine(DAILY);
    let reserve = |at| engine.at(secs(at)).hold(&ada().cost(2)).block().unwrap().hold().unwrap();
    // Within the 60 seconds of a reservation each is settled; after them it is gone.
    let late = Err(SettleError::Gone);
    let hold = reserve(0);
    assert_eq!(engine.at(secs(59)).renew(hold).block(), Ok(secs(119)));
    assert!(engine.at(secs(118)).commit(hold, Some(1)).block().is_ok());
    assert_eq!(engine.at(secs(118)).refund_hold(hold, 1).block(), Ok(1));
    let hold = reserve(200);
    assert!(engine.at(secs(259)).cancel(hold, None).block().is_ok());
    let hold = reserve(200);
    assert!(engine.at(secs(259)).void(hold, None).block().is_ok());
    let hold = reserve(300);
    assert_eq!(engine.at(secs(360)).void(hold, None).block(), late);
    assert_eq!(engine.at(secs(360)).peek(&ada()).block().unwrap().remaining(), Some(10));
}

#[test]
fn several_requests_are_decided_at_the_given_time() {
    let engine = engine("[[rule]]\nname = \"one\"\nkey = [\"user\"]\ncooldown = \"60s\"");
    let allowed = |at, requests: &[Request<'_>]| -> Vec<bool> {
        let decided = engine.at(secs(at)).check_many(requests);
        decided.into_iter().map(|it| it.block().unwrap().is_allowed()).collect()
    };
    assert_eq!(allowed(0, &[ada(), ada()]), [true, false]);
    assert_eq!(allowed(60, &[ada()]), [true]);
    let together = [ada(), Request::new("default", &[("user", "bob")])];
    assert!(!engine.at(secs(119)).check_together(&together).block().unwrap().is_allowed());
    assert!(engine.at(secs(120)).check_together(&together).block().unwrap().is_allowed());
}

#[test]
fn keys_are_enrolled_at_the_given_time() {
    let engine = engine(
        "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\n\
         quota = { max = 2, per = \"day\", carry = \"all\" }",
    );
    assert_eq!(engine.at(secs(DAY)).enrol(&ada()).block().unwrap().enrolled, 1);
    let left = |day| engine.at(secs(day * DAY)).peek(&ada()).block().unwrap().remaining();
    assert_eq!((left(1), left(2), left(3)), (Some(2), Some(4), Some(6)));
    assert_eq!(engine.at(secs(DAY)).forget(&ada()).block(), Ok(true));
    assert_eq!(left(3), Some(2));
}

#[test]
fn edits_count_from_the_given_time() {
    let text = |max| {
        format!(
            "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\neffective = \"next\"\n\
             window = {{ max = {max}, per = \"60s\" }}"
        )
    };
    let engine = engine(&text(1));
    assert!(engine.at(secs(100)).check(&ada()).block().unwrap().is_allowed());
    let changes =
        engine.at(secs(130)).edit("ops", Edit::policy(Policy::from_toml(&text(3)).unwrap()));
    let changes = changes.block().unwrap();
    assert_eq!(changes[0].at, secs(130));
    let limit = |at| engine.at(secs(at)).peek(&ada()).block().unwrap().limit();
    assert_eq!((limit(159), limit(160)), (Some(1), Some(3)));
    let rule = Policy::from_toml(&text(5)).unwrap().rules()[0].clone();
    let changes = engine.at(secs(170)).edit("ops", Edit::rule(rule)).block().unwrap();
    assert_eq!(changes[0].at, secs(170));
}

#[test]
fn refunds_and_rounds_are_of_the_given_time() {
    let engine =
        engine("[[rule]]\nname = \"w\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"60s\" }");
    assert!(engine.at(secs(100)).check(&ada().cost(3)).block().unwrap().is_allowed());
    assert_eq!(engine.at(secs(100)).refund(&ada().cost(1)).block(), Ok(1));
    // The window has closed.
    let later = secs(100).saturating_add(Duration::from_secs(60));
    assert_eq!(engine.at(later).refund(&ada().cost(1)).block(), Ok(0));
    assert_eq!(engine.at(later).close_round("default", None).block(), Ok(1));
}
