use num_bigint::BigInt;
use num_rational::BigRational;
use tidegate_core::{Bucket, Debt, Wait};

use super::{Event, Picture, Summary, nanos, reset_at, wait_until};

/// A token bucket as a rational number of tokens.
///
/// The number is linear in time below the bound, into the past as well: a clock that steps back
/// takes back the tokens which the time in between had brought.
#[derive(Clone, Debug)]
pub(crate) struct BucketPicture {
    limit: Bucket,
    /// Tokens at the time `at`; below zero when overdrawn.
    tokens: BigRational,
    at: u64,
    held: u64,
}

impl BucketPicture {
    fn per_ns(limit: &Bucket) -> BigRational {
        let rate = limit.rate();
        BigRational::new(rate.count().into(), nanos(rate.period()).into())
    }

    /// Tokens at `now`. They fill up to what is not held.
    fn tokens(&self, now: u64) -> BigRational {
        let elapsed = BigInt::from(now) - BigInt::from(self.at);
        let tokens = &self.tokens + Self::per_ns(&self.limit) * whole(elapsed);
        tokens.min(self.bound())
    }

    fn bound(&self) -> BigRational {
        whole(self.limit.capacity()) - whole(self.held)
    }

    /// The first nanosecond at which `lack` more tokens have come in.
    fn after(&self, lack: &BigRational, now: u64) -> u128 {
        let nanos = (lack / Self::per_ns(&self.limit)).ceil().to_integer();
        (nanos + BigInt::from(now)).try_into().unwrap_or(u128::MAX)
    }

    fn set(&mut self, tokens: BigRational, at: u64) {
        (self.tokens, self.at) = (tokens, at);
    }
}

impl Picture for BucketPicture {
    type Limit = Bucket;

    fn fresh(limit: &Bucket) -> Self {
        Self { limit: *limit, tokens: whole(limit.capacity()), at: 0, held: 0 }
    }

    fn apply(&mut self, event: &Event<Bucket>, at: u64) {
        let tokens = self.tokens(at);
        match *event {
            Event::Charge(cost) => self.set(tokens - whole(cost), at),
            Event::Hold(units) => {
                self.set(tokens - whole(units), at);
                self.held += units;
            }
            Event::Refund(units) => {
                let bound = self.bound();
                self.set((tokens + whole(units)).min(bound), at);
            }
            Event::Commit { units, actual } => {
                let charged = self.chargeable(units, actual, at);
                let units = units.min(self.held);
                self.held -= units;
                self.set(tokens + whole(units) - whole(charged), at);
            }
            Event::Edit(limit) => {
                // What is consumed stays consumed: only the bound and the speed change.
                let grown = whole(limit.capacity()) - whole(self.limit.capacity());
                if limit.rate() == self.limit.rate() {
                    self.tokens += grown;
                } else {
                    self.set(tokens + grown, at);
                }
                self.limit = limit;
            }
            Event::Refusal => {}
        }
    }

    fn decide(&self, cost: u64, now: u64) -> Summary {
        let tokens = self.tokens(now);
        let allowed = whole(cost) <= tokens;
        let left = if allowed { &tokens - whole(cost) } else { tokens.clone() };
        let with_held = u128::from(cost) + u128::from(self.held);
        let wait = if cost > self.limit.capacity() {
            Wait::Never
        } else if with_held > u128::from(self.limit.capacity()) {
            Wait::Unknown
        } else {
            wait_until(self.after(&(whole(cost) - &tokens), now), now)
        };
        Summary {
            allowed,
            remaining: floor(&left),
            wait: (!allowed).then_some(wait),
            reset: reset_at(self.after(&(whole(self.limit.capacity()) - &left), now), now),
        }
    }

    fn outstanding(&self, now: u64) -> u64 {
        let missing = self.bound() - self.tokens(now);
        missing.ceil().to_integer().try_into().unwrap_or(u64::MAX)
    }

    fn chargeable(&self, units: u64, actual: u64, now: u64) -> u64 {
        let units = units.min(self.held);
        let room = self.tokens(now) + whole(units) + whole(debt(&self.limit));
        actual.min(floor(&room).max(units))
    }
}

/// In any interval of `length` nanoseconds, at most this much: `burst + floor(rate · length)`.
pub(crate) fn most_in(limit: &Bucket, length: u64) -> BigInt {
    let refilled = BucketPicture::per_ns(limit) * whole(length);
    BigInt::from(limit.capacity()) + BigInt::from(debt(limit)) + refilled.floor().to_integer()
}

/// The bound of a debt, which every bucket of the model has.
pub(crate) fn debt(limit: &Bucket) -> u64 {
    match limit.debt() {
        Debt::Nothing => 0,
        Debt::UpTo(units) => units,
        Debt::All => unreachable!("the model's numbers have no end, unlike those of a state"),
    }
}

fn whole(value: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(value.into())
}

/// Whole tokens; none below zero.
fn floor(tokens: &BigRational) -> u64 {
    let tokens = tokens.floor().to_integer();
    if tokens < BigInt::ZERO { 0 } else { tokens.try_into().unwrap_or(u64::MAX) }
}
