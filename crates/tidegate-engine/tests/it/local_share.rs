//! Outages in which rules decide by a local share of their limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tidegate::durable::FileOptions;
use tidegate::policy::{Condition, Policy, RuleId};
use tidegate::store::{Listing, RecordStore, SharedStore, Transaction};
use tidegate::testing::{CrashDisk, DelayedRecords};
use tidegate::{
    CheckError, Edit, NotGranted, Outage, Report, Request, StoreEngine, Timestamp, Wait,
    clock::ManualClock, edit::Ban,
};

/// Records that can be switched off.
#[derive(Debug)]
struct Switched {
    records: DelayedRecords,
    state: AtomicU8,
}

const WORKS: u8 = 0;
const UNAVAILABLE: u8 = 1;
const UNKNOWN: u8 = 2;

impl RecordStore for Switched {
    fn run(&self, transaction: Transaction) {
        match self.state.load(Ordering::SeqCst) {
            WORKS => self.records.run(transaction),
            UNAVAILABLE => transaction.fail(Outage::Unavailable),
            _ => transaction.fail(Outage::Unknown),
        }
    }

    fn states(&self, from: u64) -> Listing {
        self.records.states(from)
    }

    fn len(&self) -> usize {
        self.records.len()
    }
}

type Node = StoreEngine;

/// Engines as in several processes, with one store and one clock.
struct Nodes {
    engines: Vec<Node>,
    records: Arc<Switched>,
    clock: ManualClock,
}

impl Nodes {
    fn new(count: usize, policy: &str) -> Self {
        let state = AtomicU8::new(WORKS);
        let records = Arc::new(Switched { records: DelayedRecords::new(7), state });
        let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
        let engine = |_| {
            let store = SharedStore::new(Arc::clone(&records), b"a secret");
            let builder = StoreEngine::builder(Policy::from_toml(policy).unwrap());
            builder.store(store).clock(clock.clone()).build().unwrap()
        };
        let engines: Vec<Node> = (0..count).map(engine).collect();
        for engine in &engines {
            engine.synchronize().block().unwrap();
        }
        Self { engines, records, clock }
    }

    /// One engine, in an outage.
    fn in_outage(policy: &str) -> Self {
        let nodes = Self::new(1, policy);
        nodes.switch(UNAVAILABLE);
        nodes
    }

    fn switch(&self, state: u8) {
        self.records.state.store(state, Ordering::SeqCst);
    }

    fn one(&self) -> &Node {
        &self.engines[0]
    }
}

const ADA: Request<'static> = Request::new("default", &[("user", "ada")]);
const BOB: Request<'static> = Request::new("default", &[("user", "bob")]);

fn check(engine: &StoreEngine, request: &Request<'_>) -> Report {
    engine.check(request).block().unwrap()
}

/// How many of 1 000 requests are allowed.
fn admitted(engine: &StoreEngine, request: &Request<'_>) -> u64 {
    (0..1_000).map(|_| u64::from(check(engine, request).is_allowed())).sum()
}

/// A rule for each user.
fn rule(name: &str, limit: &str, more: &str) -> String {
    format!("[[rule]]\nname = '{name}'\nkey = ['user']\n{limit}\n{more}\n")
}

fn local(limit: &str, share: &str) -> String {
    rule("local", limit, &format!("on_error = {{ local = {share} }}"))
}

#[test]
fn in_an_outage_the_share_of_the_limit_is_admitted_and_no_more() {
    for (limit, share, expected) in [
        ("window = { max = 100, per = '1h' }", "0.25", 25),
        ("window = { max = 103, per = '1h', align = 'epoch' }", "0.25", 25),
        ("window = { max = 3, per = '1h' }", "0.25", 1),
        ("sliding = { max = 99, per = '1h', parts = 6 }", "0.333333", 32),
        ("bucket = { rate = '1/h', burst = 10 }", "0.25", 2),
        ("bucket = { rate = '1/h', burst = 1 }", "0.000001", 1),
        ("window = { max = 7, per = '1h' }", "1.0", 7),
    ] {
        for outage in [UNAVAILABLE, UNKNOWN] {
            let nodes = Nodes::new(1, &local(limit, share));
            nodes.switch(outage);
            assert_eq!(admitted(nodes.one(), &ADA), expected, "{limit} {share}");
            assert_eq!(
                admitted(nodes.one(), &BOB),
                expected,
                "{limit} {share}: each key has its own"
            );
            let report = check(nodes.one(), &ADA);
            assert!(report.is_outage() && report.details().is_local());
            assert_eq!(report.limit(), Some(expected), "{limit} {share}");
        }
    }
}

