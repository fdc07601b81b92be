//! Periods of the calendar, in a zone.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};

mod cached;
mod text;

pub use cached::CachedCalendar;
pub use text::CalendarError;

/// A division of time by the calendar: minutes, hours, days, weeks, months or years in a
/// named zone.
///
/// It is written as in a policy file: `day`, or `month in Europe/Helsinki`. Without a zone it is
/// UTC. Zones are those of the IANA database, which is built in.
///
/// - A **day**, **week** (from Monday, as in ISO 8601), **month** or **year** begins when the
///   zone's clocks first reach its first midnight, and ends when the next one begins. So a day has
///   23 or 25 hours where the clocks change, and begins at 01:00 where there is no midnight. Clocks
///   that are set back past a midnight do not bring the old day back. A date that a zone skipped is
///   a period without any time: its number is left out.
/// - An **hour** or **minute** is real time. It begins when the zone's clocks show a full one. An
///   hour that the clocks show twice is two periods; one that they skip is none. Where they are
///   set by a part of an hour, the hour around that moment is longer or shorter, less than two
///   hours in any case.
///
/// ```
/// use tidegate::policy::Calendar;
///
/// let months: Calendar = "month in Europe/Helsinki".parse()?;
/// // 2026-02-28 23:30 in Helsinki, half an hour before March.
/// let period = months.period_at(1_772_314_200_000_000_000);
/// assert_eq!(period.index, 56 * 12 + 1);
/// assert_eq!(period.ends_ns, 1_772_316_000_000_000_000);
/// # Ok::<(), tidegate::policy::CalendarError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
}

/// One period of a [`Calendar`]: its number and its bounds.
///
/// Where one period ends the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarPeriod {
    /// Its number, counted from 1970 in the zone: 1970-01-01 is day 0, Monday 1969-12-29 begins
    /// week 0, January 1970 is month 0. The next period's is larger: by one, or by more where a
    /// zone skipped dates.
    pub index: u64,
    /// When it began, in nanoseconds since 1970 in UTC. Number 0 begins with time, at 0.
    pub starts_ns: u64,
    /// When it ends, in nanoseconds since 1970 in UTC: the first moment that is not in it.
    pub ends_ns: u64,
}

impl Calendar {
    /// How long every period is, but for the hours that clocks are put forward and back; `None` for
    /// months and years.
    #[must_use]
    pub const fn usual_length(&self) -> Option<Duration> {
        match self.unit {
            CalendarUnit::Minute => Some(Duration::from_secs(60)),
            CalendarUnit::Hour => Some(Duration::from_secs(3_600)),
            CalendarUnit::Day => Some(Duration::from_secs(86_400)),
            CalendarUnit::Week => Some(Duration::from_secs(604_800)),
            CalendarUnit::Month | CalendarUnit::Year => None,
        }
    }

    /// The period of a time, given in nanoseconds since 1970 in UTC.
    ///
    /// Later times never have smaller numbers. Time stands still in the year 2262, at 2^63 − 1
    /// nanoseconds.
    #[must_use]
    pub fn period_at(&self, unix_ns: u64) -> CalendarPeriod {
        // Bounds are whole seconds.
        let now_s = i64::try_from(unix_ns).unwrap_or(i64::MAX) / NS_PER_S;
        let mut index = self.shown_at(now_s).max(0);
        let mut starts_s = self.starts_s(index);
        let mut ends_s = self.starts_s(index + 1);
        // The clocks may have been ahead, before they were set back.
        while ends_s <= now_s {
            index += 1;
            starts_s = ends_s;
            ends_s = self.starts_s(index + 1);
        }
        debug_assert!(starts_s <= now_s, "the period on the clocks has begun");
        CalendarPeriod {
            index: index.unsigned_abs(),
            starts_ns: unix_ns_of(starts_s),
            ends_ns: unix_ns_of(ends_s),
        }
    }

