use tidegate_core::{Wait, Window};

use super::{Event, Picture, Summary, nanos, reset_at, wait_until};

/// A fixed window as the sum of what was charged in it, less what was refunded.
///
/// A window is open from its first charge to its end. It stays open for a clock that steps back;
/// and a clock that steps back behind a hold opens no window that ends earlier than one that the
/// hold would have opened.
#[derive(Clone, Debug)]
pub(crate) struct WindowPicture {
    limit: Window,
    latest: Option<Open>,
    held: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    ends: u128,
    used: u64,
}

impl WindowPicture {
    /// The window that a charge at `now` falls into.
    fn at(&self, now: u64) -> Open {
        let per = nanos(self.limit.per());
        let start = if self.limit.is_aligned() { now / per * per } else { now };
        let ends = u128::from(start) + u128::from(per);
        match self.latest {
            Some(open) if open.used > 0 && u128::from(now) < open.ends => open,
            Some(Open { ends: no_earlier, .. }) => Open { ends: ends.max(no_earlier), used: 0 },
            None => Open { ends, used: 0 },
        }
    }

    fn set(&mut self, latest: Option<Open>) {
        let is_empty = self.held == 0 && latest.is_none_or(|latest| latest.used == 0);
        self.latest = latest.filter(|_| !is_empty);
    }
}

impl Picture for WindowPicture {
    type Limit = Window;

    fn fresh(limit: &Window) -> Self {
        Self { limit: *limit, latest: None, held: 0 }
    }

    fn apply(&mut self, event: &Event<Window>, at: u64) {
        let Open { ends, used } = self.at(at);
        match *event {
            Event::Charge(cost) => self.set(Some(Open { ends, used: used + cost })),
            Event::Refund(units) => {
                self.set(Some(Open { ends, used: used.saturating_sub(units) }));
            }
            Event::Hold(units) => {
                self.held += units;
                self.set(Some(Open { ends, used }));
            }
            Event::Commit { units, actual } => {
                let charged = self.chargeable(units, actual, at);
                self.held -= units.min(self.held);
                let charged_to = Open { ends, used: used + charged };
                self.set(if charged > 0 { Some(charged_to) } else { self.latest });
            }
            Event::Edit(limit) => self.limit = limit,
            Event::Refusal => {}
        }
    }

    fn decide(&self, cost: u64, now: u64) -> Summary {
        let Open { ends, used } = self.at(now);
        let (max, cost) = (u128::from(self.limit.max()), u128::from(cost));
        let taken = u128::from(used) + u128::from(self.held);
        let allowed = taken + cost <= max;
        let wait = if cost > max {
            Wait::Never
        } else if cost + u128::from(self.held) > max {
            Wait::Unknown
        } else {
            wait_until(ends, now)
        };
        let taken = if allowed { taken + cost } else { taken };
        Summary {
            allowed,
            remaining: max.saturating_sub(taken).try_into().unwrap(),
            wait: (!allowed).then_some(wait),
            reset: reset_at(if taken > 0 { ends } else { now.into() }, now),
        }
    }

    fn outstanding(&self, now: u64) -> u64 {
        self.at(now).used
    }

    fn chargeable(&self, units: u64, actual: u64, now: u64) -> u64 {
        let units = units.min(self.held);
        let taken = u128::from(self.at(now).used) + u128::from(self.held - units);
        let room = u128::from(self.limit.max()).saturating_sub(taken);
        let countable = self.countable(actual, now);
        actual.min(u64::try_from(room).unwrap().max(units)).min(countable)
    }

    fn countable(&self, cost: u64, now: u64) -> u64 {
        cost.min(u64::from(u32::MAX) - self.at(now).used)
    }
}
