//! The `metadata` of a rule: a table of any values.

use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::reader::{SpannedValue, TableReader, kind_of, whole};
use crate::policy::metadata::MOST_DEPTH;
use crate::policy::{Metadata, MetadataNumber, MetadataValue};

pub(in crate::policy) fn read(table: &mut TableReader<'_, '_>) -> Option<Arc<Metadata>> {
    let value = table.value("metadata")?;
    match value.get_ref() {
        DeValue::Table(entries) => {
            let read = read_table(table, entries, 1);
            Some(read).filter(|it| !it.is_empty()).map(Arc::new)
        }
        other => table.wrong_kind("metadata", value.span(), "a table", other),
    }
}

fn read_table(table: &mut TableReader<'_, '_>, entries: &DeTable<'_>, depth: usize) -> Metadata {
    let entry = |(name, value): (&toml::Spanned<toml::de::DeString<'_>>, &SpannedValue<'_>)| {
        let value = read_value(table, value, depth + 1)?;
        Some((Box::from(&**name.get_ref()), value))
    };
    Metadata(entries.iter().filter_map(entry).collect())
}

fn read_value(
    table: &mut TableReader<'_, '_>,
    value: &SpannedValue<'_>,
    depth: usize,
) -> Option<MetadataValue> {
    if depth > MOST_DEPTH {
        let message = format!("`metadata` is nested deeper than {MOST_DEPTH}");
        return table.reject(value.span(), message);
    }
    let number = |number: Option<f64>| number.and_then(MetadataNumber::new);
    let found = match value.get_ref() {
        DeValue::String(text) => Some(MetadataValue::Text((&**text).into())),
        DeValue::Boolean(is_true) => Some(MetadataValue::Bool(*is_true)),
        DeValue::Integer(integer) => {
            #[allow(clippy::cast_precision_loss, reason = "metadata has 64-bit floats only")]
            let float = whole(integer).map(|whole| whole as f64);
            number(float).map(MetadataValue::Number)
        }
        DeValue::Float(float) => number(float.as_str().parse().ok()).map(MetadataValue::Number),
        DeValue::Array(items) => {
            let items = items.iter().filter_map(|item| read_value(table, item, depth + 1));
            Some(MetadataValue::List(items.collect()))
        }
        DeValue::Table(entries) => Some(MetadataValue::Table(read_table(table, entries, depth))),
        DeValue::Datetime(_) => None,
    };
    let what = || format!("{} cannot be metadata", kind_of(value.get_ref()));
    found.or_else(|| table.reject(value.span(), what()))
}
