//! More keys than the table may have.

use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{Edit, Request, StoreEngine, Timestamp, clock::ManualClock};

fn engine(when_full: &str, rules: &str) -> (StoreEngine, ManualClock) {
    let policy = format!("[server]\nmax_keys = 4\nwhen_full = \"{when_full}\"\n{rules}");
    let clock = ManualClock::default();
    (
        StoreEngine::builder(Policy::from_toml(&policy).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap(),
        clock,
    )
}

/// Fills the table with other keys, and returns how many were allowed.
fn crowd(engine: &StoreEngine) -> usize {
    let others: Vec<String> = (0..40).map(|other| format!("other-{other}")).collect();
    let allows = |other: &&String| {
        let attributes = [("user", other.as_str())];
        engine.check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
    };
    others.iter().filter(allows).count()
}

/// A reservation of a key that has no slot must not be counted for ever.
#[test]
fn reservations_that_fail_leave_nothing_behind() {
    for (when_full, mode) in [("deny", "shadow"), ("share", "shadow")] {
        let (engine, clock) = engine(
            when_full,
            &format!(
                "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = {{ max = 10, per = \"10s\" }}\n\
                 mode = \"{mode}\"\nreserve_for = \"5s\""
            ),
        );
        crowd(&engine);
        let ada = Request::new("default", &[("user", "ada")]);
        assert!(engine.hold(&ada.cost(7)).block().unwrap().is_allowed(), "{when_full}");
        clock.set(Timestamp::from_secs(60));
        // Each new key searches a few lines for idle keys.
        for _ in 0..20 {
            let hold = engine.hold(&ada).block().unwrap().hold();
            hold.into_iter().for_each(|id| assert_eq!(engine.cancel(id, None).block(), Ok(0)));
        }
        let report = engine.hold(&ada.cost(2)).block().unwrap();
        let left = report.rules().next().unwrap().decision.remaining();
        assert_eq!(left, 8, "{when_full}: something is still held");
    }
}

#[test]
fn known_keys_stay_exact_when_the_table_is_full() {
    for when_full in ["deny", "share"] {
        let (engine, _) = engine(
            when_full,
            "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 10, per = \"10s\" }",
        );
        let ada = Request::new("default", &[("user", "ada")]);
        assert!(engine.check(&ada.cost(3)).block().unwrap().is_allowed());
        let admitted = crowd(&engine);
        match when_full {
            "deny" => assert_eq!(admitted, 3),
            _ => assert!(admitted >= 3),
        }
        assert_eq!(engine.peek(&ada).block().unwrap().remaining(), Some(7), "{when_full}");
        assert_eq!(engine.len(), 4);
        assert!(engine.forget(&ada).block().unwrap());
        assert_eq!(engine.len(), 3);
    }
}

/// A key that shares a counter never gets more than its own counter would allow.
#[test]
fn shared_counters_only_ever_count_too_much() {
    let (engine, clock) = engine(
        "share",
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 10, per = \"10s\" }",
    );
    crowd(&engine);
    for second in 0..40 {
        clock.set(Timestamp::from_secs(second));
        for name in 0..20 {
            let name = format!("late-{name}");
            let attributes = [("user", name.as_str())];
            let request = Request::new("default", &attributes);
            let mut admitted = 0;
            while engine.check(&request).block().unwrap().is_allowed() {
                admitted += 1;
            }
            assert!(admitted <= 10, "{admitted} for {name} at {second}");
        }
    }
}

/// A key in debt keeps its slot until the debt is paid, however many others come; the slot of a hold
/// whose round is closed may go, and what its commit charges beyond the hold is charged all the same.
#[test]
fn keys_in_debt_keep_their_slots() {
    let rule = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nquota = { max = 10, per = \"round\" }";
    let (engine, _) = engine("deny", rule);
    let of = |user| {
        let attributes: &'static [(&str, &str)] = match user {
            "ada" => &[("user", "ada")],
            _ => &[("user", "bob")],
        };
        Request::new("default", attributes)
    };
    let hold = |user| engine.hold(&of(user).cost(5)).block().unwrap().hold().unwrap();
    let (ada, bob) = (hold("ada"), hold("bob"));
    assert_eq!(engine.commit(ada, Some(27)).block().map(|done| done.charged), Ok(27));
    for _ in 0..2 {
        engine.close_round("default", None).block().unwrap();
        assert!(crowd(&engine) > 0);
        assert!(engine.check(&of("bob")).block().is_ok());
    }
    let left = |user| engine.peek(&of(user)).block().unwrap().remaining();
    assert_eq!(left("ada"), Some(3));
    engine.close_round("default", None).block().unwrap();
    assert_eq!(left("ada"), Some(10));
    assert_eq!(engine.commit(bob, Some(7)).block().map(|done| done.charged), Ok(7));
    assert_eq!(left("bob"), Some(8));
    assert_eq!(engine.refund_hold(bob, 7).block(), Ok(2));
}

/// Bucket, window and cooldown have narrow states, sliding windows and quotas wide ones.
const NARROW_AND_WIDE: &str = "\
    [[rule]]\nname = \"narrow\"\nkey = [\"client\"]\nmissing = \"skip\"\n\
    bucket = { rate = \"1/s\", burst = 2 }\n\
    [[rule]]\nname = \"wide\"\nkey = [\"tenant\"]\nmissing = \"skip\"\n\
    sliding = { max = 2, per = \"1s\", parts = 4 }\n";

fn check(engine: &StoreEngine, attribute: &str, key: u64) -> bool {
    let key = key.to_string();
    let attributes = [(attribute, key.as_str())];
    engine.check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
}

#[test]
fn max_keys_is_one_total_over_narrow_and_wide_states() {
    for (first, second) in [("client", "tenant"), ("tenant", "client")] {
        let (engine, clock) = engine("deny", NARROW_AND_WIDE);
        assert!((0..2).all(|key| check(&engine, first, key)));
        assert_eq!((0..10).filter(|key| check(&engine, second, *key)).count(), 2);
        assert_eq!(engine.len(), 4);
        assert!(!check(&engine, first, 2), "two of each are all");
        // Idle keys of one width make room for keys of the other.
        clock.set(Timestamp::from_secs(60));
        for round in 0..50 {
            for key in 0..4 {
                let _ = check(&engine, second, 100 + 4 * round + key);
            }
            assert!(engine.len() <= 4);
            clock.set(Timestamp::from_secs(120 + round));
        }
        clock.set(Timestamp::from_secs(1_000));
        let mut fit = 0;
        for key in 0..1_000 {
            fit += usize::from(check(&engine, first, 10_000 + key));
        }
        assert_eq!((fit, engine.len()), (4, 4));
    }
}

/// Rules of all algorithms, each with keys of its own.
const ALL_ALGORITHMS: &str = "\
    [[rule]]\nname = \"bucket\"\nkey = [\"a\"]\nmissing = \"skip\"\n\
    bucket = { rate = \"2/s\", burst = 3 }\n\
    override = [{ key = { a = \"7\" }, rate = \"1/10s\", burst = 5 }]\n\
    [[rule]]\nname = \"sliding\"\nkey = [\"b\"]\nmissing = \"skip\"\n\
    sliding = { max = 3, per = \"2s\", parts = 4 }\n\
    override = [{ key = { b = \"7\" }, max = 4, per = \"20s\" }]\n\
    [[rule]]\nname = \"quota\"\nkey = [\"c\"]\nmissing = \"skip\"\n\
    quota = { max = 3, per = \"round\" }\n\
    [[rule]]\nname = \"window\"\nkey = [\"d\"]\nmissing = \"skip\"\n\
    window = { max = 3, per = \"3s\" }\n\
    [[rule]]\nname = \"cooldown\"\nkey = [\"e\"]\nmissing = \"skip\"\ncooldown = \"1s\"\n";

/// The same rules several times, with other names.
fn copies(of: usize) -> String {
    let copy = |number: usize| {
        let mut rules = ALL_ALGORITHMS.to_owned();
        for name in ["a", "b", "c", "d", "e"] {
            rules = rules.replace(&format!("[\"{name}\"]"), &format!("[\"{name}{number}\"]"));
            rules = rules.replace(&format!("{{ {name} = "), &format!("{{ {name}{number} = "));
        }
        rules.replace("name = \"", &format!("name = \"{number}-"))
    };
    (0..of).map(copy).collect()
}

/// Whatever the overflow counters admit is what a table without bounds admits that was charged the
/// same. Keys of five algorithms come and go, some with overrides, and an edit changes limits.
fn overflow_admits_no_more_than_an_unbounded_table(number_of_copies: usize, seeds: u64) {
    let rules = copies(number_of_copies);
    let names: Vec<String> = (0..number_of_copies)
        .flat_map(|copy| ["a", "b", "c", "d", "e"].map(|name| format!("{name}{copy}")))
        .collect();
    let mut admitted = [0; 5];
    for seed in 1..=seeds {
        let (small, clock) = engine("share", &rules);
        let exact = StoreEngine::builder(Policy::from_toml(&rules).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap();
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        for turn in 0..1_500 {
            // All rules at once, or floods of a few.
            let rules = if turn % 500 < 250 { names.len() } else { 2 };
            let (name, second) = (next(rules), next(rules));
            let (key, other) = (next(60).to_string(), next(12).to_string());
            let both =
                [(names[name].as_str(), key.as_str()), (names[second].as_str(), other.as_str())];
            let attributes = &both[..if name == second { 1 } else { 2 }];
            let request = Request::new("default", attributes).cost(1 + next(2) as u64);
            if small.check(&request).block().unwrap().is_allowed() {
                let is_allowed = exact.check(&request).block().unwrap().is_allowed();
                assert!(is_allowed, "seed {seed}, turn {turn}: {attributes:?}");
                admitted[name % 5] += 1;
            }
            match next(20) {
                0 => clock.advance(Duration::from_millis(next(1_500) as u64)),
                1 if turn % 7 == 0 => {
                    small.close_round("default", None).block().unwrap();
                    exact.close_round("default", None).block().unwrap();
                }
                _ => {}
            }
            if turn == 700 {
                let edited = copies(number_of_copies).replace("2/s", "1/s");
                // A longer window would look back to what was dropped as idle.
                let edited = edited.replace("max = 3, per = \"2s\"", "max = 2, per = \"2s\"");
                let policy = Policy::from_toml(&edited).unwrap();
                exact.edit("test", Edit::policy(policy.clone())).block().unwrap();
                small.edit("test", Edit::policy(policy)).block().unwrap();
            }
        }
        assert!(small.len() <= 4);
    }
    assert!(admitted.iter().all(|it| *it > 10 * seeds), "{admitted:?}");
}

#[test]
fn keys_in_overflow_are_never_admitted_more_than_their_limits_allow() {
    overflow_admits_no_more_than_an_unbounded_table(1, 60);
}

/// More rules than a bucket has cells, so that some share their spare cells.
#[test]
fn more_rules_than_overflow_counters_admit_no_more_than_their_limits_allow() {
    overflow_admits_no_more_than_an_unbounded_table(6, 20);
}

/// While many keys of one rule overflow, new keys of another one are still counted by themselves.
#[test]
fn a_flood_of_one_rule_leaves_overflow_counters_to_the_others() {
    let (engine, clock) = engine("share", ALL_ALGORITHMS);
    let mut fresh = 0;
    for turn in 0..2_000 {
        for key in 0..5 {
            let _ = check(&engine, "a", 1_000 + 5 * turn + key);
        }
        clock.advance(Duration::from_millis(10));
        // One key of the other rule every 400 ms: its cells are idle again when the next ones come.
        if turn % 40 == 39 {
            fresh += usize::from(check(&engine, "d", turn));
        }
    }
    assert!(fresh >= 40, "{fresh} of 50 keys were admitted once");
}

/// Which limits a key counted under is not known where overrides match by pattern.
#[test]
fn slots_are_free_again_after_an_edit_of_a_rule_with_patterns() {
    for limit in [
        "bucket = { rate = \"1/s\", burst = NUMBER }",
        "sliding = { max = NUMBER, per = \"10s\", parts = 5 }",
    ] {
        let rule = |number: &str| {
            let limit = limit.replace("NUMBER", number);
            let given = limit.replace("bucket = {", "").replace("sliding = {", "");
            let given = given.replace(", per = \"10s\", parts = 5", "");
            format!(
                "[server]\nmax_keys = 4\nwhen_full = \"deny\"\n\n\
                 [[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n\
                 override = [{{ key = {{ user = \"vip-*\" }}, {given}]\n"
            )
        };
        let clock = ManualClock::default();
        let engine = StoreEngine::builder(Policy::from_toml(&rule("9")).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap();
        assert_eq!(crowd(&engine), 4, "{limit}");
        let _ = engine.edit("test", Edit::policy(Policy::from_toml(&rule("8")).unwrap()));
        clock.advance(Duration::from_secs(3_600));
        let others = (0..4).filter(|other| check(&engine, "user", 1_000 + other)).count();
        assert_eq!(others, 4, "{limit}");
    }
}

/// A key is known afterwards, or the caller gets an error: it never only looks known.
#[test]
fn a_full_table_enrols_no_key() {
    for when_full in ["deny", "share"] {
        let rules = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
                     quota = { max = 1, per = \"round\", carry = \"all\" }";
        let (engine, _) = engine(when_full, rules);
        let enrol = |user: &str| {
            let attributes = [("user", user)];
            engine.enrol(&Request::new("default", &attributes)).block()
        };
        let users: Vec<String> = (0..40).map(|number| format!("user-{number}")).collect();
        let known: Vec<&String> = users.iter().filter(|user| enrol(user).is_ok()).collect();
        assert_eq!(known.len(), engine.len(), "{when_full}");
        assert!((1..40).contains(&known.len()), "{when_full}");
        engine.close_round("default", None).block().unwrap();
        for user in &users {
            let attributes = [("user", user.as_str())];
            let peek = engine.peek(&Request::new("default", &attributes)).block().unwrap();
            match enrol(user) {
                Ok(done) => assert_eq!((done.known, peek.remaining()), (1, Some(2))),
                Err(error) => assert_eq!(error, tidegate::CheckError::TooManyKeys),
            }
        }
    }
}

/// Keys without a slot are forgotten, too.
#[test]
fn forgetting_all_empties_the_overflow_counters() {
    for rest in ["window = { max = 3, per = \"1h\" }", "sliding = { max = 3, per = \"1h\" }"] {
        let (engine, _) =
            engine("share", &format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{rest}"));
        let fresh = crowd(&engine);
        while crowd(&engine) > 0 {}
        assert_eq!(engine.forget_all(None).block(), Ok(4), "{rest}");
        assert_eq!(crowd(&engine), fresh, "{rest}");
    }
}
