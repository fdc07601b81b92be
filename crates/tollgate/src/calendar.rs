//! Periods of the calendar, in a zone.

use std::fmt;
use std::str::FromStr;

/// A calendar period in a zone: minute, hour, day, week, month or year.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    text: Box<str>,
}

impl FromStr for Calendar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = text.split(" in ").next().unwrap_or_default();
        if ["minute", "hour", "day", "week", "month", "year"].contains(&unit) {
            Ok(Self { text: text.into() })
        } else {
            Err(format!("`{unit}` is no period of the calendar"))
        }
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
