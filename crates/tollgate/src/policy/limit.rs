use std::time::Duration;

use tollgate_core::{Bucket, Cooldown, Quota, Sliding, Window};

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
    /// A minimum gap between admissions.
    Cooldown(Cooldown),
    /// An amount per calendar period, or per round that the host closes.
    Quota(Quota, Cycle),
    /// So many in flight at once.
    Slots(Slots),
}

/// What ends a quota's period.
#[derive(Clone, Debug, PartialEq)]
pub enum Cycle {
    /// The calendar does.
    Calendar(Calendar),
    /// The host does, with [`close_round`](crate::policy).
    Round,
}

/// At most so many in flight, and a queue for those who wait for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    pub(crate) max: u64,
    pub(crate) queue: usize,
    pub(crate) wait: Option<Duration>,
    pub(crate) expires: Duration,
    pub(crate) priority: Option<Box<str>>,
}
