//! `window`: a fixed window.

use tidegate_core::Window;

use super::written::{WrittenNumber, fixed_value, required_number};
use super::{Algorithm, Limit, LimitRead};
use crate::policy::Charging;
use crate::policy::fields::{Section, ValueKind, WINDOW_COUNT, optional, required};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::format_duration;
use crate::policy::write::values::{duration, text};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("window", ValueKind::Table(&SECTION)).about("A fixed window."),
    overridable: &["max", "per"],
    read,
};

static SECTION: Section = Section {
    name: "a window",
    fields: &[
        required("max", WINDOW_COUNT).about("Units per window."),
        required("per", ValueKind::Duration).about("The length of a window."),
        optional("align", ValueKind::Choice(&["epoch"]))
            .about("Default: opens with the first request."),
    ],
};

fn read(numbers: &mut TableReader<'_, '_>, _: Charging) -> LimitRead {
    let (max, per) = (numbers.integer("max"), numbers.duration("per"));
    let align = numbers.of_rule().choice("align");
    let window = Window::try_new(max?, per?);
    Some(window.map(|it| Limit::Window(if align.is_some() { it.aligned() } else { it })))
}

pub(super) fn numbers(window: &Window) -> Vec<WrittenNumber> {
    let mut numbers = vec![
        required_number("max", window.max().to_string()),
        required_number("per", duration(window.per())),
    ];
    numbers.extend(window.is_aligned().then(|| fixed_value("align", text("epoch"))));
    numbers
}

pub(super) fn describe(window: &Window) -> String {
    let (max, per) = (window.max(), format_duration(window.per()));
    let opens = if window.is_aligned() {
        format!("windows begin at whole multiples of {per}")
    } else {
        "a window opens with the first request".into()
    };
    let twice = u128::from(max) * 2;
    format!(
        "At most {max} in each window of {per}; {opens}. \
         Around the end of a window up to {twice} can be allowed within {per}. \
         It is full again when the window ends, {per} after it opened at most."
    )
}
