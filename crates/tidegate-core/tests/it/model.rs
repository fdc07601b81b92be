//! What each limit means, as naively as possible.
//!
//! A [`Model`] keeps every event with its time, for ever, and decides by replaying the whole list
//! into a picture of the key. Nothing is packed, merged or rounded, and no number can overflow.

use std::time::Duration;

use tidegate_core::{Algorithm, Decision, Timestamp, Wait};

mod bucket;
mod cooldown;
mod quota;
mod sliding;
mod window;

pub(crate) use bucket::{BucketPicture, debt, most_in};
pub(crate) use cooldown::CooldownPicture;
pub(crate) use quota::QuotaModel;
pub(crate) use sliding::SlidingPicture;
pub(crate) use window::WindowPicture;

/// Everything that a decision reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    pub(crate) wait: Option<Wait>,
    pub(crate) reset: Option<Duration>,
}

impl Summary {
    /// This summary where nothing was charged, as a peek at a cost of 0 has found it.
    pub(crate) fn uncharged(self, look: Self) -> Self {
        Self { remaining: look.remaining, reset: look.reset, ..self }
    }
}

/// Something that happened to a key.
#[derive(Clone, Debug)]
pub(crate) enum Event<L> {
    /// That much was admitted.
    Charge(u64),
    /// A cost above zero was denied.
    Refusal,
    /// A refund of this many was requested, and some of it was granted.
    Refund(u64),
    /// This many were held.
    Hold(u64),
    /// A hold became a charge, as far as there was room for it.
    Commit { units: u64, actual: u64 },
    /// From here on, this limit applies.
    Edit(L),
}

/// A key at one moment, as its events have left it.
pub(crate) trait Picture: Sized {
    type Limit: Algorithm;

    fn fresh(limit: &Self::Limit) -> Self;

    /// The change by an event at `at`.
    fn apply(&mut self, event: &Event<Self::Limit>, at: u64);

    /// The decision on a request for `cost` at `now`.
    fn decide(&self, cost: u64, now: u64) -> Summary;

    /// How many charged units could still be refunded at `now`, rounded up.
    fn outstanding(&self, now: u64) -> u64;

    /// How much of `actual` is charged when a hold of `units` is committed at `now`.
    fn chargeable(&self, units: u64, actual: u64, now: u64) -> u64;

    /// How much of `cost` is charged at `now` where it is booked whatever is left.
    fn countable(&self, cost: u64, now: u64) -> u64 {
        self.chargeable(0, cost, now)
    }
}

/// The list of all events of a key.
#[derive(Clone, Debug)]
pub(crate) struct Model<P: Picture> {
    first: P::Limit,
    events: Vec<(u64, Event<P::Limit>)>,
}

impl<P: Picture> Model<P> {
    pub(crate) fn new(limit: P::Limit) -> Self {
        Self { first: limit, events: Vec::new() }
    }

    fn picture(&self) -> P {
        let mut picture = P::fresh(&self.first);
        for (at, event) in &self.events {
            picture.apply(event, *at);
        }
        picture
    }

    /// A peek: nothing is charged, so `remaining` does not include the cost.
    pub(crate) fn peek(&self, cost: u64, now: u64) -> Summary {
        self.decide(cost, now).uncharged(self.decide(0, now))
    }

    pub(crate) fn check(&mut self, cost: u64, now: u64) -> Summary {
        self.take(cost, now, Event::Charge(cost))
    }

    pub(crate) fn check_postpaid(&mut self, cost: u64, now: u64) -> Summary {
        let before = self.peek(1, now);
        let counted = self.picture().countable(cost, now);
        if counted > 0 {
            self.events.push((now, Event::Charge(counted)));
        }
        let after = self.peek(1, now);
        if before.allowed { before.uncharged(after) } else { after }
    }

    pub(crate) fn hold(&mut self, units: u64, now: u64) -> Summary {
        self.take(units, now, Event::Hold(units))
    }

    fn decide(&self, cost: u64, now: u64) -> Summary {
        self.picture().decide(cost, now)
    }

    fn take(&mut self, cost: u64, now: u64, event: Event<P::Limit>) -> Summary {
        let summary = self.decide(cost, now);
        if cost == 0 {
            return summary;
        }
        if summary.allowed {
            self.events.push((now, event));
            return summary;
        }
        // Decided again after the denial: the denial may have extended the gap.
        self.events.push((now, Event::Refusal));
        self.decide(cost, now)
    }

    pub(crate) fn refund(&mut self, units: u64, now: u64) -> u64 {
        let given = units.min(self.picture().outstanding(now));
        if given > 0 {
            self.events.push((now, Event::Refund(units)));
        }
        given
    }

    pub(crate) fn commit(&mut self, units: u64, actual: u64, now: u64) -> u64 {
        let charged = self.picture().chargeable(units, actual, now);
        self.events.push((now, Event::Commit { units, actual }));
        charged
    }

    pub(crate) fn edit(&mut self, limit: P::Limit, now: u64) {
        self.events.push((now, Event::Edit(limit)));
    }
}

/// What a decision reports, to be compared.
pub(crate) fn summary(decision: &Decision) -> Summary {
    Summary {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        wait: decision.retry_after(),
        reset: decision.reset(),
    }
}

/// A wait until `end`, which is after `now`: never, if the clock ends first.
pub(crate) fn wait_until(end: u128, now: u64) -> Wait {
    match reset_at(end, now) {
        Some(span) => Wait::After(span),
        None => Wait::Never,
    }
}

/// The time until a limit is as good as fresh.
pub(crate) fn reset_at(end: u128, now: u64) -> Option<Duration> {
    let end = u64::try_from(end).ok().filter(|&end| end <= Timestamp::MAX.as_nanos())?;
    Some(Duration::from_nanos(end.saturating_sub(now)))
}

/// A duration that a limit was built with, in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
