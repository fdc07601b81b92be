//! Laws of quotas: debt, holds of a period, and refunds.

use proptest::prelude::*;
use tidegate_core::{Carry, Debt, HeldUnits, Period, Quota, QuotaCharge, QuotaState, Timestamp};

use crate::quotas::quota;
use crate::strategies::{self, Amount};

const FIRST: u64 = 3;

/// A state that some history could have left, or an edit.
fn state() -> impl Strategy<Value = QuotaState> {
    let number = || prop_oneof![4 => 0..=40_u64, 1 => 0..=u64::from(u32::MAX)];
    (0..=FIRST, number(), number(), number(), number()).prop_map(
        |(held_from, used, carried, held, debt)| QuotaState {
            period: FIRST,
            used,
            carried,
            held,
            held_from,
            debt,
        },
    )
}

fn period(index: u64) -> Period {
    Period { index, ends: None }
}

/// A request of others, this many periods later.
#[derive(Clone, Copy, Debug)]
struct Other {
    later: u64,
    act: OtherAct,
}

#[derive(Clone, Copy, Debug)]
enum OtherAct {
    Check(Amount),
    Hold(Amount),
    /// Commits the oldest hold with so many units more or less.
    Commit(u64),
    Cancel,
}

fn others() -> impl Strategy<Value = Vec<Other>> {
    let act = prop_oneof![
        4 => small_amount().prop_map(OtherAct::Check),
        3 => small_amount().prop_map(OtherAct::Hold),
        3 => (0..=40_u64).prop_map(OtherAct::Commit),
        1 => Just(OtherAct::Cancel),
    ];
    let later = prop_oneof![3 => Just(0), 2 => 1..=2_u64];
    let other = (later, act).prop_map(|(later, act)| Other { later, act });
    prop::collection::vec(other, 0..10)
}

fn small_amount() -> impl Strategy<Value = Amount> {
    prop_oneof![(1..=4_u64).prop_map(Amount::Exactly), (0..=20_u64).prop_map(Amount::Sixteenths),]
}

fn small_quota() -> impl Strategy<Value = Quota> {
    (1..=20_u64, quota())
        .prop_map(|(max, like)| Quota::new(max, like.carry()).with_debt(like.debt()).unwrap())
}

/// A key that one commit was charged to, and its twin that it was not.
struct Twins {
    limit: Quota,
    now: Period,
    key: QuotaState,
    twin: QuotaState,
    holds: Vec<HeldUnits>,
}

impl Twins {
    fn new(limit: Quota) -> Self {
        let fresh = limit.fresh(period(FIRST));
        Self { limit, now: period(FIRST), key: fresh, twin: fresh, holds: Vec::new() }
    }

    /// What the key is charged, the twin is charged.
    fn step(&mut self, other: Other) {
        let Self { limit, key, twin, .. } = self;
        self.now.index += other.later;
        match other.act {
            OtherAct::Check(amount) => {
                let cost = amount.of(limit.max());
                if limit.check(key, cost, self.now, Timestamp::ZERO).is_allowed() {
                    assert!(limit.check(twin, cost, self.now, Timestamp::ZERO).is_allowed());
                }
            }
            OtherAct::Hold(amount) => {
                let held = self.hold(amount);
                self.holds.extend(held);
            }
            OtherAct::Commit(_) | OtherAct::Cancel if self.holds.is_empty() => {}
            OtherAct::Commit(more) => {
                let held = self.holds.remove(0);
                let actual = (held.units + more).saturating_sub(8);
                let charged = limit.commit(key, held, actual, self.now).charged;
                // The twin may owe more and use less, and so be forgiven a part.
                let _ = limit.commit(twin, held, charged, self.now);
            }
            OtherAct::Cancel => {
                let held = self.holds.remove(0);
                limit.cancel(key, held, self.now);
                limit.cancel(twin, held, self.now);
            }
        }
    }

    fn hold(&mut self, amount: Amount) -> Option<HeldUnits> {
        let units = amount.of(self.limit.max());
        let is_held = self.limit.hold(&mut self.key, units, self.now, Timestamp::ZERO).is_allowed();
        if is_held {
            let twin = self.limit.hold(&mut self.twin, units, self.now, Timestamp::ZERO);
            assert!(twin.is_allowed());
        }
        let held = HeldUnits { units, period: self.key.period };
        (is_held && units > 0).then_some(held)
    }

    /// What is left for the key and for the twin.
    fn left(&self) -> [u64; 2] {
        [&self.key, &self.twin]
            .map(|state| self.limit.peek(state, 0, self.now, Timestamp::ZERO).remaining())
    }
}

