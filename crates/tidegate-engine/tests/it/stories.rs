//! The tests of systems with their own limiters, as policies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidegate::policy::{Policy, RuleId};
use tidegate::{
    Edit, NotGranted, Report, Request, StoreEngine, Timestamp, clock::ManualClock, hold::HoldId,
};

type Desk = (StoreEngine, ManualClock);

fn desk(policy: &str) -> Desk {
    let policy = Policy::from_toml(policy).unwrap_or_else(|errors| panic!("{errors}"));
    let clock = ManualClock::default();
    (StoreEngine::builder(policy).clock(clock.clone()).build().unwrap(), clock)
}

/// The local service: ten per user and thirty for all, in windows of ten seconds.
mod local_service {
    use super::*;

    const POLICY: &str = r#"
        [[rule]]
        name = "user"
        domain = "ipc"
        key = ["user"]
        window = { max = 10, per = "10s" }
        deny = "Rate limit exceeded. Please wait before retrying."
        [[rule]]
        name = "global"
        domain = "ipc"
        window = { max = 30, per = "10s" }
        deny = "Rate limit exceeded. Please wait before retrying."
    "#;

    fn ping((engine, _): &Desk, user: &str) -> Report {
        engine.check(&Request::new("ipc", &[("user", user)])).block().unwrap()
    }

    fn pings(desk: &Desk, user: &str, times: usize) -> usize {
        (0..times).filter(|_| ping(desk, user).is_allowed()).count()
    }

    #[test]
    fn ten_of_twenty_pings_succeed() {
        let desk = desk(POLICY);
        assert_eq!(pings(&desk, "ada", 20), 10);
        let denied = ping(&desk, "ada");
        assert_eq!(denied.rule().map(RuleId::name), Some("user"));
        let reason = "Rate limit exceeded. Please wait before retrying.";
        assert_eq!(denied.reason().as_deref(), Some(reason));
    }

    #[test]
    fn the_window_opens_with_the_first_request_and_ends_ten_seconds_later() {
        let desk = desk(POLICY);
        desk.1.set(Timestamp::from_millis(3_700));
        assert_eq!(pings(&desk, "ada", 11), 10);
        desk.1.set(Timestamp::from_millis(13_699));
        assert_eq!(pings(&desk, "ada", 1), 0);
        desk.1.set(Timestamp::from_millis(13_700));
        assert_eq!(pings(&desk, "ada", 11), 10);
    }

    #[test]
    fn users_have_separate_keys_and_names_are_compared_exactly() {
        let desk = desk(POLICY);
        assert_eq!(pings(&desk, "ada", 10), 10);
        for odd in ["Ada", "ada ", "дa", "a\0da", &"x".repeat(5_000)] {
            assert!(ping(&desk, odd).is_allowed(), "{odd:?}");
        }
    }

    #[test]
    fn all_users_together_get_thirty_and_denials_charge_nothing() {
        let desk = desk(POLICY);
        for user in ["a", "b", "c"] {
            assert_eq!(pings(&desk, user, 15), 10);
        }
        let denied = ping(&desk, "d");
        assert_eq!((denied.is_allowed(), denied.rule().map(RuleId::name)), (false, Some("global")));
        assert_eq!(pings(&desk, "d", 100), 0);
        desk.1.set(Timestamp::from_secs(10));
        assert_eq!(pings(&desk, "d", 20), 10, "none of the denials was charged");
        assert_eq!(pings(&desk, "e", 20), 10);
    }

    #[test]
    fn counts_are_exact_under_threads() {
        let desk = desk(POLICY);
        let admitted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for user in ["a", "b", "c", "d"] {
                let (desk, admitted) = (&desk, &admitted);
                scope.spawn(move || admitted.fetch_add(pings(desk, user, 50), Ordering::Relaxed));
            }
        });
        assert_eq!(admitted.into_inner(), 30);
    }

    #[test]
    fn an_invalid_policy_is_rejected_at_load() {
        for (from, to) in [
            ("max = 10,", "max = 0,"),
            ("max = 10,", "max = -1,"),
            ("per = \"10s\"", "per = \"0s\""),
            ("per = \"10s\"", "per = \"-1s\""),
        ] {
            assert!(Policy::from_toml(&POLICY.replacen(from, to, 1)).is_err(), "{to}");
        }
        let upside_down = POLICY.replace("max = 30", "max = 3");
        let parsed = Policy::parse("p", upside_down.as_bytes()).unwrap();
        assert!(parsed.strict().is_err(), "less for all than for each");
        let large =
            desk(&POLICY.replace("max = 10", "max = 4294967295").replace("30", "4294967295"));
        assert_eq!(pings(&large, "ada", 1_000), 1_000);
    }
}