#[test]
fn after_the_wait_of_a_local_denial_the_request_is_allowed_and_not_earlier() {
    for (limit, wait) in [
        ("bucket = { rate = '1/h', burst = 4 }", 4 * 3_600),
        ("bucket = { rate = '10/s', burst = 4 }", 0),
        ("window = { max = 4, per = '10m' }", 600),
        ("sliding = { max = 4, per = '10m', parts = 5 }", 0),
    ] {
        let nodes = Nodes::in_outage(&local(limit, "0.25"));
        assert_eq!(admitted(nodes.one(), &ADA), 1, "{limit}");
        let denied = check(nodes.one(), &ADA);
        let Some(Wait::After(after)) = denied.retry_after() else { panic!("{limit}: {denied:?}") };
        if wait > 0 {
            assert_eq!(after, Duration::from_secs(wait), "{limit}");
        }
        nodes.clock.advance(after - Duration::from_nanos(1));
        assert!(!check(nodes.one(), &ADA).is_allowed(), "{limit}: too early");
        nodes.clock.advance(Duration::from_nanos(1));
        assert!(check(nodes.one(), &ADA).is_allowed(), "{limit}");
    }
}

#[test]
fn nodes_with_a_share_each_admit_the_limit_together_at_most() {
    let nodes = Nodes::new(4, &local("window = { max = 102, per = '1h' }", "0.25"));
    nodes.switch(UNAVAILABLE);
    let together: u64 = nodes.engines.iter().map(|engine| admitted(engine, &ADA)).sum();
    assert_eq!(together, 100);
}

#[test]
fn local_rules_of_a_request_are_charged_all_or_none() {
    let policy = local("window = { max = 40, per = '1h' }", "0.5")
        + "[[rule]]\nname = 'all'\nwindow = { max = 10, per = '1h' }\non_error = { local = 0.5 }\n";
    let nodes = Nodes::in_outage(&policy);
    assert_eq!(admitted(nodes.one(), &ADA), 5, "the second rule has the smaller share");
    let report = check(nodes.one(), &ADA);
    assert_eq!(report.rule().map(RuleId::name), Some("all"));
    let left: Vec<u64> = report.rules().map(|it| it.decision.remaining()).collect();
    assert_eq!(left, [15, 0], "a denied request charges neither");
    nodes.clock.advance(Duration::from_secs(3_600));
    let report = check(nodes.one(), &ADA);
    let left: Vec<u64> = report.rules().map(|it| it.decision.remaining()).collect();
    assert_eq!(left, [19, 4], "an allowed one charges both");
}

#[test]
fn a_rule_that_denies_outweighs_local_shares_and_nothing_is_charged() {
    let policy = |mode: &str| {
        local("window = { max = 8, per = '1h' }", "0.5")
            + &rule("strict", "quota = { max = 9, per = 'day' }", mode)
    };
    let nodes = Nodes::in_outage(&policy(""));
    for _ in 0..3 {
        let report = check(nodes.one(), &ADA);
        assert!(!report.is_allowed() && report.is_outage() && !report.details().is_local());
        assert_eq!(report.rule().map(RuleId::name), Some("strict"));
    }
    // Only in shadow mode it denies nothing.
    let nodes = Nodes::in_outage(&policy("mode = 'shadow'"));
    assert_eq!(admitted(nodes.one(), &ADA), 4);
}

