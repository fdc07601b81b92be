//! The conformance suite: scenarios that every store has to pass.
//!
//! ```
//! use tidegate::store::MemoryStore;
//! use tidegate::{WhenFull, testing};
//!
//! testing::conformance(|| MemoryStore::new(1_000, WhenFull::Deny).expect("a few kilobytes"));
//! ```
//!
//! Stores that pass make the same decisions. All times are whole microseconds, of clocks that the scenarios
//! move: a store that drops what has expired by another clock keeps it longer here. A new store is created
//! for each scenario, for at least 1 000 keys. Those that engines share also pass [`shared_conformance`].

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Override, Policy, RuleId};
use tidegate_table::ManualClock;

use crate::{CheckError, Edit, HoldId, Report, Request, Store, StoreEngine};

pub use dice::Dice;
#[cfg(feature = "durable")]
pub use disk::{CrashDisk, Fault};
pub use records::{DelayedRecords, RecordFaults, SteppedRecords};
pub use vectors::vectors;

mod dice;
#[cfg(feature = "durable")]
mod disk;
mod edits;
mod holds;
mod limits;
mod overrides;
mod postpaid;
mod quotas;
mod records;
mod rules;
mod sharing;
mod threads;
mod together;
mod usage;
mod vectors;

/// Runs all scenarios.
///
/// # Panics
///
/// With the names of those that failed, if any did.
pub fn conformance<S: Into<Store>>(make: impl Fn() -> S) {
    let make = || make().into();
    let mut failed = Vec::new();
    for Scenario { name, run } in scenarios() {
        if catch_unwind(AssertUnwindSafe(|| run(&make))).is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

/// Runs the scenarios of stores that several engines share. `make` makes two stores of the same records,
/// which are new each time.
///
/// ```
/// use std::sync::Arc;
///
/// use tidegate::store::SharedStore;
/// use tidegate::testing::{self, DelayedRecords};
///
/// testing::shared_conformance(|| {
///     let records = Arc::new(DelayedRecords::new(1));
///     [(); 2].map(|()| SharedStore::new(Arc::clone(&records), b"a secret that both know"))
/// });
/// ```
///
/// # Panics
///
/// With the names of those that failed, if any did.
pub fn shared_conformance<S: Into<Store>>(make: impl Fn() -> [S; 2]) {
    let make = || make().map(Into::into);
    let scenarios: [(_, fn(sharing::MakeTwo<'_>)); 4] = [
        ("both_admit_the_limit_together", sharing::both_admit_the_limit_together),
        (
            "one_decides_over_what_the_other_charged",
            sharing::one_decides_over_what_the_other_charged,
        ),
        ("edits_of_one_count_in_the_other", sharing::edits_of_one_count_in_the_other),
        ("every_key_is_listed", sharing::every_key_is_listed),
    ];
    let mut failed = Vec::new();
    for (name, run) in scenarios {
        if catch_unwind(AssertUnwindSafe(|| run(&make))).is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

/// One scenario.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Panics if the stores that it creates do not conform.
    pub run: fn(&dyn Fn() -> Store),
}

macro_rules! list {
    ($($module:ident: $($name:ident)*;)*) => {
        vec![$($(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: $module::$name,
        },)*)*]
    };
}

/// All scenarios, to be run separately.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    list! {
        limits: never_too_much honest_waits cooldowns_keep_their_gap peeks_change_nothing
            waits_that_do_not_help;
        rules: all_or_nothing longest_wait_is_reported shadow_rules_deny_nothing groups_apply_the_first
            missing_attributes enforcement_can_be_switched_off charge_refused_charges
            unmatched_can_be_denied bans_deny several_requests_are_one_decision forgetting
            forgetting_all empty_keys_can_be_rejected attributes_can_be_entries;
        holds: holds_shrink_capacity settlements_can_be_repeated reserve_and_cancel_is_the_identity commits_of_less_and_more
            expiry_comes_at_its_own_time refunds_are_never_more_than_charged
            closed_windows_refund_nothing_to_holds idempotency_keys_make_repeats_free
            idempotency_keys_make_refunds_happen_once owners_have_their_own_keys_and_holds
            repeats_survive_edits slots_are_never_more_than_there_are ended_leases_are_gone
            guards_settle_what_they_hold forgetting_keeps_holds
            forgetting_all_keeps_holds all_rules_are_held_or_none voided_holds_leave_no_cooldown repeats_are_reported
            waits_end_with_the_first_expiry_that_suffices looking_ahead_changes_nothing
            denials_that_charge_are_remembered an_idempotency_key_used_again_is_the_later_holds;
        quotas: calendar_days_follow_the_zone rounds_carry_over cost_tables_price
            calendars_can_be_changed debt_is_paid_by_the_next_rounds holds_end_with_their_round
            forgotten_keys_keep_holds_of_earlier_rounds enrolled_keys_carry_over
            enrolling_leaves_other_limits_alone;
        postpaid: costs_are_booked_whatever_is_left debt_bounds_what_is_booked
            denied_bookings_are_remembered prepaid_denials_book_nothing commits_book_what_was_not_held
            reservations_wait_until_they_fit booking_consults_no_other_rule
            overrides_owe_what_the_rule_would;
        overrides: first_match_counts they_end_by_themselves they_come_and_go_mid_window
            ended_ones_stop_refilling_at_their_end moving_the_end_keeps_history
            unlimited_in_between_refills_nothing stacked_ones_refill_nothing;
        edits: lower_and_raise_is_the_identity buckets_refill_at_each_rate_in_turn
            next_waits_for_the_window next_waits_for_the_round edits_reach_holds
            many_edits_lose_no_key rules_that_come_back_know_their_keys
            there_and_back_at_one_instant_is_the_identity;
        together: each_request_has_its_rules early_denial_names_the_request
            request_limits_count_by_length request_limits_replace_rules;
        usage: every_limit_is_measured open_holds_and_leases_are_held
            debt_and_carried_units_are_measured limits_in_force_are_measured
            only_the_attributes_of_keys_are_needed measuring_changes_nothing;
        threads: exactly_the_least_limit one_token_for_two reservations_add_up
            edits_lose_nothing new_keys_while_it_grows;
    }
}

type Make<'a> = &'a dyn Fn() -> Store;
type Attributes<'a> = &'a [(&'a str, &'a str)];

const ADA: Attributes<'static> = &[("user", "ada")];
const BOB: Attributes<'static> = &[("user", "bob")];

/// An engine with short methods for tests.
struct TestEngine {
    engine: StoreEngine,
    clock: ManualClock,
}

impl TestEngine {
    fn new(make: Make<'_>, policy: &str) -> Self {
        Self::starting(make, policy, Timestamp::ZERO)
    }

    fn starting(make: Make<'_>, policy: &str, now: Timestamp) -> Self {
        Self::over(make(), policy, ManualClock::new(now))
    }

    fn over(store: Store, policy: &str, clock: ManualClock) -> Self {
        let builder = StoreEngine::builder(read(policy)).store(store);
        Self { engine: builder.clock(clock.clone()).build().unwrap(), clock }
    }

    /// Moves the clock to a time in milliseconds.
    fn at(&self, ms: u64) -> &Self {
        self.clock.set(Timestamp::from_millis(ms));
        self
    }

    fn try_check(&self, attributes: Attributes<'_>, cost: u64) -> Result<Report, CheckError> {
        self.engine.check(&Request::new("default", attributes).cost(cost)).block()
    }

    fn check(&self, attributes: Attributes<'_>, cost: u64) -> Report {
        self.try_check(attributes, cost).unwrap()
    }

    fn allows(&self, attributes: Attributes<'_>, cost: u64) -> bool {
        self.check(attributes, cost).is_allowed()
    }

    fn peek(&self, attributes: Attributes<'_>, cost: u64) -> Report {
        self.engine.peek(&Request::new("default", attributes).cost(cost)).block().unwrap()
    }

    /// What remains under a rule.
    fn left(&self, attributes: Attributes<'_>, rule: &str) -> u64 {
        let report = self.peek(attributes, 0);
        let left =
            report.rules().find(|it| it.rule.name() == rule).map(|it| it.decision.remaining());
        left.unwrap_or_else(|| panic!("no rule {rule} in {report:?}"))
    }

    /// How many requests of one unit are allowed before one is denied.
    fn admits(&self, attributes: Attributes<'_>) -> u64 {
        (0..10_000).take_while(|_| self.allows(attributes, 1)).count() as u64
    }

    fn reserve(&self, attributes: Attributes<'_>, cost: u64) -> Report {
        self.engine.hold(&Request::new("default", attributes).cost(cost)).block().unwrap()
    }

    fn hold(&self, attributes: Attributes<'_>, cost: u64) -> HoldId {
        let report = self.reserve(attributes, cost);
        report.hold().unwrap_or_else(|| panic!("nothing is held: {report:?}"))
    }

    fn commit(&self, id: HoldId, actual: u64) -> u64 {
        self.engine.commit(id, Some(actual)).block().unwrap().charged
    }

    fn cancel(&self, id: HoldId) {
        self.engine.cancel(id, None).block().unwrap();
    }

    fn refund(&self, attributes: Attributes<'_>, units: u64) -> u64 {
        self.engine.refund(&Request::new("default", attributes).cost(units)).block().unwrap()
    }

    fn edit(&self, policy: &str) {
        self.engine.edit("test", Edit::policy(read(policy))).block().unwrap();
    }

    /// Sets an override of the rule `r`, written as in a policy file.
    fn set_override(&self, algorithm: &str, given: &str) -> Override {
        let policy =
            format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{algorithm}\noverride = [{given}]");
        let given = read(&policy).rules()[0].overrides()[0].clone();
        self.engine
            .edit("test", Edit::set_override(&RuleId::named("r"), given.clone()))
            .block()
            .unwrap();
        given
    }
}

fn read(policy: &str) -> Policy {
    Policy::from_toml(policy).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A rule per user, named `r`.
fn rule(limit: &str) -> String {
    format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n")
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
