use core::fmt;
use core::time::Duration;

use crate::Timestamp;

/// The decision on one check: allow or deny, and the numbers that a caller may report.
///
/// A denial is a value, not an error. Only the verdict is computed at once:
/// [`remaining`](Self::remaining), [`retry_after`](Self::retry_after) and [`reset`](Self::reset)
/// divide on demand.
#[must_use]
#[derive(Clone, Copy)]
pub struct Decision {
    pub(crate) outcome: Outcome,
    /// Capacity of the limit, in units of cost.
    pub(crate) limit: u64,
    pub(crate) now: Timestamp,
    /// What remains after this decision.
    pub(crate) room_ticks: u128,
    /// What a denied cost lacks; of a measurement the units used and held, in one half each.
    pub(crate) lack_ticks: u128,
    /// What has to pass until the limit is as good as fresh.
    pub(crate) spent_ticks: u128,
    pub(crate) ticks_per_unit: u64,
    pub(crate) ticks_per_ns: u64,
    /// The time over which the capacity returns.
    pub(crate) span: Span,
}

/// The time over which the whole capacity of a limit returns, in nanoseconds: one word, as
/// decisions are copied a lot. Periods are above zero and below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

impl Span {
    /// As long as the capacity takes, in ticks.
    pub(crate) const BY_TICKS: Self = Self(0);
    /// Unknown.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);
}

/// The bare verdict, with the kind of wait after a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allow,
    DenyForNow,
    DenyForEver,
    DenyUnknown,
}

/// A decision with the one number that goes with it.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed; the cost has been charged.
    Allow {
        /// Units left for the next caller.
        remaining: u64,
    },
    /// Denied; nothing has been charged.
    Deny {
        /// How long to wait.
        wait: Wait,
    },
}

/// How long a denied caller should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A retry after this long succeeds if no other request came; one nanosecond earlier it does
    /// not.
    After(Duration),
    /// No wait helps: the cost exceeds the limit's capacity, or the clock ends first.
    Never,
    /// Unknown: units are held, or the host closes the round.
    Unknown,
}

/// A [denied](Decision::allowed) request, as an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    /// How long to wait.
    pub wait: Wait,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Wait::After(wait) => write!(f, "denied: retry after {wait:?}"),
            Wait::Never => f.write_str("denied: the cost is more than the limit ever allows"),
            Wait::Unknown => f.write_str("denied: the wait is unknown"),
        }
    }
}

crate::debug_as_displayed!(Denied);

impl core::error::Error for Denied {}

impl Wait {
    /// Whole milliseconds, rounded up, so that a retry is not too early; `None` where no wait
    /// helps or it is unknown.
    #[must_use]
    pub fn whole_ms(self) -> Option<u64> {
        self.whole(1_000_000)
    }

    /// [`whole_ms`](Self::whole_ms) in seconds.
    #[must_use]
    pub fn whole_secs(self) -> Option<u64> {
        self.whole(1_000_000_000)
    }

    fn whole(self, unit_ns: u128) -> Option<u64> {
        match self {
            Self::After(wait) => {
                Some(u64::try_from(wait.as_nanos().div_ceil(unit_ns)).unwrap_or(u64::MAX))
            }
            Self::Never | Self::Unknown => None,
        }
    }
}

