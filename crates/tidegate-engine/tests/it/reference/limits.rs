//! The arithmetic of the limits, written from the documents and not from the core.
//!
//! A bucket counts its level in fractions of a unit that every generated rate divides, so an edit
//! converts nothing. A sliding window keeps the time of every unit. A quota is always in the open
//! period: the model closes each period as it ends.

use std::time::Duration;

use tidegate::Wait;

use super::is_on;

/// The parts of a unit that bucket levels are counted in. All periods of rates divide it.
pub(super) const PARTS: i128 = 42_000_000_000;

/// A limit, as its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Bucket { count: u64, per_ns: u64, burst: u64, debt: u64 },
    Window { max: u64, per_ns: u64, is_aligned: bool },
    Sliding { max: u64, per_ns: u64 },
    Cooldown { gap_ns: u64, is_extended: bool },
    Quota { max: u64, carry: Carry, periods: Periods, debt: Debt },
}

/// What a quota carries into the next period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carry {
    Nothing,
    UpTo(u64),
    All,
}

/// What ends a quota's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Periods {
    Minute,
    Hour,
    Round,
}

impl Periods {
    /// The length of its periods, if they are of a calendar.
    pub(super) fn period_ns(self) -> Option<u64> {
        match self {
            Self::Minute => Some(60_000_000_000),
            Self::Hour => Some(3_600_000_000_000),
            Self::Round => None,
        }
    }
}

/// How much of a commit beyond what is available a quota keeps as debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debt {
    None,
    UpTo(u64),
    All,
}

/// The state of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// `level` is what is missing to a full bucket at `as_of`; below zero it has been full since.
    Bucket {
        level: i128,
        as_of: u64,
        held: u64,
    },
    Window {
        ends: u64,
        used: u64,
        held: u64,
    },
    /// The time of every unit, oldest first.
    Sliding {
        times: Vec<u64>,
        held: u64,
    },
    Cooldown {
        last: Option<u64>,
    },
    Quota {
        used: u64,
        carried: u64,
        held: u64,
        debt: u64,
    },
}

/// The time of an operation, and the end of the open period if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) now: u64,
    pub(super) ends: Option<u64>,
}

/// What one rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// How long to wait; `None` if it is allowed.
    pub(super) wait: Option<Wait>,
    pub(super) remaining: u64,
    pub(super) limit: u64,
}

impl Decision {
    pub(super) fn is_allowed(&self) -> bool {
        self.wait.is_none()
    }

    /// The denial of a key that no request has made known: nothing carries over to it.
    pub(super) fn of_unknown_key(self) -> Self {
        let is_never = self.wait == Some(Wait::Never);
        Self { wait: Some(if is_never { Wait::Never } else { Wait::Unknown }), ..self }
    }
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    /// Units charged, debt included.
    pub(super) charged: u64,
    /// Units of it that a refund may return: not those that a closed period has.
    pub(super) refundable: u64,
}

/// A hold that is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) units: u64,
    /// Whether its period has closed, so that it takes no room any more.
    pub(super) is_lapsed: bool,
}

impl Limit {
    /// The capacity that decisions report.
    pub(super) fn capacity(&self) -> u64 {
        match *self {
            Self::Bucket { burst, .. } => burst,
            Self::Window { max, .. } | Self::Sliding { max, .. } | Self::Quota { max, .. } => max,
            Self::Cooldown { .. } => 1,
        }
    }

    /// What ends the periods of a quota.
    pub(super) fn periods(&self) -> Option<Periods> {
        match self {
            Self::Quota { periods, .. } => Some(*periods),
            _ => None,
        }
    }

    /// The same limit, with other periods if it is a quota.
    pub(super) fn in_periods(mut self, new: Option<Periods>) -> Self {
        if let (Self::Quota { periods, .. }, Some(new)) = (&mut self, new) {
            *periods = new;
        }
        self
    }

    pub(super) fn carries(&self) -> bool {
        matches!(self, Self::Quota { carry: Carry::UpTo(_) | Carry::All, .. })
    }

