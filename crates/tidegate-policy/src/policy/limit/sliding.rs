//! `sliding`: a sliding window.

use tidegate_core::Sliding;

use super::written::{WrittenNumber, optional_number, required_number};
use super::{Algorithm, Limit, LimitRead};
use crate::policy::Charging;
use crate::policy::fields::{PARTS, Section, ValueKind, WINDOW_COUNT, optional, required};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::format_duration;
use crate::policy::write::values::duration;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("sliding", ValueKind::Table(&SECTION)).about("A sliding window."),
    overridable: &["max", "per", "parts"],
    read,
};

static SECTION: Section = Section {
    name: "a sliding window",
    fields: &[
        required("max", WINDOW_COUNT).about("Units in every window."),
        required("per", ValueKind::Duration).about("The length of a window."),
        optional("parts", PARTS).about("Sub-windows in which units are counted. Default: 10."),
    ],
};

fn read(numbers: &mut TableReader<'_, '_>, _: Charging) -> LimitRead {
    let (max, per) = (numbers.integer("max"), numbers.duration("per"));
    let parts = numbers.integer("parts").map_or(Ok(Sliding::DEFAULT_PARTS), u32::try_from);
    Some(Sliding::try_new(max?, per?, parts.unwrap_or(u32::MAX)).map(Limit::Sliding))
}

pub(super) fn numbers(sliding: &Sliding) -> Vec<WrittenNumber> {
    vec![
        required_number("max", sliding.max().to_string()),
        required_number("per", duration(sliding.per())),
        optional_number("parts", sliding.parts().to_string(), Sliding::DEFAULT_PARTS.to_string()),
    ]
}

pub(super) fn describe(sliding: &Sliding) -> String {
    let (max, per, parts) = (sliding.max(), sliding.per(), sliding.parts());
    let steady = format_duration(per.saturating_add(per / parts));
    format!(
        "At most {max} in any {}. A steady {max} per {steady} is always allowed \
         (it is counted in {parts} parts). From empty it is full again after {steady} at most.",
        format_duration(per),
    )
}
