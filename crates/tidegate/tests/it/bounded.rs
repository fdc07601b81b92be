//! The capacity: how a full table treats stored and new keys.

use tidegate::{
    Limiter, Sliding, Wait, WhenFull, Window,
    limiter::{FullError, KeyedLimit},
};

use crate::{one_per_day, one_per_second, seconds, secs};

fn limiter<A: KeyedLimit>(limit: A, max_keys: usize, when_full: WhenFull) -> Limiter<u64, A> {
    Limiter::builder(limit).max_keys(max_keys).when_full(when_full).build().unwrap()
}

#[test]
fn known_keys_keep_exactly_their_budget_through_a_scan() {
    for when_full in [WhenFull::Share, WhenFull::Deny] {
        let limiter = limiter(one_per_day(10), 5_000, when_full);
        for key in 0..1_000 {
            assert!(limiter.at(secs(1)).check_n(&key, key % 10 + 1).is_allowed());
        }
        for key in 1_000..100_000 {
            let _ = limiter.at(secs(1)).allow(&key);
        }
        assert_eq!(limiter.len(), 5_000);
        for key in 0..1_000 {
            let left = (0..20).filter(|_| limiter.at(secs(1)).allow(&key)).count() as u64;
            assert_eq!(left, 9 - key % 10, "key {key}, {when_full:?}");
        }
    }
}

#[test]
fn new_keys_are_denied_for_an_unknown_time_under_when_full_deny() {
    let limiter = limiter(one_per_day(3), 100, WhenFull::Deny);
    (0..100).for_each(|key| assert!(limiter.at(secs(1)).allow(&key)));
    let denied = limiter.at(secs(1)).check(&100);
    assert_eq!((denied.retry_after(), denied.remaining()), (Some(Wait::Unknown), 0));
    assert_eq!(limiter.at(secs(1)).check_n(&100, 4).retry_after(), Some(Wait::Never));
}

fn shares_never_too_much(limit: impl KeyedLimit, burst: usize) {
    let limiter = limiter(limit, 200, WhenFull::Share);
    (0..200).for_each(|key| assert!(limiter.at(secs(1)).allow(&key)));
    let mut passed = 0;
    for key in 200..300 {
        let admitted = (0..2 * burst).filter(|_| limiter.at(secs(1)).allow(&key)).count();
        assert!(admitted <= burst, "key {key} was admitted {admitted} times");
        passed += usize::from(admitted > 0);
    }
    assert!(passed > 50, "{passed} of 100 new keys were allowed by the shared counters");
    // Later charges of neighbours refill nothing for keys that have used up their limit.
    let drained = 300..310;
    drained.clone().for_each(|key| while limiter.at(secs(1)).allow(&key) {});
    for key in 310..500 {
        let _ = limiter.at(secs(1)).allow(&key);
    }
    assert!(drained.into_iter().all(|key| !limiter.at(secs(1)).allow(&key)));
}

#[test]
fn new_keys_share_counters_that_never_allow_one_of_them_too_much() {
    shares_never_too_much(one_per_day(5), 5);
    shares_never_too_much(Window::new(5, seconds(60)), 5);
    shares_never_too_much(Sliding::new(5, seconds(60), 6), 5);
    shares_never_too_much(Sliding::new(50, seconds(60), 6), 50);
}

#[test]
fn a_key_leaves_the_shared_counters_with_its_charges() {
    let limiter = limiter(one_per_day(5), 100, WhenFull::Share);
    (0..100).for_each(|key| assert!(limiter.at(secs(1)).allow(&key)));
    assert_eq!((0..9).filter(|_| limiter.at(secs(1)).allow(&500)).count(), 5);
    assert!(limiter.forget(&7), "one slot becomes free");
    assert!(!limiter.at(secs(1)).allow(&500), "but nothing was forgotten about the newcomer");
    assert_eq!(limiter.at(secs(1)).peek(&500).remaining(), 0);
}

#[test]
fn idle_keys_free_slots_at_the_capacity() {
    let limiter = limiter(one_per_second(1), 1_000, WhenFull::Deny);
    for round in 0..5_u64 {
        let now = secs(1 + 2 * round);
        let keys = (round * 1_000)..(round + 1) * 1_000;
        let admitted = keys.filter(|key| limiter.at(now).allow(key)).count();
        assert!(admitted >= 970, "round {round}: {admitted}");
        assert!(limiter.len() <= 1_000);
    }
}

#[test]
fn keys_that_stay_idle_free_slots_below_the_capacity_too() {
    // One key per millisecond for ten minutes, each idle after a second: memory follows the live
    // ones, not all that ever came.
    let limiter: Limiter<u64> = Limiter::new(one_per_second(1));
    for key in 0..600_000 {
        assert!(limiter.at(crate::ms(key)).allow(&key));
    }
    assert!(limiter.len() < 60_000, "{} keys for 1 000 live ones", limiter.len());
}