#[test]
fn a_local_denial_charges_nothing_where_a_denying_rule_applies_to_another_request() {
    let policy = local("window = { max = 8, per = '1h' }", "0.5")
        + &rule("strict", "quota = { max = 9, per = 'day' }", "match = { user = 'bob' }");
    let nodes = Nodes::in_outage(&policy);
    assert!(!check(nodes.one(), &BOB).is_allowed());
    assert_eq!(admitted(nodes.one(), &ADA), 4);
}

#[test]
fn rules_that_allow_are_left_out_of_a_local_report() {
    let policy = rule("open", "window = { max = 2, per = '1h' }", "")
        + &local("window = { max = 8, per = '1h' }", "0.5");
    let nodes = Nodes::in_outage(&policy);
    assert_eq!(admitted(nodes.one(), &ADA), 4, "the other rule allows without its store");
    let report = check(nodes.one(), &ADA);
    let names: Vec<&str> = report.rules().map(|it| it.rule.name()).collect();
    assert_eq!(names, ["local"]);
    let reason = report.reason().unwrap();
    assert!(reason.contains("`local`") && reason.contains("store is unavailable"), "{reason}");
}

#[test]
fn a_local_share_in_shadow_mode_counts_and_denies_nothing() {
    let more = "mode = 'shadow'\non_error = { local = 0.5 }";
    let nodes = Nodes::in_outage(&rule("quiet", "window = { max = 4, per = '1h' }", more));
    let verdicts: Vec<(bool, bool)> = (0..4)
        .map(|_| {
            let report = check(nodes.one(), &ADA);
            let rule = report.rules().next().map(|it| it.decision.is_allowed());
            (report.is_allowed(), rule.unwrap())
        })
        .collect();
    assert_eq!(verdicts, [(true, true), (true, true), (true, false), (true, false)]);
}

#[test]
fn overrides_have_their_own_share() {
    let more = "on_error = { local = 0.1 }\noverride = [{ key = { user = 'bob' }, max = 500 }, \
                { key = { user = 'root' }, unlimited = true }]";
    let nodes = Nodes::in_outage(&rule("r", "window = { max = 100, per = '1h' }", more));
    assert_eq!(admitted(nodes.one(), &ADA), 10);
    assert_eq!(admitted(nodes.one(), &BOB), 50);
    assert_eq!(admitted(nodes.one(), &Request::new("default", &[("user", "root")])), 1_000);
}

#[test]
fn costs_count_and_one_beyond_the_share_may_be_allowed_by_the_store() {
    let nodes = Nodes::in_outage(&local("window = { max = 100, per = '1h' }", "0.25"));
    assert_eq!(check(nodes.one(), &ADA.cost(10)).remaining(), Some(15));
    assert!(check(nodes.one(), &ADA.cost(15)).is_allowed());
    assert!(!check(nodes.one(), &ADA).is_allowed());
    let large = check(nodes.one(), &BOB.cost(26));
    assert_eq!(large.retry_after(), Some(Wait::Unknown), "it fits the whole limit");
    let larger = check(nodes.one(), &BOB.cost(101));
    assert_eq!(larger.retry_after(), Some(Wait::Never));
    assert_eq!(admitted(nodes.one(), &BOB), 25, "neither was charged");
}

#[test]
fn refused_requests_are_charged_to_rules_that_say_so() {
    let more = "charge_refused = true\non_error = { local = 0.5 }";
    let nodes = Nodes::in_outage(&rule("r", "bucket = { rate = '2/h', burst = 4 }", more));
    assert!(!check(nodes.one(), &ADA.cost(3)).is_allowed());
    assert_eq!(admitted(nodes.one(), &ADA), 0, "the denied request took what was left");
}

#[test]
fn postpaid_costs_are_booked_locally_and_reservations_have_to_fit() {
    let more = "postpaid = true\non_error = { local = 0.5 }";
    let nodes = Nodes::in_outage(&rule("r", "bucket = { rate = '2/h', burst = 100 }", more));
    let reserved = nodes.one().hold(&ADA.cost(10_000)).block().unwrap();
    assert_eq!(reserved.retry_after(), Some(Wait::Never));
    assert!(check(nodes.one(), &ADA.cost(10_000)).is_allowed());
    assert!(!check(nodes.one(), &ADA.cost(0)).is_allowed());
}

