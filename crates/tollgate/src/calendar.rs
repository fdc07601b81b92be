//! Periods of the calendar, in a zone.

/// A calendar period in a zone: minute, hour, day, week, month or year.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {}