#[test]
fn a_capacity_of_one_key() {
    let limiter = limiter(one_per_second(2), 1, WhenFull::Share);
    assert!(limiter.at(secs(1)).allow(&1) && limiter.at(secs(1)).allow(&1));
    for key in 2..100 {
        let admitted = (0..5).filter(|_| limiter.at(secs(1)).allow(&key)).count();
        assert!(admitted <= 2);
    }
    assert!(!limiter.at(secs(1)).allow(&1));
    assert_eq!((limiter.len(), limiter.capacity()), (1, 1));
}

#[test]
fn an_override_without_a_slot_is_an_error() {
    let limiter = limiter(one_per_day(1), 2, WhenFull::Share);
    assert!(limiter.at(secs(1)).allow(&1) && limiter.at(secs(1)).allow(&2));
    assert_eq!(limiter.at(secs(1)).set_override(&3, one_per_day(9)), Err(FullError));
    assert!(limiter.at(secs(1)).set_override(&2, one_per_day(9)).is_ok());
    assert!(limiter.at(secs(1)).allow(&2));
}

#[test]
fn a_capacity_hint_changes_no_decision() {
    let (hinted, growing) = (
        Limiter::<u64>::builder(one_per_day(2)).capacity_hint(50_000).build().unwrap(),
        Limiter::<u64>::new(one_per_day(2)),
    );
    for call in 0..300_000_u64 {
        let key = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000;
        assert_eq!(hinted.at(secs(1)).check(&key), growing.at(secs(1)).check(&key));
    }
    assert_eq!(hinted.len(), growing.len());
}

#[test]
fn a_hash_that_always_collides_is_slow_and_wrong_about_keys_but_never_panics() {
    #[derive(Clone, Default)]
    struct Same;
    impl std::hash::Hasher for Same {
        fn write(&mut self, _: &[u8]) {}
        fn finish(&self) -> u64 {
            0
        }
    }
    let hasher = std::hash::BuildHasherDefault::<Same>::default();
    let limiter = Limiter::<u64>::builder(one_per_day(3)).hasher(hasher).build().unwrap();
    assert_eq!((0..100).filter(|key| limiter.at(secs(1)).allow(key)).count(), 3);
}

/// A hash that passes numbers on as they are.
#[derive(Clone, Default)]
struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[test]
fn a_hash_without_any_spread_is_spread_by_the_limiter() {
    for shift in [0, 8, 32, 40] {
        let hasher = std::hash::BuildHasherDefault::<Identity>::default();
        let limiter = Limiter::<u64>::builder(one_per_day(1)).hasher(hasher).build().unwrap();
        for key in 0..100_000 {
            assert!(limiter.at(secs(1)).allow(&(key << shift)), "key {key}, shift {shift}");
            assert!(!limiter.at(secs(1)).allow(&(key << shift)), "key {key}, shift {shift}");
        }
        assert_eq!(limiter.len(), 100_000);
    }
}

#[test]
fn shared_windows_end_and_begin_like_others() {
    let limiter = limiter(Window::new(10, seconds(10)), 1, WhenFull::Share);
    for round in 0..8 {
        let now = secs(20 * round);
        assert!(limiter.at(now).allow(&0), "the only slot stays taken");
        let admitted = (0..15).filter(|_| limiter.at(now).allow(&1)).count();
        assert_eq!(admitted, 10, "round {round}");
    }
}

#[test]
fn an_override_does_not_revive_what_was_forgotten_at_a_later_time() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.at(secs(0)).check_n(&1, 10).is_allowed());
    limiter.at(secs(100)).evict_idle();
    limiter.at(secs(1)).set_override(&1, one_per_second(10)).unwrap();
    // Forgotten as of 100 s, so its limit counts from there.
    assert!(limiter.at(secs(1)).check_n(&1, 10).is_allowed());
    assert!(!limiter.at(secs(100)).allow(&1));
    assert!(limiter.at(secs(200)).remove_override(&1));
}

#[test]
fn forgetting_all_leaves_limits_of_keys_and_nothing_else() {
    fn forgets<A: KeyedLimit>(limit: A, own: A) {
        let limiter = limiter(limit, 200, WhenFull::Share);
        limiter.at(secs(1)).set_override(&7, own).unwrap();
        let admitted = |key: u64| (0..20).filter(|_| limiter.at(secs(1)).allow(&key)).count();
        let before: Vec<usize> = (0..400).map(admitted).collect();
        assert_eq!((before[6], before[7]), (3, 5));
        assert_eq!(limiter.forget_all(), 200);
        assert_eq!(limiter.len(), 1, "the key with its own limit has a slot");
        let after: Vec<usize> = (0..400).map(admitted).collect();
        assert_eq!(after[..199], before[..199]);
        assert!(after[200..].iter().sum::<usize>() > 0, "the shared counters are empty");
    }
    forgets(one_per_day(3), one_per_day(5));
    let window = |max| Window::new(max, seconds(86_400));
    forgets(window(3), window(5));
}
