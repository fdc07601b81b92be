//! A YAML file as a tree of nodes with their spans.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// A node of the file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Rc<NodeValue>,
    /// In bytes of the text, after the base.
    pub(super) span: Range<usize>,
    /// How deep it is nested, aliases included.
    depth: usize,
    /// Its size, aliases included: nodes, and one more for every [`TEXT_BYTES`] of text.
    size: usize,
}

/// The value of a node.
#[derive(Debug)]
pub(super) enum NodeValue {
    /// The text as written; whether it was quoted.
    Scalar(String, bool),
    List(Vec<Node>),
    /// Keys are scalars, and in the order of the file.
    Map(Vec<(Node, Node)>),
}

/// Why a file is not YAML, or is not read.
#[derive(Debug)]
pub(super) struct YamlError {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Node {
    /// The value of a key of a mapping.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let NodeValue::Map(entries) = &*self.value else { return None };
        let is_it = |(key, _): &&(Self, Self)| key.text() == Some(name);
        entries.iter().find(is_it).map(|(_, value)| value)
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &*self.value {
            NodeValue::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// Whether it is null: `key:` or `key: null`.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&*self.value, NodeValue::Scalar(text, false) if matches!(&**text, "" | "~" | "null"))
    }

    /// Its kind, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &*self.value {
            NodeValue::Scalar(..) if self.is_nothing() => "nothing",
            NodeValue::Scalar(..) => "a text or number",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a mapping",
        }
    }
}

/// The documents of a file. Empty ones are left out. `base` is added to all spans.
pub(super) fn read(text: &str, base: usize) -> Result<Vec<Node>, YamlError> {
    let mut reader = YamlReader { offsets: ByteOffsets::of(text, base), ..YamlReader::default() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let at = reader.offsets.byte(error.marker().index());
            let message = format!("not valid YAML: {}", error.info());
            YamlError { span: at..at, message, hint: None }
        })?;
        reader.read_event(event, span)?;
    }
    reader.documents.retain(|document| !document.is_nothing());
    Ok(reader.documents)
}

#[derive(Default)]
struct YamlReader {
    offsets: ByteOffsets,
    documents: Vec<Node>,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Node>,
    size: usize,
}

/// A list or mapping that has begun.
struct OpenNode {
    start: usize,
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
}

impl YamlReader {
    fn read_event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let span = self.offsets.byte(span.start.index())..self.offsets.byte(span.end.index());
        let bad = |message: &str, hint: &str| YamlError {
            span: span.clone(),
            message: message.into(),
            hint: Some(hint.into()),
        };
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let size = 1 + text.len() / TEXT_BYTES;
                let value = NodeValue::Scalar(text.into_owned(), style != ScalarStyle::Plain);
                self.count(size, &span)?;
                self.add(Node { value: Rc::new(value), span, depth: 1, size }, anchor);
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if self.open.len() >= MOST_DEPTH {
                    return Err(too_deep(span));
                }
                let is_map = matches!(event, Event::MappingStart(..));
                let (start, items) = (span.start, Vec::new());
                self.open.push(OpenNode { start, anchor, items, is_map });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenNode { start, anchor, items, is_map }) = self.open.pop() else {
                    return Ok(());
                };
                // The span of a list or mapping is its start.
                let span = start..start + 1;
                let depth = 1 + items.iter().map(|item| item.depth).max().unwrap_or(0);
                if depth > MOST_DEPTH {
                    return Err(too_deep(span));
                }
                self.count(1, &span)?;
                let size = 1 + items.iter().map(|item| item.size).sum::<usize>();
                let value = if is_map { mapping(items)? } else { NodeValue::List(items) };
                self.add(Node { value: Rc::new(value), span, depth, size }, anchor);
            }
            Event::Alias(anchor) => {
                let Some(known) = self.anchors.get(&anchor) else {
                    return Err(bad("unknown anchor", "an anchor comes before its alias"));
                };
                let node = Node { span: span.clone(), ..known.clone() };
                // An alias is read in full each time.
                self.count(node.size, &span)?;
                self.add(node, 0);
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Counts the size of the file, with every alias in full.
    fn count(&mut self, size: usize, span: &Range<usize>) -> Result<(), YamlError> {
        self.size = self.size.saturating_add(size);
        if self.size <= MOST_SIZE {
            return Ok(());
        }
        let message = "the file is too large up to here; each alias counts in full";
        let hint = Some("split it, or use fewer aliases".into());
        Err(YamlError { span: span.clone(), message: message.into(), hint })
    }

    fn add(&mut self, node: Node, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.documents.push(node),
        }
    }
}

fn too_deep(span: Range<usize>) -> YamlError {
    let hint = Some("no policy needs that".into());
    YamlError { span, message: "nested too deep".into(), hint }
}

/// A mapping of keys and values that follow each other. Mappings merged with `<<` are part of it,
/// except for keys that it already has.
fn mapping(items: Vec<Node>) -> Result<NodeValue, YamlError> {
    let mut entries: Vec<(Node, Node)> = Vec::with_capacity(items.len() / 2);
    let mut merged = Vec::new();
    let mut known = HashSet::new();
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        let Some(name) = key.text().map(str::to_owned) else {
            let message = format!("{} cannot be a key here", key.kind());
            return Err(YamlError { span: key.span, message, hint: None });
        };
        if !known.insert(name.clone()) {
            let message = format!("field `{name}` appears twice");
            return Err(YamlError { span: key.span, message, hint: Some("remove one".into()) });
        }
        if matches!(&*key.value, NodeValue::Scalar(text, false) if text == "<<") {
            merged.push(value);
        } else {
            entries.push((key, value));
        }
    }
    for value in &merged {
        let one = std::slice::from_ref(value);
        let mappings = if let NodeValue::List(items) = &*value.value { items } else { one };
        for mapping in mappings {
            let NodeValue::Map(more) = &*mapping.value else {
                let message = format!("`<<` merges mappings, not {}", mapping.kind());
                let hint = Some("write `<<: *anchor`".into());
                return Err(YamlError { span: mapping.span.clone(), message, hint });
            };
            let is_new =
                |(key, _): &&(Node, Node)| key.text().is_some_and(|it| known.insert(it.into()));
            entries.extend(more.iter().filter(is_new).cloned());
        }
    }
    Ok(NodeValue::Map(entries))
}

/// The byte offsets of characters, after a base; no list where each is a byte.
#[derive(Default)]
struct ByteOffsets {
    base: usize,
    offsets: Vec<usize>,
}

impl ByteOffsets {
    fn of(text: &str, base: usize) -> Self {
        let ends = std::iter::once(text.len());
        let offsets = match text.is_ascii() {
            true => Vec::new(),
            false => text.char_indices().map(|(at, _)| at).chain(ends).collect(),
        };
        Self { base, offsets }
    }

    fn byte(&self, character: usize) -> usize {
        let at = match &*self.offsets {
            [] => character,
            offsets => offsets.get(character).or(offsets.last()).copied().unwrap_or(0),
        };
        self.base + at
    }
}

/// More than any policy has; aliases cannot make more of it.
const MOST_SIZE: usize = 1_000_000;
/// This much text counts as one more node.
const TEXT_BYTES: usize = 64;
/// Deeper than any policy is nested: sixteen descriptors are 33 levels.
const MOST_DEPTH: usize = 64;