#[test]
fn a_ban_and_a_missing_attribute_deny_in_an_outage() {
    for policy in [
        local("window = { max = 4, per = '1h' }", "0.5"),
        rule("open", "window = { max = 4, per = '1h' }", ""),
    ] {
        let nodes = Nodes::new(1, &policy);
        let bob = Condition::new("user", ["bob"]).unwrap();
        nodes
            .one()
            .edit("root", Edit::ban(Ban::new("default", vec![bob]).reason("no bob")))
            .block()
            .unwrap();
        nodes.switch(UNAVAILABLE);
        let banned = check(nodes.one(), &BOB);
        assert!(!banned.is_allowed() && banned.details().is_banned(), "{policy}");
        assert_eq!(banned.reason().as_deref(), Some("no bob"));
        let missing = check(nodes.one(), &Request::new("default", &[]));
        assert!(!missing.is_allowed(), "{policy}");
        assert_eq!(missing.missing_attribute(), Some("user"));
        assert!(check(nodes.one(), &ADA).is_allowed());
    }
}

#[test]
fn an_invalid_request_is_an_error_in_an_outage_as_well() {
    let more = "cost = { by = 'tier', free = 1 }";
    let nodes = Nodes::in_outage(&rule("r", "window = { max = 4, per = '1h' }", more));
    let checked = nodes.one().check(&ADA).block();
    assert!(matches!(checked, Err(CheckError::CostNotCovered { .. })), "{checked:?}");
}

#[test]
fn a_local_state_counts_over_several_outages_until_it_is_fresh_by_itself() {
    let nodes = Nodes::in_outage(&local("window = { max = 8, per = '1h' }", "0.5"));
    assert_eq!(admitted(nodes.one(), &ADA), 4);
    for _ in 0..3 {
        nodes.switch(WORKS);
        nodes.clock.advance(Duration::from_secs(600));
        let report = check(nodes.one(), &BOB);
        assert!(!report.is_outage() && report.limit() == Some(8), "the store decides again");
        nodes.switch(UNAVAILABLE);
        assert_eq!(admitted(nodes.one(), &ADA), 0);
    }
    nodes.switch(WORKS);
    nodes.clock.advance(Duration::from_secs(1_800));
    assert!(check(nodes.one(), &BOB).is_allowed());
    nodes.switch(UNAVAILABLE);
    assert_eq!(admitted(nodes.one(), &ADA), 4);
}

#[test]
fn memory_of_an_outage_is_released_when_it_is_over() {
    let nodes = Nodes::in_outage(&local("window = { max = 8, per = '10s' }", "0.5"));
    let before = nodes.one().bytes();
    for user in 0..1_000 {
        let user = user.to_string();
        let _ = check(nodes.one(), &Request::new("default", &[("user", &user)]));
    }
    assert!(nodes.one().bytes() > before + 1_000 * 32, "{}", nodes.one().bytes());
    nodes.clock.advance(Duration::from_secs(61));
    nodes.switch(WORKS);
    let _ = check(nodes.one(), &ADA);
    assert_eq!(nodes.one().bytes(), before);
}

#[test]
fn charges_before_the_outage_are_the_stores_and_come_back_with_it() {
    let nodes = Nodes::new(1, &local("window = { max = 8, per = '1h' }", "0.5"));
    assert!(check(nodes.one(), &ADA.cost(6)).is_allowed());
    nodes.switch(UNAVAILABLE);
    assert_eq!(admitted(nodes.one(), &ADA), 4);
    nodes.switch(WORKS);
    let report = check(nodes.one(), &ADA);
    assert!(!report.is_outage() && !report.details().is_local());
    assert_eq!((report.limit(), report.remaining()), (Some(8), Some(1)), "nothing local was added");
}

