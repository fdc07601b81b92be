//! `bucket`: a token bucket.

use std::fmt::Write;
use std::time::Duration;

use tidegate_core::{Bucket, Debt};
use toml::de::DeValue;

use super::written::{WrittenNumber, debt, optional_number, required_number};
use super::{Algorithm, Limit, LimitRead, read_debt};
use crate::policy::Charging;
use crate::policy::fields::{COUNT, LIMIT_DEBT, Section, ValueKind, optional, required};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::{format_duration, format_rate};
use crate::policy::write::values::text;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("bucket", ValueKind::Table(&SECTION)).about("A token bucket."),
    overridable: &["rate", "burst", "debt"],
    read,
};

static SECTION: Section = Section {
    name: "a bucket",
    fields: &[
        required("rate", ValueKind::Rate).about("How fast it refills."),
        optional("burst", COUNT).about("The whole capacity. Default: the count of the rate."),
        optional("debt", LIMIT_DEBT).about(
            "How far commits may overdraw it. Default: \"none\"; \"all\" for a postpaid rule.",
        ),
    ],
};

fn read(numbers: &mut TableReader<'_, '_>, charging: Charging) -> LimitRead {
    let (rate, burst) = (numbers.rate("rate"), numbers.integer("burst"));
    let debt = match numbers.value("debt").map(|it| it.get_ref()) {
        // As that of a quota, but 0 is a number as well where an override takes the debt away.
        Some(DeValue::Integer(_)) => numbers.integer("debt").map(Debt::up_to),
        _ => read_debt(numbers),
    };
    let bucket = Bucket::try_new(rate?, burst.unwrap_or(rate?.count()));
    let debt = debt.unwrap_or(charging.default_debt_of_buckets());
    Some(bucket.and_then(|bucket| bucket.with_debt(debt)).map(Limit::Bucket))
}

pub(super) fn numbers(bucket: &Bucket, charging: Charging) -> Vec<WrittenNumber> {
    let (rate, burst) = (bucket.rate(), bucket.capacity().to_string());
    vec![
        required_number("rate", text(&format_rate(rate))),
        optional_number("burst", burst, rate.count().to_string()),
        optional_number("debt", debt(bucket.debt()), debt(charging.default_debt_of_buckets())),
    ]
}

pub(super) fn describe(bucket: &Bucket) -> String {
    let (rate, burst) = (bucket.rate(), bucket.capacity());
    let (count, period_ns) = (u128::from(rate.count()), rate.period().as_nanos());
    let pace = match period_ns % count {
        0 => format!("One every {}", format_duration(nanos(period_ns / count))),
        _ => format!("{count} per {}", format_duration(rate.period())),
    };
    let window = rate.period().max(Duration::from_secs(60));
    let in_window = u128::from(burst) + count * window.as_nanos() / period_ns;
    let full_ns = (u128::from(burst) * period_ns).div_ceil(count);
    let mut text = format!(
        "{pace}; at most {burst} at once and {in_window} in any {}. \
         From empty it is full again after {}.",
        format_duration(window),
        format_duration(nanos(full_ns)),
    );
    let _ = match bucket.debt() {
        Debt::Nothing => Ok(()),
        Debt::UpTo(most) => write!(text, " Commits may overdraw it by {most}."),
        Debt::All => write!(text, " Commits may overdraw it; refilling pays."),
    };
    text
}

/// A duration of this many nanoseconds, saturating.
fn nanos(ns: u128) -> Duration {
    let secs = u64::try_from(ns / 1_000_000_000).unwrap_or(u64::MAX);
    let rest = u32::try_from(ns % 1_000_000_000).unwrap_or(0);
    Duration::new(secs, rest)
}
