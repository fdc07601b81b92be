//! The numbers of a limit, from a rule or, on top of those, from an override.

use std::time::Duration;

use tidegate_core::{Bucket, Carry, Cooldown, Debt, LimitError, Quota, Rate, Sliding, Window};
use toml::de::DeValue;

use super::reader::TableReader;
use crate::calendar::Calendar;
use crate::policy::text::{TextError, quoted};
use crate::policy::{Charging, Cycle, Limit, Slots};

/// The numbers known so far.
#[derive(Clone, Debug)]
pub(super) enum LimitDraft {
    Bucket { rate: Option<Rate>, burst: Option<u64>, debt: Debt },
    Window { max: Option<u64>, per: Option<Duration>, align: Option<&'static str> },
    Sliding { max: Option<u64>, per: Option<Duration>, parts: Option<u64> },
    Cooldown { gap: Option<Duration> },
    Quota { max: Option<u64>, cycle: Option<Cycle>, carry: Carry, debt: Debt },
    Slots { max: Option<u64>, rest: Slots },
}

impl LimitDraft {
    /// The numbers of a rule: `rule` is the table that has the algorithm's field.
    pub(super) fn of_rule(
        rule: &mut TableReader<'_, '_, '_>,
        algorithm: &str,
        charging: Charging,
    ) -> Option<Self> {
        let mut draft = match algorithm {
            "bucket" => {
                Self::Bucket { rate: None, burst: None, debt: charging.default_debt_of_buckets() }
            }
            "window" => Self::Window { max: None, per: None, align: None },
            "sliding" => Self::Sliding { max: None, per: None, parts: None },
            "cooldown" => Self::Cooldown { gap: None },
            "quota" => {
                Self::Quota { max: None, cycle: None, carry: Carry::Nothing, debt: Debt::All }
            }
            _ => Self::Slots { max: None, rest: Slots::new(1) },
        };
        let errors_before = rule.report.errors();
        if let Self::Cooldown { gap } = &mut draft {
            *gap = rule.duration("cooldown");
        } else {
            let mut table = rule.table(algorithm)?;
            draft.read(&mut table);
            draft.read_fixed(&mut table);
        }
        (rule.report.errors() == errors_before).then_some(draft)
    }

    /// Replaces the numbers that the table gives.
    pub(super) fn read(&mut self, table: &mut TableReader<'_, '_, '_>) {
        match self {
            Self::Bucket { rate, burst, debt } => {
                replace(rate, table.rate("rate"));
                replace(burst, table.integer("burst"));
                if let Some(given) = read_bucket_debt(table) {
                    *debt = given;
                }
            }
            Self::Window { max, per, .. } => {
                replace(max, table.integer("max"));
                replace(per, table.duration("per"));
            }
            Self::Sliding { max, per, parts } => {
                replace(max, table.integer("max"));
                replace(per, table.duration("per"));
                replace(parts, table.integer("parts"));
            }
            Self::Cooldown { gap } => replace(gap, table.duration("cooldown")),
            Self::Quota { max, carry, debt, .. } => {
                replace(max, table.integer("max"));
                if let Some(given) = read_carry(table) {
                    *carry = given;
                }
                if let Some(given) = read_debt(table) {
                    *debt = given;
                }
            }
            Self::Slots { max, rest } => {
                replace(max, table.integer("max"));
                if let Some(queue) = table.integer("queue") {
                    rest.queue = usize::try_from(queue).unwrap_or(usize::MAX);
                }
                if let Some(wait) = read_wait(table) {
                    rest.wait = wait;
                }
                if let Some(expires) = table.duration("expires") {
                    rest.expires = expires;
                }
            }
        }
    }

    /// Reads what only a rule can have.
    fn read_fixed(&mut self, table: &mut TableReader<'_, '_, '_>) {
        match self {
            Self::Window { align, .. } => *align = table.choice("align"),
            Self::Quota { cycle, .. } => *cycle = table.parsed("per", read_cycle),
            Self::Slots { rest, .. } => rest.priority = table.text("priority").map(Into::into),
            Self::Bucket { .. } | Self::Sliding { .. } | Self::Cooldown { .. } => {}
        }
    }

