//! Calendars as text.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use jiff::tz::{self, TimeZone};

use super::{Calendar, CalendarUnit};

/// Why a text is not a [`Calendar`]: what is wrong with it, and what is possible.
#[derive(Clone, PartialEq, Eq)]
pub struct CalendarError {
    problem: CalendarProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CalendarProblem {
    Unit { found: Box<str> },
    Zone { found: Box<str>, alike: Option<Box<str>> },
    Form { found: Box<str> },
}

impl FromStr for Calendar {
    type Err = CalendarError;

    /// Parses `<unit>` or `<unit> in <zone>`. Only the zone's name ignores case.
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(unit), None, _, _) => Ok(Self { unit: unit_of(unit)?, zone: TimeZone::UTC }),
            (Some(unit), Some("in"), Some(zone), None) => {
                Ok(Self { unit: unit_of(unit)?, zone: zone_of(zone)? })
            }
            _ => Err(CalendarError { problem: CalendarProblem::Form { found: excerpt(text) } }),
        }
    }
}

impl fmt::Display for Calendar {
    /// Writes what [`from_str`](FromStr::from_str) parses; UTC is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit.name())?;
        match self.zone.iana_name() {
            Some(zone) if self.zone != TimeZone::UTC => write!(f, " in {zone}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            CalendarProblem::Unit { found } => {
                write!(f, "`{found}` is not a period of the calendar; ")?;
                if let Some(alike) =
                    nearest(found, CalendarUnit::ALL.iter().map(|unit| unit.name()))
                {
                    write!(f, "did you mean `{alike}`? ")?;
                }
                f.write_str("possible are minute, hour, day, week, month and year")
            }
            CalendarProblem::Zone { found, alike } => {
                write!(f, "`{found}` is not a time zone; ")?;
                match alike {
                    Some(alike) => write!(f, "did you mean `{alike}`?"),
                    None => f.write_str("possible are names like `UTC` or `Europe/Helsinki`"),
                }
            }
            CalendarProblem::Form { found } => write!(
                f,
                "`{found}` is not a calendar; write a period, like `day`, or a period and a zone, \
                 like `month in Europe/Helsinki`"
            ),
        }
    }
}

tidegate_core::debug_as_displayed!(CalendarError);

impl Error for CalendarError {}

impl CalendarUnit {
    const ALL: [Self; 6] =
        [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    const fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

fn unit_of(word: &str) -> Result<CalendarUnit, CalendarError> {
    let found = CalendarUnit::ALL.into_iter().find(|unit| unit.name() == word);
    found.ok_or_else(|| CalendarError { problem: CalendarProblem::Unit { found: excerpt(word) } })
}

fn zone_of(name: &str) -> Result<TimeZone, CalendarError> {
    match tz::db().get(name) {
        // The database also has a zone that stands for "unknown".
        Ok(zone) if !zone.is_unknown() => Ok(zone),
        _ => {
            let found = excerpt(name);
            let known: Vec<_> = tz::db().available().map(|zone| zone.to_string()).collect();
            let alike = nearest(&found, known.iter().map(String::as_str)).map(Into::into);
            Err(CalendarError { problem: CalendarProblem::Zone { found, alike } })
        }
    }
}

/// The name that was probably meant, if one is close enough.
fn nearest<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_lowercase();
    let distance = |name: &str| {
        let name = name.to_lowercase();
        // The city alone is common.
        let city = name.rsplit('/').next().unwrap_or(&name);
        strsim::osa_distance(&found, &name).min(strsim::osa_distance(&found, city) + 1)
    };
    let (distance, name) = names.map(|name| (distance(name), name)).min()?;
    (distance <= found.chars().count() / 3).then_some(name)
}

/// The text for an error message: not too long, and without control characters.
fn excerpt(text: &str) -> Box<str> {
    text.chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect::<String>().into()
}

const EXCERPT_CHARS: usize = 64;
