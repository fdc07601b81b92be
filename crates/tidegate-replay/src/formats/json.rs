//! JSON lines: one object per line.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidegate::policy::EncodedSlash;

use super::fields::{Holds, candidates, push, time_candidates};
use super::{LogFormat, ParsedLine};
use crate::attributes::{AttributePlan, PlannedAttribute};
use crate::record::Draft;
use crate::times::time_from_text;

#[derive(Debug)]
pub(crate) struct JsonParser {
    root: Node,
    /// For every planned attribute the cells that may have its value, best first.
    planned: Vec<(PlannedAttribute, Vec<(usize, Holds)>)>,
    /// The cells that may have the time, best first.
    times: Vec<usize>,
    cells: usize,
    encoded_slash: EncodedSlash,
}

/// An object of which some members are read.
#[derive(Debug, Default)]
struct Node {
    members: Vec<(Box<str>, Node)>,
    /// Where the value goes.
    cell: Option<usize>,
}

/// The values that were found, as JSON.
type Found<'a> = Vec<Option<&'a str>>;

impl JsonParser {
    pub(crate) fn new(format: LogFormat, plan: &AttributePlan, time_field: Option<&str>) -> Self {
        let mut parser = Self {
            root: Node::default(),
            planned: Vec::new(),
            times: Vec::new(),
            cells: 0,
            encoded_slash: plan.encoded_slash,
        };
        let usual = time_candidates(format);
        let times =
            time_field.as_slice().iter().chain(usual.iter().filter(|_| time_field.is_none()));
        parser.times = times.flat_map(|name| parser.cells_of(name)).collect();
        for attribute in &plan.attributes {
            let of_field = candidates(format, attribute);
            let cells = of_field
                .iter()
                .flat_map(|it| parser.cells_of(&it.name).into_iter().map(|cell| (cell, it.holds)));
            let cells = cells.collect();
            parser.planned.push((attribute.clone(), cells));
        }
        parser
    }

    /// The cells of a name: as it is, and with its dots as paths into objects.
    fn cells_of(&mut self, name: &str) -> Vec<usize> {
        let whole = self.root.cell([name].into_iter(), &mut self.cells);
        if !name.contains('.') {
            return vec![whole];
        }
        vec![self.root.cell(name.split('.'), &mut self.cells), whole]
    }

    pub(crate) fn parse(&self, line: &[u8], draft: &mut Draft) -> ParsedLine {
        let line = line.trim_ascii();
        let lossy;
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(_) => {
                lossy = String::from_utf8_lossy(line);
                &*lossy
            }
        };
        let mut found: Found<'_> = vec![None; self.cells];
        if walk(&self.root, text, &mut found).is_err() {
            return ParsedLine::Unreadable("the line is not an object of JSON");
        }
        let time = |cell: &usize| time_from_text(&text_of(found[*cell]?)?);
        let Some(time_ns) = self.times.iter().find_map(time) else {
            return ParsedLine::Unreadable("there is no field with a time; --time names it");
        };
        for (attribute, cells) in &self.planned {
            let value = cells.iter().find_map(|(cell, holds)| {
                let text = text_of(found[*cell]?)?;
                (!matches!(&*text, "" | "-")).then_some((*holds, text))
            });
            let value = value.as_ref().map(|(holds, text)| (*holds, &**text));
            push(attribute, self.encoded_slash, value, draft);
        }
        ParsedLine::Request(time_ns)
    }
}

impl Node {
    /// The cell of the value at a path.
    fn cell<'p>(&mut self, mut path: impl Iterator<Item = &'p str>, cells: &mut usize) -> usize {
        let Some(name) = path.next() else {
            return *self.cell.get_or_insert_with(|| {
                *cells += 1;
                *cells - 1
            });
        };
        let known = self.members.iter().position(|(known, _)| &**known == name);
        let index = known.unwrap_or_else(|| {
            self.members.push((name.into(), Self::default()));
            self.members.len() - 1
        });
        self.members[index].1.cell(path, cells)
    }
}

/// Notes the values of an object that a node reads.
fn walk<'a>(node: &Node, json: &'a str, found: &mut Found<'a>) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    deserializer.deserialize_map(Walker { node, found })?;
    deserializer.end()
}

struct Walker<'n, 'f, 'a> {
    node: &'n Node,
    found: &'f mut Found<'a>,
}

impl<'a> Visitor<'a> for Walker<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<(), M::Error> {
        while let Some(member) = members.next_key_seed(MemberOf(self.node))? {
            let Some(member) = member else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = members.next_value::<&'a RawValue>()?.get();
            if let Some(cell) = member.cell {
                self.found[cell].get_or_insert(value);
            }
            if !member.members.is_empty() && value.starts_with('{') {
                walk(member, value, self.found).map_err(M::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// The member of a node that a key names, if it has one.
struct MemberOf<'n>(&'n Node);

impl<'n, 'a> DeserializeSeed<'a> for MemberOf<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: serde::Deserializer<'a>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for MemberOf<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.members.iter().find(|(name, _)| &**name == key).map(|(_, node)| node))
    }
}

/// A value as text; `None` for null and objects. Of an array it is the first.
fn text_of(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    match json.as_bytes().first()? {
        b'"' => match serde_json::from_str::<&str>(json) {
            Ok(text) => Some(text.into()),
            Err(_) => serde_json::from_str::<String>(json).ok().map(Into::into),
        },
        b'[' => {
            let mut deserializer = serde_json::Deserializer::from_str(json);
            let first = deserializer.deserialize_seq(First).ok()??;
            (!first.starts_with('[')).then(|| text_of(first)).flatten()
        }
        b'n' | b'{' => None,
        _ => Some(json.into()),
    }
}

/// The first value of an array.
struct First;

impl<'a> Visitor<'a> for First {
    type Value = Option<&'a str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut values: S) -> Result<Self::Value, S::Error> {
        let first = values.next_element::<&'a RawValue>()?;
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first.map(RawValue::get))
    }
}

#[cfg(test)]
mod tests;