/// The webhook: so many messages per user and hour, on the grid of the clock.
mod webhook {
    use super::*;

    fn policy(limit: &str) -> String {
        format!("[[rule]]\nname = \"messages\"\ndomain = \"bot\"\nkey = [\"user\"]\n{limit}\n")
    }

    fn message((engine, _): &Desk, user: &str) -> Report {
        engine.check(&Request::new("bot", &[("user", user)])).block().unwrap()
    }

    #[test]
    fn twenty_an_hour_by_the_clock() {
        let desk = desk(&policy("window = { max = 20, per = \"1h\", align = \"epoch\" }"));
        desk.1.set(Timestamp::from_secs(3_599));
        for left in (0..20).rev() {
            let report = message(&desk, "7");
            assert_eq!((report.is_allowed(), report.remaining()), (true, Some(left)));
        }
        let denied = message(&desk, "7");
        assert_eq!((denied.is_allowed(), denied.remaining()), (false, Some(0)));
        desk.1.set(Timestamp::from_secs(3_600));
        assert_eq!(message(&desk, "7").remaining(), Some(19), "denied messages do not count");
    }

    #[test]
    fn a_sliding_window_has_no_double_burst_at_the_edge() {
        let desk = desk(&policy("sliding = { max = 20, per = \"1h\" }"));
        desk.1.set(Timestamp::from_secs(3_599));
        assert_eq!((0..40).filter(|_| message(&desk, "7").is_allowed()).count(), 20);
        desk.1.set(Timestamp::from_secs(3_601));
        assert!(!message(&desk, "7").is_allowed());
    }

    #[test]
    fn some_users_have_their_own_limits() {
        let limit = "window = { max = 2, per = \"1h\" }\n\
                     override = [{ key = { user = \"7\" }, max = 5 }]";
        let desk = desk(&policy(limit));
        assert_eq!((0..9).filter(|_| message(&desk, "7").is_allowed()).count(), 5);
        assert_eq!((0..9).filter(|_| message(&desk, "8").is_allowed()).count(), 2);
    }
}

/// The proposal desk: tokens, a cap and a cooldown on one act, and a budget of calls.
mod proposals {
    use super::*;

    fn policy(cap: u64, cooldown: &str) -> String {
        format!(
            r#"
            [[rule]]
            name = "cooldown"
            domain = "proposals"
            key = ["governor"]
            cooldown = "{cooldown}"
            [[rule]]
            name = "tokens"
            domain = "proposals"
            key = ["governor"]
            quota = {{ max = 2, per = "round", carry = "all" }}
            cost = {{ by = "tier", "1..=4" = 1, "5..=6" = 2, "7.." = 3 }}
            [[rule]]
            name = "cap"
            domain = "proposals"
            key = ["governor"]
            quota = {{ max = {cap}, per = "round" }}
            cost = 1
            effective = "next"
            [[rule]]
            name = "calls"
            domain = "calls"
            slots = {{ max = 3, queue = 100, expires = "5m" }}
            "#
        )
    }

    fn propose((engine, _): &Desk, governor: &str, tier: &str) -> Report {
        let attributes = [("governor", governor), ("tier", tier)];
        engine.hold(&Request::new("proposals", &attributes)).block().unwrap()
    }

    fn confirm(desk: &Desk, id: HoldId) {
        desk.0.commit(id, None).block().unwrap();
    }

    fn minute(desk: &Desk, minute: u64) {
        desk.1.set(Timestamp::from_secs(minute * 60));
    }

    #[test]
    fn five_attempts_with_two_tokens() {
        let desk = desk(&policy(3, "60s"));
        for attempt in 0..5 {
            minute(&desk, attempt);
            let report = propose(&desk, "ada", "1");
            assert_eq!(report.is_allowed(), attempt < 2, "attempt {attempt}");
            match report.hold() {
                Some(id) => confirm(&desk, id),
                None => assert_eq!(report.rule().map(RuleId::name), Some("tokens")),
            }
        }
    }

