use std::mem::discriminant;
use std::time::Duration;

use tidegate_core::{Bucket, Cooldown, Quota, Sliding, Window};

use super::text::LONGEST;
use crate::calendar::Calendar;

/// One constraint: an algorithm and its numbers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// A token bucket.
    Bucket(Bucket),
    /// A fixed window.
    Window(Window),
    /// A sliding window.
    Sliding(Sliding),
    /// A minimum gap between allowed requests.
    Cooldown(Cooldown),
    /// An amount per calendar period, or per round that the host closes.
    Quota(Quota, Cycle),
    /// A maximum in flight at once.
    Slots(Slots),
}

/// A [`Limit`] of any kind there is: [`Limit`] may get more kinds, and the engine has to know them all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum LimitKind<'a> {
    Bucket(&'a Bucket),
    Window(&'a Window),
    Sliding(&'a Sliding),
    Cooldown(&'a Cooldown),
    Quota(&'a Quota, &'a Cycle),
    Slots(&'a Slots),
}

/// What ends a quota's period.
#[derive(Clone, Debug, PartialEq)]
pub enum Cycle {
    /// The calendar does.
    Calendar(Calendar),
    /// The host does, when it closes the round.
    Round,
}

/// A maximum in flight, and a queue for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    pub(crate) max: u64,
    pub(crate) queue: usize,
    pub(crate) wait: Option<Duration>,
    pub(crate) expires: Duration,
    pub(crate) priority: Option<Box<str>>,
}

impl Limit {
    /// The name of the algorithm, as it is written in a policy file.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "bucket",
            Self::Window(_) => "window",
            Self::Sliding(_) => "sliding",
            Self::Cooldown(_) => "cooldown",
            Self::Quota(..) => "quota",
            Self::Slots(_) => "slots",
        }
    }

    /// Its kind, for matches that have to name them all.
    #[doc(hidden)]
    #[must_use]
    pub const fn kind(&self) -> LimitKind<'_> {
        match self {
            Self::Bucket(bucket) => LimitKind::Bucket(bucket),
            Self::Window(window) => LimitKind::Window(window),
            Self::Sliding(sliding) => LimitKind::Sliding(sliding),
            Self::Cooldown(cooldown) => LimitKind::Cooldown(cooldown),
            Self::Quota(quota, cycle) => LimitKind::Quota(quota, cycle),
            Self::Slots(slots) => LimitKind::Slots(slots),
        }
    }

    /// Whether one can override the other: the same algorithm, differing in numbers only.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Window(a), Self::Window(b)) => a.is_aligned() == b.is_aligned(),
            (Self::Quota(_, a), Self::Quota(_, b)) => a == b,
            (Self::Slots(a), Self::Slots(b)) => a.priority == b.priority,
            (a, b) => discriminant(a) == discriminant(b),
        }
    }
}

impl Slots {
    /// The default length of the queue.
    pub const DEFAULT_QUEUE: usize = 1_024;

    /// The default time after which an unrenewed slot expires.
    pub const DEFAULT_EXPIRES: Duration = Duration::from_secs(600);

    /// At most `max` in flight. Zero is rejected when the policy is built.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        let (queue, expires) = (Self::DEFAULT_QUEUE, Self::DEFAULT_EXPIRES);
        Self { max, queue, wait: None, expires, priority: None }
    }

    /// The same slots with another length of the queue; 0: no queue.
    #[must_use]
    pub fn queue(self, queue: usize) -> Self {
        Self { queue, ..self }
    }

    /// The same slots with a longest wait in the queue; 584 years at most.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait.min(LONGEST)), ..self }
    }

    /// The same slots, which expire when they are not renewed for this long; 584 years at most.
    #[must_use]
    pub fn expires(self, expires: Duration) -> Self {
        Self { expires: expires.min(LONGEST), ..self }
    }

    /// The same slots, for which the higher integer in this attribute goes first.
    #[must_use]
    pub fn priority(self, attribute: &str) -> Self {
        Self { priority: Some(attribute.into()), ..self }
    }

    /// The maximum in flight.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The length of the queue.
    #[must_use]
    pub const fn queue_len(&self) -> usize {
        self.queue
    }

    /// The longest wait in the queue, unless the caller sets one.
    #[must_use]
    pub const fn longest_wait(&self) -> Option<Duration> {
        self.wait
    }

    /// The time after which an unrenewed slot expires.
    #[must_use]
    pub const fn expiry(&self) -> Duration {
        self.expires
    }

    /// The attribute whose higher integer goes first.
    #[must_use]
    pub fn priority_attribute(&self) -> Option<&str> {
        self.priority.as_deref()
    }
}