/// With this many keys at most, and new ones after that.
fn full(when_full: &str) -> Nodes {
    let policy = format!("[server]\nmax_keys = 3\nwhen_full = '{when_full}'\n")
        + &local("window = { max = 8, per = '1h' }", "0.5");
    let nodes = Nodes::in_outage(&policy);
    for user in ["a", "b", "c"] {
        assert!(check(nodes.one(), &Request::new("default", &[("user", user)])).is_allowed());
    }
    nodes
}

#[test]
fn keys_beyond_the_maximum_share_local_states_or_follow_when_full() {
    let users: Vec<String> = (0..500).map(|user| user.to_string()).collect();
    let all = |nodes: &Nodes| -> u64 {
        let request =
            |user: &String| admitted_once(nodes.one(), &Request::new("default", &[("user", user)]));
        users.iter().map(request).sum()
    };
    let shared = all(&full("share"));
    assert!(shared <= 64 * 4, "{shared}");
    assert!(shared >= 64, "{shared}");
    assert_eq!(all(&full("deny")), 0);
    // Those that have a state of their own are not affected.
    for when_full in ["share", "deny"] {
        let nodes = full(when_full);
        let _ = all(&nodes);
        assert_eq!(admitted(nodes.one(), &Request::new("default", &[("user", "a")])), 3);
    }
}

fn admitted_once(engine: &Node, request: &Request<'_>) -> u64 {
    u64::from(check(engine, request).is_allowed())
}

#[test]
fn a_key_that_shared_a_state_keeps_counting_when_it_gets_its_own() {
    let policy = "[server]\nmax_keys = 1\n".to_owned()
        + "[[rule]]\nname = 'short'\nkey = ['user']\nmatch = { user = 'ada' }\n\
           window = { max = 8, per = '1s' }\non_error = { local = 0.5 }\n\
           [[rule]]\nname = 'long'\nkey = ['user']\nmatch = { user = 'bob' }\n\
           window = { max = 8, per = '1h' }\non_error = { local = 0.5 }\n";
    let nodes = Nodes::in_outage(&policy);
    assert!(check(nodes.one(), &ADA).is_allowed());
    assert_eq!(admitted(nodes.one(), &BOB), 4);
    nodes.clock.advance(Duration::from_secs(2));
    assert_eq!(admitted(nodes.one(), &BOB), 0, "there is room now, and its window goes on");
}

#[test]
fn reservations_are_charged_locally_without_a_hold() {
    let nodes = Nodes::in_outage(&local("window = { max = 8, per = '1h' }", "0.5"));
    let reserved = nodes.one().hold(&ADA.cost(3)).block().unwrap();
    assert!(reserved.is_allowed() && reserved.details().is_local());
    assert_eq!(reserved.hold(), None);
    let reserved = nodes.one().hold(&ADA.cost(3)).block().unwrap();
    assert!(!reserved.is_allowed());
    assert_eq!(admitted(nodes.one(), &ADA), 1);
}

#[test]
fn a_request_for_a_slot_charges_no_local_share_because_it_gets_none() {
    let policy = rule("slots", "slots = { max = 5 }", "")
        + &local("window = { max = 4, per = '1h' }", "0.5");
    let nodes = Nodes::in_outage(&policy);
    for _ in 0..5 {
        let acquired = nodes.one().acquire(&ADA, None).block();
        assert!(matches!(
            acquired,
            Err(NotGranted::Invalid(CheckError::Outage(Outage::Unavailable)))
        ));
    }
}

#[test]
fn peeks_and_explanations_show_the_local_share_and_charge_nothing() {
    let nodes = Nodes::in_outage(&local("window = { max = 8, per = '1h' }", "0.5"));
    assert!(check(nodes.one(), &ADA).is_allowed());
    for _ in 0..5 {
        let peeked = nodes.one().peek(&ADA).block().unwrap();
        assert!(peeked.is_allowed() && peeked.details().is_local());
        assert_eq!((peeked.limit(), peeked.remaining()), (Some(4), Some(3)));
        let explained = nodes.one().explain(&ADA).block().unwrap();
        let text = explained.to_string();
        assert!(text.contains("3 of 4 left; would allow it"), "{text}");
        assert!(text.contains("store is unavailable: local shares"), "{text}");
    }
}

