//! Clocks that step back, and clocks that do not show the time of day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{
    Request, StoreEngine, Timestamp,
    clock::{Clock, ManualClock},
};

/// A clock that counts from its start, with a time of day beside it.
#[derive(Clone, Default)]
struct SinceStart {
    now_ms: Arc<AtomicU64>,
}

impl SinceStart {
    fn set(&self, ms: u64) {
        self.now_ms.store(ms, Ordering::SeqCst);
    }
}

/// The day on which the process was started: 1 January 2026 in UTC.
const START_S: u64 = 1_767_225_600;

impl Clock for SinceStart {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        self.now().saturating_add(Duration::from_secs(START_S))
    }
}

/// An override ends by the time of day, but its bucket was filled by the clock.
#[test]
fn overrides_end_by_the_time_of_day() {
    let policy = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nbucket = { rate = \"10/s\", burst = 100 }\n\
                  override = [{ key = { user = \"ada\" }, rate = \"1/s\", \
                  until = \"2026-01-01T00:00:20Z\" }]";
    let clock = SinceStart::default();
    let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .clock(clock.clone())
        .build()
        .unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(engine.check(&ada.cost(100)).block().unwrap().is_allowed());
    let left = |ms| {
        clock.set(ms);
        engine.peek(&ada).block().unwrap().remaining()
    };
    assert_eq!(left(19_000), Some(19));
    assert_eq!(left(21_000), Some(20 + 10));
}

/// Days follow the time of day, and waits are those of the clock.
#[test]
fn quotas_follow_the_time_of_day() {
    let policy = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nquota = { max = 2, per = \"day\" }";
    let clock = SinceStart::default();
    let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .clock(clock.clone())
        .build()
        .unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    let day_ms = 86_400_000;
    for (ms, is_allowed) in [(0, true), (1, true), (day_ms - 1, false), (day_ms, true)] {
        clock.set(ms);
        assert_eq!(engine.check(&ada).block().unwrap().is_allowed(), is_allowed, "at {ms} ms");
    }
}

/// A key whose slot was reused is not decided at a time before that.
#[test]
fn a_step_back_refills_no_key_that_was_forgotten() {
    for limit in ["window = { max = 1, per = \"10s\" }", "sliding = { max = 1, per = \"10s\" }"] {
        let policy = format!(
            "[server]\nmax_keys = 4\nwhen_full = \"share\"\n\
             [[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}"
        );
        let clock = ManualClock::default();
        let engine = StoreEngine::builder(Policy::from_toml(&policy).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap();
        let decided_at = |user: &str| {
            let attributes = [("user", user)];
            let report = engine.check(&Request::new("default", &attributes)).block().unwrap();
            report.decision().unwrap().decided_at()
        };
        for user in 0..4 {
            decided_at(&user.to_string());
        }
        clock.set(Timestamp::from_secs(60));
        for user in 100..200 {
            decided_at(&user.to_string());
        }
        clock.set(Timestamp::from_secs(5));
        for user in 0..4 {
            assert_eq!(decided_at(&user.to_string()), Timestamp::from_secs(60), "{limit}");
        }
    }
}