    pub(super) fn fresh(&self) -> State {
        match self {
            Self::Bucket { .. } => State::Bucket { level: i128::MIN / 4, as_of: 0, held: 0 },
            Self::Window { .. } => State::Window { ends: 0, used: 0, held: 0 },
            Self::Sliding { .. } => State::Sliding { times: Vec::new(), held: 0 },
            Self::Cooldown { .. } => State::Cooldown { last: None },
            Self::Quota { .. } => State::Quota { used: 0, carried: 0, held: 0, debt: 0 },
        }
    }

    /// The decision on a cost that is not charged.
    pub(super) fn decide(&self, state: &State, cost: u64, when: When) -> Decision {
        let now = when.now;
        let after = |at: u64| Wait::After(Duration::from_nanos(at - now));
        let limit = self.capacity();
        let held = state.held();
        let (fits, remaining, retry) = match (self, state) {
            (Self::Bucket { count, per_ns, burst, .. }, State::Bucket { .. }) => {
                let room = i128::from(*burst) * PARTS - self.level(state, now);
                let lack = i128::from(cost) * PARTS - room;
                let per_nano = i128::from(*count) * PARTS / i128::from(*per_ns);
                let wait = u64::try_from(div_ceil(lack.max(0), per_nano)).unwrap();
                let remaining = u64::try_from(room.max(0) / PARTS).unwrap();
                (lack <= 0, remaining, after(now + wait))
            }
            (Self::Window { max, .. }, State::Window { ends, .. }) => {
                let taken = state.used_in_window(now) + held;
                let retry = after((*ends).max(now));
                (taken + cost <= *max, max.saturating_sub(taken), retry)
            }
            (Self::Sliding { max, per_ns }, State::Sliding { times, .. }) => {
                let times = in_window(times, *per_ns, now);
                let taken = times.len() as u64 + held;
                // As many of the oldest have to leave as are too many.
                let too_many = (taken + cost).saturating_sub(*max) as usize;
                let last = too_many.checked_sub(1).and_then(|index| times.get(index));
                let retry = after(last.map_or(now, |time| time + per_ns));
                (taken + cost <= *max, max.saturating_sub(taken), retry)
            }
            (Self::Cooldown { gap_ns, .. }, State::Cooldown { last }) => {
                let over = last.map_or(0, |last| last + gap_ns);
                return Decision {
                    wait: (over > now).then(|| after(over.max(now))),
                    remaining: u64::from(over <= now),
                    limit,
                };
            }
            (Self::Quota { max, .. }, State::Quota { used, carried, debt, .. }) => {
                let (room, taken) = (max + carried, used + held + debt);
                let fits = taken + cost <= room || (cost == 0 && !is_on("denied_looks"));
                return Decision {
                    wait: (!fits).then(|| self.retry(state, cost, when)),
                    remaining: room.saturating_sub(taken),
                    limit: room,
                };
            }
            (limit, state) => panic!("{limit:?} with {state:?}"),
        };
        let wait = match fits {
            true => None,
            false if cost > limit => Some(Wait::Never),
            false if cost + held > limit => Some(Wait::Unknown),
            false => Some(retry),
        };
        Decision { wait, remaining, limit }
    }

    /// How long a cost has to wait that a quota has denied.
    fn retry(&self, state: &State, cost: u64, when: When) -> Wait {
        let Self::Quota { max, carry, .. } = *self else { panic!("{self:?} is no quota") };
        let most = match carry {
            Carry::Nothing => Some(max),
            Carry::UpTo(bound) => Some(max + bound),
            Carry::All => None,
        };
        if most.is_some_and(|most| cost > most) {
            return Wait::Never;
        }
        let mut next = state.clone();
        self.close_period(&mut next);
        match when.ends {
            Some(ends) if self.fits(&next, cost) => {
                Wait::After(Duration::from_nanos(ends - when.now))
            }
            _ => Wait::Unknown,
        }
    }

    /// Whether a quota has room for a cost; an overdrawn one has none for zero, either.
    fn fits(&self, state: &State, cost: u64) -> bool {
        let (Self::Quota { max, .. }, State::Quota { used, carried, held, debt }) = (self, state)
        else {
            panic!("{self:?} is no quota")
        };
        used + held + debt + cost <= max + carried
    }

