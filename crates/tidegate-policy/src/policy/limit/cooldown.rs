//! `cooldown`: a minimum gap between allowed requests.

use std::time::Duration;

use tidegate_core::Cooldown;

use super::written::{WrittenNumber, required_number};
use super::{Algorithm, Limit, LimitRead};
use crate::policy::Charging;
use crate::policy::fields::{ValueKind, optional};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::format_duration;
use crate::policy::write::values::duration;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("cooldown", ValueKind::Duration)
        .about("The minimum time between two allowed requests."),
    overridable: &["cooldown"],
    read,
};

fn read(numbers: &mut TableReader<'_, '_>, _: Charging) -> LimitRead {
    Some(Cooldown::try_new(numbers.duration("cooldown")?).map(Limit::Cooldown))
}

pub(super) fn numbers(cooldown: &Cooldown) -> Vec<WrittenNumber> {
    vec![required_number("cooldown", duration(cooldown.gap()))]
}

pub(super) fn describe(cooldown: &Cooldown) -> String {
    format!("At most one every {}.", format_duration(cooldown.gap()))
}

/// Why a file cannot have it.
pub(super) fn unwritable(cooldown: &Cooldown) -> Option<&'static str> {
    (*cooldown == cooldown.extended_by_refusals())
        .then_some("use `charge_refused` for a cooldown that denials extend")
}

/// A placeholder for a limit that could not be read, in a policy that will not be used.
pub(super) fn placeholder() -> Cooldown {
    Cooldown::new(Duration::from_secs(1))
}
