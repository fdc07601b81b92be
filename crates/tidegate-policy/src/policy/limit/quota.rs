//! `quota`: an amount per calendar period, or per round that the host closes.

use tidegate_core::{Carry, Debt, Quota};

use super::written::{WrittenNumber, debt, fixed_value, none, optional_number, required_number};
use super::{Algorithm, Limit, LimitRead, read_allowance, read_debt};
use crate::calendar::Calendar;
use crate::policy::Charging;
use crate::policy::fields::{CARRY, COUNT, LIMIT_DEBT, Section, ValueKind, optional, required};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::{TextError, quoted};
use crate::policy::write::values::text;

/// What ends a quota's period.
#[derive(Clone, Debug, PartialEq)]
pub enum Periods {
    /// The calendar does.
    Calendar(Calendar),
    /// The host does, when it closes the round.
    Round,
}

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("quota", ValueKind::Table(&SECTION))
        .about("An amount per calendar period or round."),
    overridable: &["max", "carry", "debt"],
    read,
};

static SECTION: Section = Section {
    name: "a quota",
    fields: &[
        required("max", COUNT).about("Units per period."),
        required("per", ValueKind::Text)
            .about("\"day\", \"month in Europe/Helsinki\", … or \"round\"."),
        optional("carry", CARRY).about("What happens to unused units. Default: \"none\"."),
        optional("debt", LIMIT_DEBT).about("How far commits may overdraw it. Default: \"all\"."),
    ],
};

fn read(numbers: &mut TableReader<'_, '_>, _: Charging) -> LimitRead {
    let (max, debt) = (numbers.integer("max"), read_debt(numbers));
    let hint = "write \"none\" if unused units lapse";
    let carry = read_allowance(numbers, "carry", hint, [Carry::Nothing, Carry::All], Carry::UpTo);
    let periods = numbers.of_rule().parsed("per", read_periods);
    let quota = Quota::try_new(max?, carry.unwrap_or(Carry::Nothing));
    let quota = quota.and_then(|quota| quota.with_debt(debt.unwrap_or(Debt::All)));
    let periods = periods?;
    Some(quota.map(|quota| Limit::Quota(quota, periods)))
}

fn read_periods(text: &str) -> Result<Periods, TextError> {
    if text == "round" {
        return Ok(Periods::Round);
    }
    text.parse::<Calendar>().map(Periods::Calendar).map_err(|error| {
        TextError::new(format!("{} is not a period: {error}", quoted(text))).hint(
            "write \"day\", \"month in Europe/Helsinki\", \"round\"; for other times use `window`",
        )
    })
}

pub(super) fn numbers(quota: &Quota, periods: &Periods) -> Vec<WrittenNumber> {
    let carry = match quota.carry() {
        Carry::Nothing => none(),
        Carry::UpTo(most) => most.to_string(),
        Carry::All => text("all"),
    };
    let per = match periods {
        Periods::Calendar(calendar) => text(&calendar.to_string()),
        Periods::Round => text("round"),
    };
    vec![
        required_number("max", quota.max().to_string()),
        fixed_value("per", per),
        optional_number("carry", carry, none()),
        optional_number("debt", debt(quota.debt()), debt(Debt::All)),
    ]
}

pub(super) fn describe(quota: &Quota, periods: &Periods) -> String {
    let (per, full) = match periods {
        Periods::Calendar(calendar) => (calendar.to_string(), "when the period ends"),
        Periods::Round => ("round that the host closes".into(), "when the round is closed"),
    };
    let max = quota.max();
    let edge =
        |most: u128| format!("up to {most} can be allowed in a row around the end of a period");
    let carry = match quota.carry() {
        Carry::Nothing => format!("unused units lapse. So {}", edge(u128::from(max) * 2)),
        Carry::UpTo(most) => format!(
            "up to {most} unused units are added to the next. So {}",
            edge(u128::from(max) * 2 + u128::from(most))
        ),
        Carry::All => {
            "unused units are added to the next, without a bound, from a key's first request on"
                .into()
        }
    };
    let debt = match quota.debt() {
        Debt::All => "Commits may overdraw it; the next periods pay".into(),
        Debt::UpTo(most) => format!("Commits may overdraw it by {most}; the next periods pay"),
        Debt::Nothing => "Commits charge no more than it has".into(),
    };
    format!("At most {max} per {per}; {carry}. It is full again {full}. {debt}.")
}