    /// Charges a cost that fits.
    pub(super) fn charge(&self, state: &mut State, cost: u64, when: When) {
        let now = when.now;
        match state {
            State::Bucket { .. } => {
                self.set_level(state, self.level(state, now) + i128::from(cost) * PARTS, now);
            }
            State::Window { .. } => self.count_in_window(state, cost, now),
            State::Sliding { times, .. } => {
                let Self::Sliding { per_ns, .. } = *self else { panic!("{self:?}") };
                *times = in_window(times, per_ns, now);
                let time = times.last().copied().unwrap_or(0).max(now);
                times.extend(std::iter::repeat_n(time, cost as usize));
            }
            State::Cooldown { last } => *last = Some(last.unwrap_or(0).max(now)),
            State::Quota { used, .. } => *used += cost,
        }
    }

    /// Holds a cost that fits. A cooldown counts the hold as the act.
    pub(super) fn hold(&self, state: &mut State, cost: u64, when: When) {
        match state {
            State::Cooldown { .. } => self.charge(state, cost, when),
            State::Bucket { .. } => {
                self.charge(state, cost, when);
                *state.held_mut() += cost;
            }
            _ => *state.held_mut() += cost,
        }
    }

    /// Charges a cost that does not fit: a window counts all of it, a cooldown restarts, other
    /// limits charge what is left.
    pub(super) fn charge_refused(&self, state: &mut State, cost: u64, when: When) {
        match self {
            Self::Window { .. } => self.count_in_window(state, cost, when.now),
            Self::Cooldown { .. } => self.charge(state, cost, when),
            _ => {
                let left = self.decide(state, 0, when).remaining;
                if left > 0 {
                    self.charge(state, left, when);
                }
            }
        }
    }

    /// Ends a hold with a charge of `actual`.
    pub(super) fn commit(
        &self,
        state: &mut State,
        hold: Held,
        actual: u64,
        when: When,
    ) -> Committed {
        let units = hold.units;
        if let State::Cooldown { .. } = state {
            return Committed { charged: actual, refundable: 0 };
        }
        if let State::Quota { .. } = state {
            return self.commit_to_quota(state, hold, actual);
        }
        // The level of a bucket does not fall below what is held.
        if let State::Bucket { .. } = state {
            self.set_level(
                state,
                self.level(state, when.now) - i128::from(units) * PARTS,
                when.now,
            );
        }
        *state.held_mut() -= units;
        let room = match (self, &*state) {
            (Self::Bucket { burst, debt, .. }, State::Bucket { .. }) => {
                let room = i128::from(burst + debt) * PARTS - self.level(state, when.now);
                u64::try_from(room.max(0) / PARTS).unwrap()
            }
            _ => self.decide(state, 0, when).remaining,
        };
        let charged = actual.min(room.max(units));
        if charged > 0 {
            self.charge(state, charged, when);
        }
        Committed { charged, refundable: charged }
    }

    fn commit_to_quota(&self, state: &mut State, hold: Held, actual: u64) -> Committed {
        let Self::Quota { debt: debt_limit, .. } = *self else { panic!("{self:?} is no quota") };
        let (booked, least) = if hold.is_lapsed {
            // The closed period has it.
            (actual.min(hold.units), 0)
        } else {
            *state.held_mut() -= hold.units;
            (0, hold.units)
        };
        let actual = actual - booked;
        let used_now = actual.min(self.available(state).max(least));
        let State::Quota { used, debt, .. } = state else { panic!("{state:?} is no quota's") };
        *used += used_now;
        let room_for_debt = match debt_limit {
            Debt::None => 0,
            Debt::UpTo(most) => most.saturating_sub(*debt),
            Debt::All => u64::MAX,
        };
        let owed = (actual - used_now).min(room_for_debt);
        *debt += owed;
        Committed { charged: booked + used_now + owed, refundable: used_now + owed }
    }

    /// Books a cost whatever is left, as far as the debt allows, and returns how much.
    pub(super) fn book(&self, state: &mut State, cost: u64, when: When) -> u64 {
        match state {
            State::Quota { .. } => {
                let nothing = Held { units: 0, is_lapsed: false };
                self.commit_to_quota(state, nothing, cost).charged
            }
            State::Bucket { .. } => {
                let Self::Bucket { burst, debt, .. } = *self else { panic!("{self:?}") };
                // Without a debt of its own, a postpaid bucket has no bound.
                let room = i128::from(burst + debt) * PARTS - self.level(state, when.now);
                let room = u64::try_from(room.max(0) / PARTS).unwrap();
                let booked = if debt == 0 { cost } else { cost.min(room) };
                self.charge(state, booked, when);
                booked
            }
            _ => {
                self.charge(state, cost, when);
                cost
            }
        }
    }