    /// The limit; `None` while a number is absent.
    pub(super) fn build(&self) -> Option<Result<Limit, LimitError>> {
        Some(match self {
            Self::Bucket { rate, burst, debt } => {
                let bucket = Bucket::new((*rate)?, burst.unwrap_or(rate.as_ref()?.count()));
                bucket.and_then(|bucket| bucket.with_debt(*debt)).map(Limit::Bucket)
            }
            Self::Window { max, per, align } => Window::new((*max)?, (*per)?).map(|window| {
                Limit::Window(if align.is_some() { window.aligned() } else { window })
            }),
            Self::Sliding { max, per, parts } => {
                let parts = parts.map_or(Ok(Sliding::DEFAULT_PARTS), u32::try_from);
                Sliding::new((*max)?, (*per)?, parts.unwrap_or(u32::MAX)).map(Limit::Sliding)
            }
            Self::Cooldown { gap } => Cooldown::new((*gap)?).map(Limit::Cooldown),
            Self::Quota { max, cycle, carry, debt } => {
                let cycle = cycle.clone()?;
                let quota = Quota::new((*max)?, *carry).and_then(|quota| quota.with_debt(*debt));
                quota.map(|quota| Limit::Quota(quota, cycle))
            }
            Self::Slots { max, rest } => Ok(Limit::Slots(Slots { max: (*max)?, ..rest.clone() })),
        })
    }
}

/// Reports an invalid number, at its field.
pub(super) fn report_invalid(table: &mut TableReader<'_, '_, '_>, error: LimitError) {
    let field = if error.field() == "period" { "rate" } else { error.field() };
    let span = table.span_of(field);
    table.report.error(span, error.to_string());
}

fn replace<T>(number: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *number = given;
    }
}

/// What unused units or overdrafts may come to.
enum Allowance {
    Nothing,
    UpTo(u64),
    All,
}

/// A number, `"none"` or `"all"`; `hint` is for a zero.
fn read_allowance(
    table: &mut TableReader<'_, '_, '_>,
    name: &str,
    hint: &str,
) -> Option<Allowance> {
    let value = table.value(name)?;
    if let DeValue::Integer(number) = value.get_ref() {
        if super::reader::whole(number) == Some(0) {
            let message = format!("`{name}` must be at least 1");
            table.report.error(value.span(), message).hint = Some(hint.into());
            return None;
        }
        return table.integer(name).map(Allowance::UpTo);
    }
    match table.choice(name)? {
        "all" => Some(Allowance::All),
        _ => Some(Allowance::Nothing),
    }
}

fn read_carry(table: &mut TableReader<'_, '_, '_>) -> Option<Carry> {
    let hint = "write \"none\" if unused units lapse";
    Some(match read_allowance(table, "carry", hint)? {
        Allowance::Nothing => Carry::Nothing,
        Allowance::UpTo(most) => Carry::UpTo(most),
        Allowance::All => Carry::All,
    })
}

fn read_debt(table: &mut TableReader<'_, '_, '_>) -> Option<Debt> {
    let hint = "write \"none\" if commits must not overdraw the quota";
    Some(match read_allowance(table, "debt", hint)? {
        Allowance::Nothing => Debt::Nothing,
        Allowance::UpTo(most) => Debt::UpTo(most),
        Allowance::All => Debt::All,
    })
}

/// As that of a quota, but 0 is a number as well where an override takes the debt away.
fn read_bucket_debt(table: &mut TableReader<'_, '_, '_>) -> Option<Debt> {
    match table.value("debt")?.get_ref() {
        DeValue::Integer(_) => table.integer("debt").map(Debt::up_to),
        _ => read_debt(table),
    }
}

/// The longest wait: a duration, or no deadline.
fn read_wait(table: &mut TableReader<'_, '_, '_>) -> Option<Option<Duration>> {
    match table.value("wait")?.get_ref() {
        DeValue::String(text) if text == "none" => Some(None),
        _ => table.duration("wait").map(Some),
    }
}

fn read_cycle(text: &str) -> Result<Cycle, TextError> {
    if text == "round" {
        return Ok(Cycle::Round);
    }
    text.parse::<Calendar>().map(Cycle::Calendar).map_err(|error| {
        TextError::new(format!("{} is not a period: {error}", quoted(text))).hint(
            "write \"day\", \"month in Europe/Helsinki\", \"round\"; for other times use `window`",
        )
    })
}