#[test]
fn several_requests_at_once_are_charged_locally_all_or_none() {
    let nodes = Nodes::in_outage(&local("window = { max = 8, per = '1h' }", "0.5"));
    assert!(check(nodes.one(), &BOB.cost(4)).is_allowed());
    let together = nodes.one().check_together(&[ADA, BOB]).block().unwrap();
    assert!(!together.is_allowed() && together.details().is_local());
    let denied = |index| together.details().rules_of(index).any(|it| !it.decision.is_allowed());
    assert_eq!((denied(0), denied(1)), (false, true), "each with its own decision");
    assert!(!together.details().is_denied_by_outage(1), "its limit denied it");
    assert_eq!(admitted(nodes.one(), &ADA), 4, "it was not charged");
}

#[test]
fn of_several_requests_only_those_with_a_local_share_are_reported() {
    let policy = rule("open", "window = { max = 8, per = '1h' }", "match = { user = 'ada' }")
        + &rule(
            "local",
            "window = { max = 8, per = '1h' }",
            "match = { user = 'bob' }\non_error = { local = 0.5 }",
        );
    let nodes = Nodes::in_outage(&policy);
    let together = nodes.one().check_together(&[ADA, BOB]).block().unwrap();
    assert!(together.is_allowed() && together.details().is_local());
    let names = |index| -> Vec<&str> {
        together.details().rules_of(index).map(|it| it.rule.name()).collect()
    };
    assert_eq!((names(0), names(1)), (vec![], vec!["local"]));
    assert_eq!(together.details().decisive_request(), 1);
}

#[test]
fn waiting_until_ready_ends_with_the_wait_of_the_local_share() {
    let nodes = Nodes::in_outage(&local("window = { max = 2, per = '10s' }", "0.5"));
    assert!(check(nodes.one(), &ADA).is_allowed());
    let mut waiting = Box::pin(nodes.one().ready(&ADA));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    nodes.clock.advance(Duration::from_secs(10));
    nodes.one().tick();
    let std::task::Poll::Ready(ready) = waiting.as_mut().poll(&mut context) else {
        panic!("its wait is over");
    };
    assert!(ready.unwrap().details().is_local());
}

#[test]
fn a_store_in_memory_has_no_outages_and_uses_the_whole_limit() {
    let policy = local("window = { max = 8, per = '1h' }", "0.5");
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let engine =
        StoreEngine::builder(Policy::from_toml(&policy).unwrap()).clock(clock).build().unwrap();
    assert_eq!(admitted(&engine, &ADA), 8);
}

#[test]
fn a_full_disk_is_an_outage_with_local_shares_and_edits_apply_to_them() {
    let text = "[[rule]]\nname = 'calls'\nkey = ['user']\nwindow = { max = 800, per = '1h' }\n\
                durability = 'fsync'\non_error = { local = 0.01 }\n";
    let disk = CrashDisk::new();
    let options = FileOptions::default().max_keys(1_000).snapshot_every(2_000).fill_ahead(100);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let policy = Policy::from_toml(text).unwrap();
    let engine = StoreEngine::builder(policy).store(store).clock(clock).build().unwrap();
    assert!(check(&engine, &ADA).is_allowed());
    disk.set_full(true);
    // There may be some room left in what was filled ahead.
    let first = (0..100).map(|_| check(&engine, &ADA)).find(Report::is_outage).unwrap();
    assert!(first.details().is_local() && first.is_allowed());
    assert_eq!((first.limit(), first.remaining()), (Some(8), Some(7)));
    assert_eq!(admitted(&engine, &ADA), 7);
    let larger = Policy::from_toml(&text.replace("800", "1000")).unwrap();
    let _ = engine.edit("root", Edit::policy(larger)).block();
    assert_eq!(admitted(&engine, &ADA), 2, "what was charged counts under the new limit");
    disk.set_full(false);
    engine.file_store().unwrap().wait_until_it_works();
    let report = check(&engine, &ADA);
    assert!(!report.is_outage() && report.limit() == Some(1_000));
}
