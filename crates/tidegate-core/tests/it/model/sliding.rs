use tidegate_core::{Sliding, Wait};

use super::{Event, Picture, Summary, nanos, reset_at, wait_until};

/// A sliding window as the list of what was charged when.
///
/// In a log, each mark leaves exactly one window after its time. Once the log had to hold more than
/// its units, marks are counted by the sub-window they fell into, and leave when one whole window
/// lies between that sub-window and the current one. When nothing is left, the log restarts.
///
/// Time does not run backwards in the list: a charge is no earlier than the charges before it.
#[derive(Clone, Debug)]
pub(crate) struct SlidingPicture {
    limit: Sliding,
    /// Oldest first.
    marks: Vec<Mark>,
    /// The latest sub-window that mattered, once marks are counted by sub-window.
    counted_up_to: Option<u128>,
    held: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u128,
    units: u64,
}

impl SlidingPicture {
    fn per(limit: &Sliding) -> u128 {
        nanos(limit.per()).into()
    }

    /// The number of the sub-window around a time, for any number of sub-windows per window.
    fn part(limit: &Sliding, at: u128) -> u128 {
        at * u128::from(limit.parts()) / Self::per(limit)
    }

    /// The first nanosecond of a sub-window.
    fn start(limit: &Sliding, part: u128) -> u128 {
        (part * Self::per(limit)).div_ceil(limit.parts().into())
    }

    /// When a mark leaves the window.
    fn leaves(&self, mark: &Mark) -> u128 {
        match self.counted_up_to {
            None => mark.at + Self::per(&self.limit),
            Some(_) => {
                let part = Self::part(&self.limit, mark.at);
                Self::start(&self.limit, part + u128::from(self.limit.parts()) + 1)
            }
        }
    }

    /// The picture at `now`, without the marks that have left.
    fn seen(&self, now: u64) -> Self {
        let mut seen = self.clone();
        let mut time = u128::from(now);
        if let Some(latest) = self.counted_up_to {
            let part = latest.max(Self::part(&self.limit, time));
            time = time.max(Self::start(&self.limit, part));
            seen.counted_up_to = Some(part);
        }
        seen.marks.retain(|mark| mark.units > 0 && self.leaves(mark) > time);
        if seen.marks.is_empty() {
            seen.counted_up_to = None;
        }
        seen
    }

    fn units(&self) -> u64 {
        self.marks.iter().map(|mark| mark.units).sum()
    }

    fn charge(&mut self, units: u64, now: u64) {
        let newest = self.marks.last().map_or(0, |mark| mark.at);
        if self.counted_up_to.is_none() && self.units() + units > Sliding::LOG_UNITS as u64 {
            self.counted_up_to = Some(Self::part(&self.limit, newest));
        }
        let mut at = newest.max(now.into());
        if let Some(latest) = &mut self.counted_up_to {
            at = at.max(Self::start(&self.limit, *latest));
            *latest = Self::part(&self.limit, at);
        }
        self.marks.push(Mark { at, units });
        *self = self.seen(now);
    }

    fn give_back(&mut self, mut units: u64) {
        for mark in &mut self.marks {
            let given = units.min(mark.units);
            mark.units -= given;
            units -= given;
        }
        self.marks.retain(|mark| mark.units > 0);
        if self.marks.is_empty() {
            self.counted_up_to = None;
        }
    }

    /// A counted mark may lie anywhere in its old sub-window: it goes to the last moment, but not
    /// past the edit. No mark is forgotten: none goes further back than the new window reaches.
    fn edit(&mut self, limit: Sliding, at: u64) {
        let old = std::mem::replace(&mut self.limit, limit);
        if (old.per(), old.parts()) == (limit.per(), limit.parts()) || self.counted_up_to.is_none()
        {
            return;
        }
        for mark in &mut self.marks {
            let part = Self::part(&old, mark.at);
            let (start, end) = (Self::start(&old, part), Self::start(&old, part + 1));
            mark.at = (end - 1).min(u128::from(at).max(start));
        }
        let latest = self.marks.last().map(|mark| Self::part(&limit, mark.at));
        self.counted_up_to = latest;
        let oldest = latest.unwrap_or(0).saturating_sub(limit.parts().into());
        for mark in &mut self.marks {
            mark.at = mark.at.max(Self::start(&limit, oldest));
        }
    }
}

impl Picture for SlidingPicture {
    type Limit = Sliding;

    fn fresh(limit: &Sliding) -> Self {
        Self { limit: *limit, marks: Vec::new(), counted_up_to: None, held: 0 }
    }

    fn apply(&mut self, event: &Event<Sliding>, at: u64) {
        match *event {
            Event::Charge(cost) => {
                *self = self.seen(at);
                self.charge(cost, at);
            }
            Event::Refund(units) => {
                *self = self.seen(at);
                self.give_back(units);
            }
            Event::Hold(units) => self.held += units,
            Event::Commit { units, actual } => {
                let charged = self.chargeable(units, actual, at);
                self.held -= units.min(self.held);
                if charged > 0 {
                    *self = self.seen(at);
                    self.charge(charged, at);
                }
            }
            Event::Edit(limit) => self.edit(limit, at),
            Event::Refusal => {}
        }
    }

    fn decide(&self, cost: u64, now: u64) -> Summary {
        let mut seen = self.seen(now);
        let (max, held) = (u128::from(self.limit.max()), u128::from(self.held));
        let taken = u128::from(seen.units()) + held;
        let wanted = u128::from(cost);
        let allowed = taken + wanted <= max;
        let wait = (!allowed).then(|| {
            if wanted > max {
                Wait::Never
            } else if wanted + held > max {
                Wait::Unknown
            } else {
                wait_until(seen.falls_to(max - wanted - held), now)
            }
        });
        if allowed && cost > 0 {
            seen.charge(cost, now);
        }
        let taken = if allowed { taken + wanted } else { taken };
        let empty_at = match seen.marks.is_empty() {
            _ if self.held > 0 => u128::MAX,
            true => now.into(),
            false => seen.falls_to(0),
        };
        let remaining = max.saturating_sub(taken).try_into().unwrap();
        Summary { allowed, remaining, wait, reset: reset_at(empty_at, now) }
    }

    fn outstanding(&self, now: u64) -> u64 {
        self.seen(now).units()
    }

    fn chargeable(&self, units: u64, actual: u64, now: u64) -> u64 {
        let units = units.min(self.held);
        let taken = self.seen(now).units() + self.held - units;
        let countable = self.countable(actual, now);
        actual.min(self.limit.max().saturating_sub(taken).max(units)).min(countable)
    }

    fn countable(&self, cost: u64, now: u64) -> u64 {
        cost.min(u64::from(u32::MAX).saturating_sub(self.seen(now).units()))
    }
}

impl SlidingPicture {
    /// The first time at which no more than `units` are left, tried mark by mark.
    fn falls_to(&self, units: u128) -> u128 {
        let leaves = self.marks.iter().map(|mark| self.leaves(mark));
        let is_enough = |time: &u128| {
            let left = self.marks.iter().filter(|mark| self.leaves(mark) > *time);
            left.map(|mark| u128::from(mark.units)).sum::<u128>() <= units
        };
        leaves.filter(is_enough).min().unwrap()
    }
}