    /// Ends a hold of a postpaid rule with a charge of `actual`.
    pub(super) fn commit_postpaid(
        &self,
        state: &mut State,
        hold: Held,
        actual: u64,
        when: When,
    ) -> Committed {
        let within = actual.min(hold.units);
        let mut done = self.commit(state, hold, within, when);
        if actual > within {
            let booked = self.book(state, actual - within, when);
            done.charged += booked;
            done.refundable += booked;
        }
        done
    }

    /// Ends a hold without a charge.
    pub(super) fn release(&self, state: &mut State, hold: Held, when: When) {
        self.commit(state, hold, 0, when);
    }

    /// Refunds up to so many units, and returns how many.
    pub(super) fn refund(&self, state: &mut State, units: u64, when: When) -> u64 {
        let parts = self.outstanding(state, when).min(i128::from(units) * PARTS);
        self.take_back(state, parts, when);
        u64::try_from(div_ceil(parts, PARTS)).unwrap()
    }

    /// Refunds up to so many units of the charge that left the state `charge`.
    pub(super) fn refund_charge(
        &self,
        state: &mut State,
        charge: &mut State,
        units: u64,
        when: When,
    ) -> u64 {
        if let (Self::Quota { .. }, State::Quota { used: 1.., .. }) = (self, &*charge) {
            let units = self.give_back(&mut charge.clone(), units);
            let refunded = self.give_back(state, units);
            return self.give_back(charge, refunded);
        }
        let mut parts = (self.outstanding(state, when))
            .min(self.outstanding(charge, when))
            .min(i128::from(units) * PARTS);
        if let (State::Quota { debt, .. }, State::Quota { used: 0, .. }) = (&*state, &*charge) {
            // After its period only what is still owed of it can be refunded.
            parts = parts.min(i128::from(*debt) * PARTS);
        }
        self.take_back(state, parts, when);
        self.take_back(charge, parts, when);
        u64::try_from(div_ceil(parts, PARTS)).unwrap()
    }

    /// Takes units back in the period of their charge: first used ones that the period does not
    /// have, then debt, then others.
    fn give_back(&self, state: &mut State, units: u64) -> u64 {
        let (Self::Quota { max, .. }, State::Quota { used, carried, held, debt }) = (self, state)
        else {
            panic!("{self:?} is no quota")
        };
        let beyond = (*used + *held).saturating_sub(max + *carried).min(*used);
        let from_beyond = units.min(beyond);
        let from_debt = (units - from_beyond).min(*debt);
        let from_used = (units - from_beyond - from_debt).min(*used - from_beyond);
        *used -= from_beyond + from_used;
        *debt -= from_debt;
        from_beyond + from_debt + from_used
    }

    /// What was charged and still counts, in parts of a unit.
    fn outstanding(&self, state: &State, when: When) -> i128 {
        let units = match (self, state) {
            (Self::Bucket { .. }, State::Bucket { held, .. }) => {
                return self.level(state, when.now) - i128::from(*held) * PARTS;
            }
            (Self::Window { .. }, State::Window { .. }) => state.used_in_window(when.now),
            (Self::Sliding { per_ns, .. }, State::Sliding { times, .. }) => {
                in_window(times, *per_ns, when.now).len() as u64
            }
            (_, State::Quota { used, debt, .. }) => used + debt,
            _ => 0,
        };
        i128::from(units) * PARTS
    }

    /// Takes back so much of what counts.
    fn take_back(&self, state: &mut State, parts: i128, when: When) {
        if parts == 0 {
            return;
        }
        let units = u64::try_from(parts / PARTS).unwrap();
        match (self, &mut *state) {
            (Self::Bucket { .. }, _) => {
                self.set_level(state, self.level(state, when.now) - parts, when.now);
            }
            (Self::Sliding { per_ns, .. }, State::Sliding { times, .. }) => {
                *times = in_window(times, *per_ns, when.now);
                times.drain(..units as usize);
            }
            (_, State::Window { used, .. }) => *used -= units,
            (_, State::Quota { used, debt, .. }) => {
                let paid = units.min(*debt);
                *debt -= paid;
                *used -= units - paid;
            }
            (limit, state) => panic!("{limit:?} with {state:?}"),
        }
    }

