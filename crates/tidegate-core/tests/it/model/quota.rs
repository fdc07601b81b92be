use tidegate_core::{Carry, Period, Quota, Wait};

use super::{Summary, reset_at, wait_until};

/// A quota as the list of what was charged in which period.
#[derive(Clone, Debug)]
pub(crate) struct QuotaModel {
    limit: Quota,
    first: u64,
    /// (period, units charged less units refunded), in order.
    events: Vec<(u64, i128)>,
    held: u64,
}

impl QuotaModel {
    pub(crate) fn new(limit: Quota, first: u64) -> Self {
        Self { limit, first, events: Vec::new(), held: 0 }
    }

    /// The latest period that mattered: an older one, read late, does not open again.
    fn open(&self, period: u64) -> u64 {
        let latest = self.events.iter().map(|event| event.0).max();
        period.max(latest.unwrap_or(self.first))
    }

    fn used(&self, period: u64) -> u128 {
        let events = self.events.iter().filter(|event| event.0 == period);
        events.map(|event| event.1).sum::<i128>().try_into().unwrap()
    }

    /// What is available in a period, after everything before it, period by period.
    fn granted(&self, period: u64) -> u128 {
        let max = u128::from(self.limit.max());
        let mut carried = 0;
        for closed in self.first..period {
            let unspent = max + carried - self.used(closed);
            carried = match self.limit.carry() {
                Carry::Nothing => 0,
                Carry::UpTo(bound) => unspent.min(bound.into()),
                Carry::All => unspent,
            };
        }
        max + carried
    }

    fn available(&self, period: u64) -> u128 {
        (self.granted(period) - self.used(period)).saturating_sub(self.held.into())
    }

    /// A peek: nothing is charged, so `remaining` does not include the cost.
    pub(crate) fn peek(&self, cost: u64, period: Period, now: u64) -> Summary {
        self.decide(cost, period, now).uncharged(self.decide(0, period, now))
    }

    fn decide(&self, cost: u64, period: Period, now: u64) -> Summary {
        let open = self.open(period.index);
        let ends = period.ends.map(|ends| ends.as_nanos());
        let ends = ends.filter(|&ends| open == period.index && ends > now);
        let (cost, available) = (u128::from(cost), self.available(open));
        let allowed = cost <= available;
        let most_ever = match self.limit.carry() {
            Carry::Nothing => self.limit.max().into(),
            Carry::UpTo(bound) => u128::from(self.limit.max()) + u128::from(bound),
            Carry::All => u128::MAX,
        };
        let wait = match ends {
            _ if cost > most_ever => Wait::Never,
            Some(ends) if cost <= self.available(open + 1) => wait_until(ends.into(), now),
            _ => Wait::Unknown,
        };
        let charged = if allowed { cost } else { 0 };
        let is_touched = self.used(open) + u128::from(self.held) + charged > 0;
        let reset = if is_touched { ends.map_or(u128::MAX, u128::from) } else { now.into() };
        Summary {
            allowed,
            remaining: (available - charged).try_into().unwrap(),
            wait: (!allowed).then_some(wait),
            reset: reset_at(reset, now),
        }
    }

    pub(crate) fn check(&mut self, cost: u64, period: Period, now: u64) -> Summary {
        let summary = self.decide(cost, period, now);
        if summary.allowed && cost > 0 {
            self.events.push((self.open(period.index), cost.into()));
        }
        summary
    }

    pub(crate) fn hold(&mut self, units: u64, period: Period, now: u64) -> Summary {
        let summary = self.decide(units, period, now);
        if summary.allowed && units > 0 {
            self.events.push((self.open(period.index), 0));
            self.held += units;
        }
        summary
    }

    pub(crate) fn refund(&mut self, units: u64, period: Period) -> u64 {
        let open = self.open(period.index);
        let given = units.min(self.used(open).try_into().unwrap());
        if given > 0 {
            self.events.push((open, -i128::from(given)));
        }
        given
    }

    pub(crate) fn commit(&mut self, units: u64, actual: u64, period: Period) -> u64 {
        let open = self.open(period.index);
        let units = units.min(self.held);
        self.held -= units;
        let room = u64::try_from(self.available(open)).unwrap();
        let charged = actual.min(room.max(units));
        self.events.push((open, charged.into()));
        charged
    }
}