    #[test]
    fn a_max_of_one_denies_the_second_despite_tokens() {
        let desk = desk(&policy(1, "60s"));
        confirm(&desk, propose(&desk, "ada", "1").hold().unwrap());
        minute(&desk, 1);
        let denied = propose(&desk, "ada", "1");
        assert_eq!(denied.rule().map(RuleId::name), Some("cap"));
        let tokens = denied.rules().find(|it| it.rule.name() == "tokens").unwrap();
        assert_eq!(tokens.decision.remaining(), 1, "it is charged by none");
        desk.0.close_round("proposals", None).block().unwrap();
        minute(&desk, 2);
        assert!(propose(&desk, "ada", "7").is_allowed(), "three of three tokens");
    }

    #[test]
    fn the_cooldown_denies_and_allows_after_a_minute() {
        let desk = desk(&policy(3, "60s"));
        let id = propose(&desk, "ada", "1").hold().unwrap();
        assert_eq!(propose(&desk, "ada", "1").rule().map(RuleId::name), Some("cooldown"));
        assert!(propose(&desk, "bob", "1").is_allowed());
        desk.0.cancel(id, None).block().unwrap();
        assert!(!propose(&desk, "ada", "1").is_allowed(), "the gap stays");
        desk.1.set(Timestamp::from_millis(59_999));
        assert!(!propose(&desk, "ada", "1").is_allowed());
        minute(&desk, 1);
        let report = propose(&desk, "ada", "5");
        assert!(report.is_allowed(), "tokens and slot were released: {report:?}");
    }

    #[test]
    fn an_unconfirmed_proposal_releases_its_tokens() {
        let desk = desk(&policy(3, "60s"));
        assert!(propose(&desk, "ada", "5").is_allowed());
        minute(&desk, 5);
        assert_eq!(propose(&desk, "ada", "1").rule().map(RuleId::name), Some("tokens"));
        minute(&desk, 10);
        assert!(propose(&desk, "ada", "5").is_allowed());
    }

    #[test]
    fn a_changed_max_applies_from_the_next_window() {
        let desk = desk(&policy(1, "60s"));
        confirm(&desk, propose(&desk, "ada", "1").hold().unwrap());
        desk.0
            .edit("governance", Edit::policy(Policy::from_toml(&policy(2, "60s")).unwrap()))
            .block()
            .unwrap();
        minute(&desk, 1);
        assert_eq!(
            propose(&desk, "ada", "1").rule().map(RuleId::name),
            Some("cap"),
            "this one keeps its own"
        );
        desk.0.close_round("proposals", None).block().unwrap();
        for (at, is_allowed) in [(2, true), (3, true), (4, false)] {
            minute(&desk, at);
            let report = propose(&desk, "ada", "1");
            assert_eq!(report.is_allowed(), is_allowed, "minute {at}: {report:?}");
            report.hold().into_iter().for_each(|id| confirm(&desk, id));
        }
    }

    #[test]
    fn of_two_at_once_with_one_token_one_succeeds() {
        let desk = desk(&policy(10, "1ns"));
        confirm(&desk, propose(&desk, "ada", "1").hold().unwrap());
        for round in 1..200 {
            minute(&desk, round);
            let won = AtomicUsize::new(0);
            let mut ids = Vec::new();
            thread::scope(|scope| {
                let tries: Vec<_> =
                    (0..2).map(|_| scope.spawn(|| propose(&desk, "ada", "1").hold())).collect();
                for tried in tries {
                    let id = tried.join().unwrap();
                    won.fetch_add(usize::from(id.is_some()), Ordering::Relaxed);
                    ids.extend(id);
                }
            });
            assert_eq!(won.into_inner(), 1, "round {round}");
            for id in ids {
                let _ = desk.0.cancel(id, None).block();
            }
        }
    }

    #[test]
    fn three_calls_are_in_flight_and_the_rest_wait_in_order() {
        let desk = desk(&policy(3, "60s"));
        let request = Request::new("calls", &[]);
        let leases: Vec<_> =
            (0..3).map(|_| desk.0.acquire(&request, None).block().unwrap()).collect();
        let now = desk.0.acquire(&request, Some(std::time::Duration::ZERO)).block();
        assert!(matches!(now, Err(NotGranted::TimedOut)));
        let served = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let lease = desk.0.acquire(&request, None).block().unwrap();
                    served.fetch_add(1, Ordering::Relaxed);
                    drop(lease);
                });
            }
            drop(leases);
        });
        assert_eq!(served.into_inner(), 4);
        assert_eq!(desk.0.peek(&request).block().unwrap().remaining(), Some(3));
    }
}