    /// The number of the period that the zone's clocks show at a time.
    fn shown_at(&self, now_s: i64) -> i64 {
        let offset = self.zone.to_offset(timestamp(now_s));
        let shown_s = now_s + self.unit.shift_s(offset);
        match self.unit {
            CalendarUnit::Minute => shown_s.div_euclid(S_PER_MINUTE),
            CalendarUnit::Hour => shown_s.div_euclid(S_PER_HOUR),
            CalendarUnit::Day => shown_s.div_euclid(S_PER_DAY),
            CalendarUnit::Week => (shown_s + MONDAY_S).div_euclid(7 * S_PER_DAY),
            CalendarUnit::Month => {
                let date = Offset::UTC.to_datetime(timestamp(shown_s)).date();
                (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1
            }
            CalendarUnit::Year => {
                let date = Offset::UTC.to_datetime(timestamp(shown_s)).date();
                i64::from(date.year()) - 1970
            }
        }
    }

    /// When a period begins: the first moment at which the zone's clocks show it or a later one.
    ///
    /// It grows with the number, since a moment that shows a later period is one of those that
    /// count for the earlier one.
    fn starts_s(&self, index: i64) -> i64 {
        if index <= 0 {
            return 0;
        }
        let shown_s = self.unit.begins_s(index);
        // No clock is further from UTC than this, so before then none can show it.
        let mut since_s = shown_s - self.unit.shift_max_s();
        let mut offset = self.zone.to_offset(timestamp(since_s));
        for change in self.zone.following(timestamp(since_s)) {
            let until_s = change.timestamp().as_second();
            if shown_s - self.unit.shift_s(offset) < until_s {
                break;
            }
            since_s = until_s;
            offset = change.offset();
        }
        since_s.max(shown_s - self.unit.shift_s(offset))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CalendarUnit {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl CalendarUnit {
    /// What the clocks have to show when a period begins, in seconds since they showed 1970.
    fn begins_s(self, index: i64) -> i64 {
        match self {
            Self::Minute => index * S_PER_MINUTE,
            Self::Hour => index * S_PER_HOUR,
            Self::Day => index * S_PER_DAY,
            Self::Week => index * 7 * S_PER_DAY - MONDAY_S,
            Self::Month => first_of(index / 12, index % 12),
            Self::Year => first_of(index, 0),
        }
    }

    /// How much an offset shifts the beginnings: whole hours do not change where an hour begins.
    fn shift_s(self, offset: Offset) -> i64 {
        let offset_s = i64::from(offset.seconds());
        match self {
            Self::Minute => offset_s.rem_euclid(S_PER_MINUTE),
            Self::Hour => offset_s.rem_euclid(S_PER_HOUR),
            Self::Day | Self::Week | Self::Month | Self::Year => offset_s,
        }
    }

    /// More than [`shift_s`](Self::shift_s) ever is.
    const fn shift_max_s(self) -> i64 {
        match self {
            Self::Minute => S_PER_MINUTE,
            Self::Hour => S_PER_HOUR,
            Self::Day | Self::Week | Self::Month | Self::Year => 26 * S_PER_HOUR,
        }
    }
}

/// Midnight of the first day of a month, in seconds since 1970; both counted from zero.
fn first_of(years: i64, months: i64) -> i64 {
    let year = i16::try_from(1970 + years).unwrap_or(i16::MAX);
    let month = i8::try_from(1 + months).unwrap_or(i8::MAX);
    // Time ends in 2262, so the date exists.
    let first = Date::new(year, month, 1).unwrap_or(Date::MAX);
    Offset::UTC.to_timestamp(first.at(0, 0, 0, 0)).unwrap_or(Timestamp::MAX).as_second()
}

fn timestamp(unix_s: i64) -> Timestamp {
    // Time ends in 2262, this type in 9999.
    Timestamp::from_second(unix_s).unwrap_or(Timestamp::MAX)
}

fn unix_ns_of(unix_s: i64) -> u64 {
    unix_s.unsigned_abs().saturating_mul(NS_PER_S.unsigned_abs())
}

const NS_PER_S: i64 = 1_000_000_000;
const S_PER_MINUTE: i64 = 60;
const S_PER_HOUR: i64 = 60 * S_PER_MINUTE;
const S_PER_DAY: i64 = 24 * S_PER_HOUR;

/// From the Monday before 1970 to 1970.
const MONDAY_S: i64 = 3 * S_PER_DAY;

#[cfg(test)]
mod tests;
