//! Values of TOML, and tables of them.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use crate::policy::diagnostic::is_invisible;
use crate::policy::key::{V4_BITS, V6_BITS};
use crate::policy::text::format_duration;
use crate::policy::words::Words;
use crate::policy::{Condition, CostTable, Key, KeyPart, Metadata, MetadataValue};

/// The lines of one table, in the order in which they are written.
#[derive(Debug, Default)]
pub struct TableWriter(Vec<(&'static str, String)>);

impl TableWriter {
    /// Adds a line.
    pub fn add(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    /// Adds a line for a value that is there.
    pub fn add_some(&mut self, name: &'static str, value: Option<String>) {
        self.0.extend(value.map(|value| (name, value)));
    }

    pub(crate) fn add_unless(
        &mut self,
        is_default: bool,
        name: &'static str,
        value: impl FnOnce() -> String,
    ) {
        self.add_some(name, (!is_default).then(value));
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The table with its header. The values are aligned.
    pub fn under(&self, header: &str) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut table = format!("{header}\n");
        for (name, value) in &self.0 {
            let _ = writeln!(table, "{name:width$} = {value}");
        }
        table
    }
}

/// A text in quotes. Invisible characters are written as their numbers.
pub fn text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_unseen(c) => {
                let number = u32::from(c);
                let _ = match number {
                    0..=0xffff => write!(quoted, "\\u{number:04X}"),
                    _ => write!(quoted, "\\U{number:08X}"),
                };
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The word of a value.
pub(crate) fn word<T: Words>(value: T) -> String {
    let mut words = T::VALUES.iter().zip(T::WORDS);
    words.find(|(known, _)| **known == value).map(|(_, word)| text(word)).unwrap_or_default()
}

/// Control characters, which TOML wants escaped, and other invisible ones: marks that change the
/// direction of text, separators of lines that are not line ends, soft hyphens, tags.
fn is_unseen(c: char) -> bool {
    let others = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{2028}', '\u{2029}'];
    c.is_control() || is_invisible(c) || others.contains(&c) || ('\u{e0000}'..).contains(&c)
}

/// The name of a key, in quotes where it needs them.
fn name(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(is_bare) { name.into() } else { text(name) }
}

/// An inline table.
pub(crate) fn table<N: AsRef<str>>(entries: impl IntoIterator<Item = (N, String)>) -> String {
    let entries =
        entries.into_iter().map(|(key, value)| format!("{} = {value}", name(key.as_ref())));
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() { "{}".into() } else { format!("{{ {} }}", entries.join(", ")) }
}

/// A list on one line.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// A list of texts.
pub(crate) fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    list(texts.into_iter().map(|it| text(it.as_ref())))
}

/// A list with a line for each item.
pub(crate) fn long_list(items: &[String]) -> String {
    let lines: String = items.iter().map(|item| format!("    {item},\n")).collect();
    format!("[\n{lines}]")
}

pub(crate) fn duration(duration: Duration) -> String {
    text(&format_duration(duration))
}

/// A time as in RFC 3339. All times in 64 bits of nanoseconds are before the year 2555.
pub fn time(unix_ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into());
    text(&time.unwrap_or(jiff::Timestamp::MAX).to_string())
}

/// A table of any values.
pub(crate) fn metadata(values: &Metadata) -> String {
    fn value(it: &MetadataValue) -> String {
        match it {
            MetadataValue::Bool(is_true) => is_true.to_string(),
            // With a point or an exponent it is a float of TOML, too.
            MetadataValue::Number(number) => format!("{:?}", number.get()),
            MetadataValue::Text(it) => text(it),
            MetadataValue::List(items) => list(items.iter().map(value)),
            MetadataValue::Table(values) => metadata(values),
        }
    }
    table(values.iter().map(|(name, it)| (name, value(it))))
}

/// Attributes with a pattern or a list of patterns.
pub fn conditions<'c>(conditions: impl IntoIterator<Item = &'c Condition>) -> String {
    table(conditions.into_iter().map(|condition| {
        let mut patterns = condition.any_of.iter().map(|pattern| text(&pattern.to_string()));
        let patterns = match (patterns.next(), patterns.len()) {
            (Some(only), 0) => only,
            (first, _) => list(first.into_iter().chain(patterns)),
        };
        (&*condition.attribute, patterns)
    }))
}

/// The same, in as many tables as needed, for conditions with a repeated attribute.
pub fn conditions_in_tables(all: &[Condition]) -> String {
    let (mut tables, mut seen): (Vec<Vec<&Condition>>, HashSet<&str>) =
        (vec![vec![]], HashSet::new());
    for condition in all {
        if !seen.insert(&condition.attribute) {
            seen = HashSet::from([&*condition.attribute]);
            tables.push(Vec::new());
        }
        if let Some(last) = tables.last_mut() {
            last.push(condition);
        }
    }
    match &*tables {
        [only] => conditions(only.iter().copied()),
        tables => list(tables.iter().map(|table| conditions(table.iter().copied()))),
    }
}

/// The texts of a key. An address that is cut in both families has two of them.
pub(crate) fn key_parts(key: &Key) -> Vec<String> {
    let part = |part: &KeyPart| match part {
        // Without the suffix it would be parsed as an address.
        KeyPart::Text(attribute) if &**attribute == "ip" => vec!["ip/text".into()],
        KeyPart::Text(attribute) => vec![attribute.to_string()],
        KeyPart::Address { attribute, v4_bits, v6_bits } => {
            let v6 = (*v6_bits != V6_BITS).then(|| format!("{attribute}/{v6_bits}"));
            let v4 = (*v4_bits != V4_BITS).then(|| format!("{attribute}4/{v4_bits}"));
            let cuts: Vec<String> = v6.into_iter().chain(v4).collect();
            if cuts.is_empty() { vec![attribute.to_string()] } else { cuts }
        }
    };
    key.parts.iter().flat_map(part).collect()
}

/// A number, or an attribute and a cost for each pattern.
pub(crate) fn costs(costs: &CostTable) -> String {
    let Some(attribute) = costs.attribute() else {
        return costs.cost("").unwrap_or(1).to_string();
    };
    let rows = costs.rows.iter().map(|(pattern, cost)| (pattern.to_string(), cost.to_string()));
    table(std::iter::once(("by".to_owned(), text(attribute))).chain(rows))
}
