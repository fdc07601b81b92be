use tidegate_core::{Carry, Committed, Debt, Period, Quota, Wait};

use super::{Summary, reset_at, wait_until};

/// A quota that closes its periods one by one and lists its holds, in numbers without bounds.
#[derive(Clone, Debug)]
pub(crate) struct QuotaModel {
    limit: Quota,
    /// The latest period that mattered: an older one, read late, does not open again.
    period: u64,
    used: u128,
    carried: u128,
    debt: u128,
    holds: Vec<ModelHold>,
}

/// A hold that was not settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelHold {
    pub(crate) units: u64,
    /// The period in which it was made.
    pub(crate) period: u64,
    /// Whether its period closed without carry.
    has_ended: bool,
}

impl QuotaModel {
    pub(crate) fn new(limit: Quota, first: u64) -> Self {
        Self { limit, period: first, used: 0, carried: 0, debt: 0, holds: Vec::new() }
    }

    pub(crate) fn holds(&self) -> &[ModelHold] {
        &self.holds
    }

    /// The model as of a period.
    fn at(&self, period: u64) -> Self {
        let mut open = self.clone();
        while open.period < period {
            open.close();
        }
        open
    }

    fn close(&mut self) {
        let room = self.capacity().saturating_sub(self.used);
        let paid = room.min(self.debt);
        self.carried = match self.limit.carry() {
            Carry::Nothing => 0,
            Carry::UpTo(bound) => (room - paid).min(bound.into()),
            Carry::All => room - paid,
        };
        self.holds.iter_mut().for_each(|it| it.has_ended |= self.limit.carry() == Carry::Nothing);
        (self.period, self.used, self.debt) = (self.period + 1, 0, self.debt - paid);
    }

    fn capacity(&self) -> u128 {
        u128::from(self.limit.max()) + self.carried
    }

    fn taken(&self) -> u128 {
        let open = self.holds.iter().filter(|hold| !hold.has_ended);
        let held: u128 = open.map(|hold| u128::from(hold.units)).sum();
        self.used + held + self.debt
    }

    fn available(&self) -> u128 {
        self.capacity().saturating_sub(self.taken())
    }

    /// A peek: nothing is charged, so `remaining` does not include the cost.
    pub(crate) fn peek(&self, cost: u64, period: Period, now: u64) -> Summary {
        self.decide(cost, period, now).uncharged(self.decide(0, period, now))
    }

    fn decide(&self, cost: u64, period: Period, now: u64) -> Summary {
        let open = self.at(period.index);
        let next = open.at(open.period + 1);
        let ends = period.ends.map(|ends| ends.as_nanos());
        let ends = ends.filter(|&ends| open.period == period.index && ends > now);
        let cost = u128::from(cost);
        let allowed = open.taken() + cost <= open.capacity();
        let most_ever = match self.limit.carry() {
            Carry::Nothing => self.limit.max().into(),
            Carry::UpTo(bound) => u128::from(self.limit.max()) + u128::from(bound),
            Carry::All => u128::MAX,
        };
        let wait = match ends {
            _ if cost > most_ever => Wait::Never,
            Some(ends) if next.taken() + cost <= next.capacity() => wait_until(ends.into(), now),
            _ => Wait::Unknown,
        };
        let charged = if allowed { cost } else { 0 };
        let is_touched = open.taken() + charged > 0;
        let reset = match ends {
            _ if !is_touched => now.into(),
            Some(ends) if next.debt == 0 => ends.into(),
            _ => u128::MAX,
        };
        Summary {
            allowed,
            remaining: (open.available() - charged).try_into().unwrap(),
            wait: (!allowed).then_some(wait),
            reset: reset_at(reset, now),
        }
    }

    pub(crate) fn check(&mut self, cost: u64, period: Period, now: u64) -> Summary {
        let summary = self.decide(cost, period, now);
        if summary.allowed && cost > 0 {
            *self = self.at(period.index);
            self.used += u128::from(cost);
        }
        summary
    }

    pub(crate) fn check_postpaid(&mut self, cost: u64, period: Period, now: u64) -> Summary {
        let before = self.peek(1, period, now);
        if cost > 0 {
            *self = self.at(period.index);
            self.holds.push(ModelHold { units: 0, period: self.period, has_ended: false });
            let _ = self.commit(self.holds.len() - 1, cost, period);
        }
        let after = self.peek(1, period, now);
        if before.allowed { before.uncharged(after) } else { after }
    }

    pub(crate) fn hold(&mut self, units: u64, period: Period, now: u64) -> Summary {
        let summary = self.decide(units, period, now);
        if summary.allowed && units > 0 {
            *self = self.at(period.index);
            self.holds.push(ModelHold { units, period: self.period, has_ended: false });
        }
        summary
    }

    /// Debt first.
    pub(crate) fn refund(&mut self, units: u64, period: Period) -> u64 {
        let open = self.at(period.index);
        let from_debt = u128::from(units).min(open.debt);
        let from_used = (u128::from(units) - from_debt).min(open.used);
        if from_debt + from_used > 0 {
            *self = Self { debt: open.debt - from_debt, used: open.used - from_used, ..open };
        }
        (from_debt + from_used).try_into().unwrap()
    }

    /// Commits the hold with this index.
    pub(crate) fn commit(&mut self, index: usize, actual: u64, period: Period) -> Committed {
        *self = self.at(period.index);
        let hold = self.holds.swap_remove(index);
        let (closed, units) = match hold.has_ended {
            true => (actual.min(hold.units), 0),
            false => (0, hold.units),
        };
        let open = u128::from(actual - closed);
        let used = open.min(self.available().max(units.into()));
        let most = match self.limit.debt() {
            Debt::All => u128::from(u64::MAX),
            Debt::UpTo(bound) => bound.into(),
            Debt::Nothing => 0,
        };
        let debt = (open - used).min(most - self.debt);
        self.used += used;
        self.debt += debt;
        let [used, debt] = [used, debt].map(|units| u64::try_from(units).unwrap());
        let charged = closed + used + debt;
        Committed { charged, debt, closed, forgiven: actual - charged }
    }

    pub(crate) fn cancel(&mut self, index: usize, period: Period) {
        *self = self.at(period.index);
        self.holds.swap_remove(index);
    }
}