/// The units that a state has charged and not paid for.
fn owed(state: &QuotaState) -> u128 {
    u128::from(state.used) + u128::from(state.debt)
}

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn periods_close_at_once_as_one_by_one(
        limit in quota(),
        state in state(),
        closed in 0..=40_u64,
    ) {
        let at_once = limit.current(&state, period(FIRST + closed));
        let mut one_by_one = state;
        for index in FIRST..=FIRST + closed {
            one_by_one = limit.current(&one_by_one, period(index));
        }
        prop_assert_eq!(at_once, one_by_one);
    }

    #[test]
    fn debt_is_paid_once(limit in quota(), state in state(), periods in 1..=10_u64) {
        let mut paid = 0;
        let mut last = state;
        for index in FIRST + 1..=FIRST + periods {
            let next = limit.current(&last, period(index));
            let room = (limit.max() + last.carried).saturating_sub(last.used);
            prop_assert_eq!(last.debt - next.debt, last.debt.min(room));
            prop_assert!(next.debt == 0 || next.carried == 0);
            prop_assert!(next.carried <= room - (last.debt - next.debt));
            paid += last.debt - next.debt;
            last = next;
        }
        prop_assert_eq!(paid + last.debt, state.debt);
    }

    /// With everything carried over, nothing is lost nor made: what the periods grant is what was
    /// charged and what is left.
    #[test]
    fn quota_that_carries_all_balances(
        max in 1..=20_u64,
        steps in prop::collection::vec((0..=2_u64, small_amount(), 0..=40_u64), 1..30),
    ) {
        let limit = Quota::new(max, Carry::All);
        let (mut state, mut now, mut charged) = (limit.fresh(period(FIRST)), FIRST, 0);
        for (later, amount, actual) in steps {
            now += later;
            let units = amount.of(max);
            if limit.hold(&mut state, units, period(now), Timestamp::ZERO).is_allowed() {
                let held = HeldUnits { units, period: state.period };
                charged += limit.commit(&mut state, held, actual, period(now)).charged;
            }
            let current = limit.current(&state, period(now));
            let granted = u128::from((now - FIRST + 1) * max);
            prop_assert_eq!(
                u128::from(max + current.carried) + u128::from(charged),
                granted + owed(&current)
            );
        }
    }

    #[test]
    fn commit_accounts_for_every_unit(
        limit in quota(),
        state in state(),
        units in 0..=60_u64,
        (held_in, later) in (0..=FIRST, 0..=2_u64),
        actual in prop_oneof![0..=80_u64, any::<u64>()],
    ) {
        let now = period(FIRST + later);
        let before = limit.current(&state, now);
        let mut after = state;
        let held = HeldUnits { units, period: held_in };
        let committed = limit.commit(&mut after, held, actual, now);
        let is_ended = held_in < before.held_from;
        prop_assert_eq!(committed.charged + committed.forgiven, actual);
        prop_assert_eq!(committed.debt, after.debt - before.debt);
        let open = u128::from(committed.charged - committed.closed);
        prop_assert_eq!(owed(&after), owed(&before) + open);
        prop_assert_eq!(committed.closed, if is_ended { units.min(actual) } else { 0 });
        let released = if is_ended { 0 } else { units.min(before.held) };
        prop_assert_eq!(after.held, before.held - released);
        if actual <= released || (is_ended && actual <= units) {
            prop_assert_eq!((committed.debt, committed.forgiven), (0, 0));
        }
        match limit.debt() {
            Debt::All => prop_assert!(committed.forgiven == 0 || after.debt == u64::MAX),
            Debt::UpTo(bound) => {
                prop_assert!(after.debt <= bound.max(before.debt));
                prop_assert!(committed.forgiven == 0 || after.debt >= bound);
            }
            Debt::Nothing => {
                // What was held, or what there is room for if that is more.
                let mut without = before;
                limit.cancel(&mut without, held, now);
                let room = limit.peek(&without, 0, now, Timestamp::ZERO).remaining();
                let most = committed.closed.saturating_add(room.max(released));
                prop_assert_eq!((committed.charged, committed.debt), (actual.min(most), 0));
            }
        }
    }

    #[test]
    fn only_commits_overdraw(
        limit in quota(),
        steps in prop::collection::vec((0..=2_u64, strategies::amount(), 0..=3_u8), 1..40),
    ) {
        let (mut state, mut now) = (limit.fresh(period(FIRST)), FIRST);
        for (later, amount, act) in steps {
            now += later;
            let units = amount.of(limit.max());
            let _ = match act {
                0 => limit.hold(&mut state, units, period(now), Timestamp::ZERO),
                _ => limit.check(&mut state, units, period(now), Timestamp::ZERO),
            };
            prop_assert_eq!(state.debt, 0);
            let taken = owed(&state) + u128::from(state.held);
            prop_assert!(taken <= u128::from(limit.max()) + u128::from(state.carried));
        }
    }

    /// While a period is overdrawn every charge is denied, and a look as well.
    #[test]
    fn overdrawn_period_denies_everything(
        limit in quota(),
        state in state(),
        cost in 0..=3_u64,
    ) {
        let capacity = u128::from(limit.max()) + u128::from(state.carried);
        let taken = owed(&state) + u128::from(state.held);
        let look = limit.peek(&state, cost, period(FIRST), Timestamp::ZERO);
        prop_assert_eq!(look.is_allowed(), taken + u128::from(cost) <= capacity);
        prop_assert_eq!(u128::from(look.limit()), capacity);
        prop_assert_eq!(u128::from(look.remaining()), capacity.saturating_sub(taken));
    }

    /// Without carry a hold ends with its period: its units are free, and what becomes of it does
    /// not matter to the open period.
    #[test]
    fn hold_ends_with_its_period_unless_units_carry_over(
        limit in quota(),
        used in strategies::amount(),
        held in strategies::amount(),
        actual in strategies::amount(),
    ) {
        let mut state = limit.fresh(period(FIRST));
        let _ = limit.check(&mut state, used.of(limit.max()), period(FIRST), Timestamp::ZERO);
        let mut other = state;
        let units = held.of(limit.max());
        if !limit.hold(&mut state, units, period(FIRST), Timestamp::ZERO).is_allowed() {
            return Ok(());
        }
        let (held, next) = (HeldUnits { units, period: state.period }, period(FIRST + 1));
        let left = |state: &QuotaState| limit.peek(state, 0, next, Timestamp::ZERO).remaining();
        let counted = if limit.carry() == Carry::Nothing { 0 } else { units };
        prop_assert_eq!(left(&state), left(&other).saturating_sub(counted));
        let actual = actual.of(limit.max()).min(units);
        let committed = limit.commit(&mut state, held, actual, next);
        prop_assert_eq!((committed.charged, committed.debt, committed.forgiven), (actual, 0, 0));
        let charged = actual.min(counted);
        prop_assert!(limit.check(&mut other, charged, next, Timestamp::ZERO).is_allowed());
        prop_assert_eq!(left(&state), left(&other));
        let mut charge = QuotaCharge::new(state, &committed);
        let refunded = limit.refund_charge(&mut state, &mut charge, u64::MAX, next);
        prop_assert_eq!(refunded, charged);
    }

    #[test]
    fn joined_quota_is_at_least_as_restrictive_as_both(
        limit in quota(),
        a in state(),
        b in state(),
        (earlier, later) in (0..=FIRST, 0..=3_u64),
        cost in 0..=30_u64,
    ) {
        let b = QuotaState { period: FIRST - earlier, held_from: 0, ..b };
        let joined = limit.join(&a, &b);
        prop_assert_eq!(joined, limit.join(&b, &a));
        let now = period(FIRST + later);
        let look = |state: &QuotaState| limit.peek(state, cost, now, Timestamp::ZERO);
        for alone in [&a, &b].map(look) {
            prop_assert!(!look(&joined).is_allowed() || alone.is_allowed());
            prop_assert!(look(&joined).remaining() <= alone.remaining());
        }
    }

    #[test]
    fn quota_refund_leaves_no_more_than_without_the_charge(
        limit in small_quota(),
        before in others(),
        units in small_amount(),
        while_held in others(),
        actual in 0..=60_u64,
        later in prop::collection::vec((others(), small_amount()), 1..6),
    ) {
        let mut twins = Twins::new(limit);
        before.into_iter().for_each(|other| twins.step(other));
        let Some(held) = twins.hold(units) else { return Ok(()) };
        while_held.into_iter().for_each(|other| twins.step(other));
        let committed = limit.commit(&mut twins.key, held, actual, twins.now);
        limit.cancel(&mut twins.twin, held, twins.now);
        let mut charge = QuotaCharge::new(twins.key, &committed);
        let mut total = 0;
        for (others, part) in later {
            for other in others {
                twins.step(other);
                let [left, without] = twins.left();
                prop_assert!(left <= without, "{left} of {without} left: {:?}", twins.key);
            }
            let (key, part) = (&mut twins.key, part.of(limit.max()));
            let refunded = limit.refund_charge(key, &mut charge, part, twins.now);
            prop_assert!(refunded <= part);
            total += refunded;
            let [left, without] = twins.left();
            prop_assert!(left <= without, "{left} of {without} left: {:?}", twins.key);
        }
        prop_assert!(total <= committed.charged - committed.closed);
    }
}