    /// Closes a quota's period.
    pub(super) fn close_period(&self, state: &mut State) {
        let Self::Quota { max, carry, .. } = *self else { panic!("{self:?} is no quota") };
        let State::Quota { used, carried, held, debt } = state else { panic!("{state:?}") };
        let room = (max + *carried).saturating_sub(*used);
        let paid = room.min(*debt);
        *debt -= paid;
        let unused = room - paid;
        *carried = match carry {
            Carry::Nothing => 0,
            Carry::UpTo(bound) => unused.min(bound),
            Carry::All => unused,
        };
        *used = 0;
        if carry == Carry::Nothing && is_on("lapsing_holds") {
            // Holds belong to their period.
            *held = 0;
        }
    }

    /// The limit ends at `at`, and another one takes the state over.
    pub(super) fn leave(&self, state: &mut State, since: u64, at: u64) {
        match (self, &mut *state) {
            (Self::Bucket { .. }, _) => self.set_level(state, self.level(state, at), at),
            // Units that have left while it was in force are gone.
            (Self::Sliding { per_ns, .. }, State::Sliding { times, .. }) if is_on("left_units") => {
                times.retain(|time| (time + per_ns).max(since) >= at);
            }
            _ => {}
        }
    }

    fn available(&self, state: &State) -> u64 {
        let Self::Quota { max, .. } = self else { panic!("{self:?} is no quota") };
        let State::Quota { used, carried, held, debt } = state else { panic!("{state:?}") };
        (max + carried).saturating_sub(used + held + debt)
    }

    /// How far a bucket is from full, in parts of a unit, never less than what is held.
    fn level(&self, state: &State, now: u64) -> i128 {
        let Self::Bucket { count, per_ns, .. } = *self else { panic!("{self:?} is no bucket") };
        let State::Bucket { level, as_of, held } = *state else { panic!("{state:?}") };
        let passed = i128::from(now) - i128::from(as_of);
        let level = level - passed * i128::from(count) * (PARTS / i128::from(per_ns));
        level.max(i128::from(held) * PARTS)
    }

    fn set_level(&self, state: &mut State, new: i128, now: u64) {
        let State::Bucket { level, as_of, .. } = state else { panic!("{state:?}") };
        (*level, *as_of) = (new, now);
    }

    fn count_in_window(&self, state: &mut State, cost: u64, now: u64) {
        let Self::Window { per_ns, is_aligned, .. } = *self else { panic!("{self:?}") };
        let is_open = state.is_open_window(now);
        let State::Window { ends, used, .. } = state else { panic!("{state:?}") };
        if !is_open {
            *ends = if is_aligned { now - now % per_ns } else { now } + per_ns;
            *used = 0;
        }
        *used += cost;
    }
}

impl State {
    pub(super) fn held(&self) -> u64 {
        match self {
            Self::Bucket { held, .. }
            | Self::Window { held, .. }
            | Self::Sliding { held, .. }
            | Self::Quota { held, .. } => *held,
            Self::Cooldown { .. } => 0,
        }
    }

    pub(super) fn held_mut(&mut self) -> &mut u64 {
        match self {
            Self::Bucket { held, .. }
            | Self::Window { held, .. }
            | Self::Sliding { held, .. }
            | Self::Quota { held, .. } => held,
            Self::Cooldown { .. } => panic!("a cooldown holds nothing"),
        }
    }

    /// Whether it is a window in which something is used.
    pub(super) fn is_open_window(&self, now: u64) -> bool {
        matches!(self, Self::Window { ends, used, .. } if *used > 0 && now < *ends)
    }

    fn used_in_window(&self, now: u64) -> u64 {
        match self {
            Self::Window { used, .. } if self.is_open_window(now) => *used,
            _ => 0,
        }
    }
}

fn in_window(times: &[u64], per_ns: u64, now: u64) -> Vec<u64> {
    times.iter().copied().filter(|time| time + per_ns > now).collect()
}

fn div_ceil(value: i128, by: i128) -> i128 {
    (value + by - 1).div_euclid(by)
}