impl Decision {
    /// Whether the request is allowed. The cost has been charged if so, and not otherwise.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allow)
    }

    /// `Ok` if the request is allowed, for callers to whom a denial is an error.
    pub fn allowed(&self) -> Result<(), Denied> {
        self.retry_after().map_or(Ok(()), |wait| Err(Denied { wait }))
    }

    /// The capacity of the limit that decided, in units of cost.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time over which the whole capacity of the limit returns: the length of a window, the
    /// time that an empty bucket takes to fill. `None` for quotas and slots.
    #[must_use]
    pub fn span(&self) -> Option<Duration> {
        let nanos = match self.span {
            Span::UNKNOWN => return None,
            Span::BY_TICKS => {
                // At most 2^95.
                let ticks = u128::from(self.limit) * u128::from(self.ticks_per_unit);
                u64::try_from(ticks.div_ceil(u128::from(self.ticks_per_ns))).unwrap_or(u64::MAX)
            }
            Span(nanos) => nanos,
        };
        Some(Duration::from_nanos(nanos))
    }

    /// The time at which it was decided.
    #[must_use]
    pub const fn decided_at(&self) -> Timestamp {
        self.now
    }

    /// Units that the next caller could be charged at this same time.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let units = self.room_ticks / u128::from(self.ticks_per_unit);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// How long a denied caller should wait; `None` when allowed.
    #[must_use]
    pub fn retry_after(&self) -> Option<Wait> {
        match self.outcome {
            Outcome::Allow => None,
            Outcome::DenyForEver => Some(Wait::Never),
            Outcome::DenyUnknown => Some(Wait::Unknown),
            Outcome::DenyForNow => match self.nanos(self.lack_ticks) {
                Some(nanos) => Some(Wait::After(Duration::from_nanos(nanos))),
                None => Some(Wait::Never),
            },
        }
    }

    /// The time until the limit is as good as fresh, if no request comes and nothing stays held; `None`
    /// if it is unknown, or the clock ends first.
    #[must_use]
    pub fn reset(&self) -> Option<Duration> {
        self.nanos(self.spent_ticks).map(Duration::from_nanos)
    }

    /// The decision of `max` slots of which `taken` are taken, for a request of `cost`.
    ///
    /// The wait for a slot is unknown.
    pub fn of_slots(max: u64, taken: u64, cost: u64, now: Timestamp) -> Self {
        let outcome = match taken.checked_add(cost) {
            Some(total) if total <= max => Outcome::Allow,
            _ if cost > max => Outcome::DenyForEver,
            _ => Outcome::DenyUnknown,
        };
        let taken_after = if outcome == Outcome::Allow { taken + cost } else { taken };
        Self {
            outcome,
            limit: max,
            now,
            room_ticks: u128::from(max.saturating_sub(taken_after)),
            lack_ticks: u128::MAX,
            spent_ticks: if taken_after > 0 { u128::MAX } else { 0 },
            ticks_per_unit: 1,
            ticks_per_ns: 1,
            span: Span::UNKNOWN,
        }
    }

    /// This decision where nothing was charged: what remains is what a peek found.
    pub fn uncharged(self, look: &Self) -> Self {
        Self { room_ticks: look.room_ticks, spent_ticks: look.spent_ticks, ..self }
    }

    /// This decision, denied for an unknown time, unless it was denied for ever.
    ///
    /// For a store that has no room for the state.
    pub fn denied_for_unknown_time(self) -> Self {
        match self.outcome {
            Outcome::DenyForEver => self,
            _ => Self { outcome: Outcome::DenyUnknown, room_ticks: 0, ..self },
        }
    }

    /// This decision, denied until a time at which units come back that this limit does not know of.
    pub fn denied_until(self, end: Timestamp) -> Self {
        let wait_ns = end.as_nanos().saturating_sub(self.now.as_nanos());
        let lack_ticks = u128::from(wait_ns) * u128::from(self.ticks_per_ns);
        Self { outcome: Outcome::DenyForNow, lack_ticks, ..self }
    }

    /// This denial with an unknown wait, unless it is one for ever.
    pub const fn with_unknown_wait(self) -> Self {
        match self.outcome {
            Outcome::DenyForNow => Self { outcome: Outcome::DenyUnknown, ..self },
            Outcome::Allow | Outcome::DenyForEver | Outcome::DenyUnknown => self,
        }
    }

    /// This decision as a measurement: allowed whatever the state is, with the units that count
    /// against the limit.
    pub fn measured(self, used: u64, held: u64) -> Self {
        let lack_ticks = (u128::from(used) << 64) | u128::from(held);
        Self { outcome: Outcome::Allow, lack_ticks, ..self }
    }

    /// Units charged that still count, without those on hold, of a [measurement](Self::measured).
    #[must_use]
    pub const fn measured_used(&self) -> u64 {
        (self.lack_ticks >> 64) as u64
    }

    /// Units on hold, of a [measurement](Self::measured).
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
    pub const fn measured_held(&self) -> u64 {
        self.lack_ticks as u64
    }

    /// The number of words of a decision.
    #[doc(hidden)]
    pub const WORDS: usize = 12;

    /// The decision as words, for stores that cache results.
    #[doc(hidden)]
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        #[allow(clippy::cast_possible_truncation, reason = "each half is kept")]
        let halves = |value: u128| [value as u64, (value >> 64) as u64];
        let outcome = match self.outcome {
            Outcome::Allow => 0,
            Outcome::DenyForNow => 1,
            Outcome::DenyForEver => 2,
            Outcome::DenyUnknown => 3,
        };
        let [room, lack, spent] = [self.room_ticks, self.lack_ticks, self.spent_ticks].map(halves);
        let Self { limit, now, ticks_per_unit, ticks_per_ns, span, .. } = *self;
        [
            outcome,
            limit,
            now.as_nanos(),
            room[0],
            room[1],
            lack[0],
            lack[1],
            spent[0],
            spent[1],
            ticks_per_unit,
            ticks_per_ns,
            span.0,
        ]
    }

    /// The decision with these words. Invalid words give some decision.
    #[doc(hidden)]
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let whole = |index: usize| u128::from(words[index]) | (u128::from(words[index + 1]) << 64);
        Self {
            outcome: match words[0] {
                0 => Outcome::Allow,
                1 => Outcome::DenyForNow,
                2 => Outcome::DenyForEver,
                _ => Outcome::DenyUnknown,
            },
            limit: words[1],
            now: Timestamp::from_nanos(words[2]),
            room_ticks: whole(3),
            lack_ticks: whole(5),
            spent_ticks: whole(7),
            // Times are divided by these.
            ticks_per_unit: words[9].max(1),
            ticks_per_ns: words[10].max(1),
            span: Span(words[11]),
        }
    }

    /// The decision as an enum to match on.
    pub fn verdict(&self) -> Verdict {
        match self.retry_after() {
            None => Verdict::Allow { remaining: self.remaining() },
            Some(wait) => Verdict::Deny { wait },
        }
    }

    /// Nanoseconds until `ticks` have passed, rounded up; `None` beyond the end of the clock.
    fn nanos(&self, ticks: u128) -> Option<u64> {
        let nanos = u64::try_from(ticks.div_ceil(u128::from(self.ticks_per_ns))).ok()?;
        let end = self.now.as_nanos().checked_add(nanos)?;
        (end <= Timestamp::MAX.as_nanos()).then_some(nanos)
    }
}

/// Shows what a caller asks, not the ticks that answer it.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("is_allowed", &self.is_allowed())
            .field("limit", &self.limit)
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset", &self.reset())
            .finish()
    }
}

/// Decisions are equal when everything they report is, whatever ticks they were computed in.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        self.verdict() == other.verdict()
            && self.limit == other.limit
            && self.remaining() == other.remaining()
            && self.reset() == other.reset()
    }
}

impl Eq for Decision {}
