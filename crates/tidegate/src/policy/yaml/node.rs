//! A YAML file as a tree whose nodes know where they stand.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// A piece of the file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Rc<NodeValue>,
    /// In bytes of the text.
    pub(super) span: Range<usize>,
    /// How deep it is nested, aliases included.
    depth: usize,
    /// How much it says, aliases included: nodes, and text by the [`TEXT_BYTES`].
    size: usize,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum NodeValue {
    /// Text as it stands there; whether it was quoted.
    Scalar(String, bool),
    List(Vec<Node>),
    /// Keys are scalars, and in the order of the file.
    Map(Vec<(Node, Node)>),
}

/// Why a file is not YAML, or not to be read.
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

    /// Whether there is nothing: `key:` or `key: null`.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&*self.value, NodeValue::Scalar(text, false) if matches!(&**text, "" | "~" | "null"))
    }

    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match &*self.value {
            NodeValue::Scalar(..) if self.is_nothing() => "nothing",
            NodeValue::Scalar(..) => "a text or number",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a mapping",
        }
    }
}

/// The documents of a file. Those with nothing in them are left out.
pub(super) fn read(text: &str) -> Result<Vec<Node>, YamlError> {
    let mut reader = YamlReader { places: ByteOffsets::of(text), ..YamlReader::default() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let at = reader.places.byte(error.marker().index());
            let message = format!("this is not YAML: {}", error.info());
            YamlError { span: at..at, message, hint: None }
        })?;
        reader.take(event, span)?;
    }
    reader.documents.retain(|document| !document.is_nothing());
    Ok(reader.documents)
}

#[derive(Default)]
struct YamlReader {
    places: ByteOffsets,
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
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let span = self.places.byte(span.start.index())..self.places.byte(span.end.index());
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
                // What a list or mapping is about stands where it begins.
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
                    return Err(bad("nothing has this anchor", "an anchor comes before its alias"));
                };
                let node = Node { span: span.clone(), ..known.clone() };
                // Whoever reads it reads all of it, once more.
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

    /// Counts what the file says, and everything that an alias stands for.
    fn count(&mut self, size: usize, span: &Range<usize>) -> Result<(), YamlError> {
        self.size = self.size.saturating_add(size);
        if self.size <= MOST_SIZE {
            return Ok(());
        }
        let message = "up to here the file says too many things, aliases counted each time";
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
    YamlError { span, message: "this is nested too deep".into(), hint }
}

/// A mapping of keys and values that follow each other. What `<<` names is part of it, except where a key
/// is there already.
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
            let message = format!("the key `{name}` is there twice");
            return Err(YamlError { span: key.span, message, hint: Some("leave one out".into()) });
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

/// Where characters are, in bytes; empty where each is a byte.
#[derive(Default)]
struct ByteOffsets(Vec<usize>);

impl ByteOffsets {
    fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self::default();
        }
        let ends = std::iter::once(text.len());
        Self(text.char_indices().map(|(at, _)| at).chain(ends).collect())
    }

    fn byte(&self, character: usize) -> usize {
        match &*self.0 {
            [] => character,
            places => places.get(character).or(places.last()).copied().unwrap_or(0),
        }
    }
}

/// More than any policy has; aliases cannot make more of it.
const MOST_SIZE: usize = 1_000_000;
/// As much text counts as one node more.
const TEXT_BYTES: usize = 64;
/// Deeper than any policy is nested: sixteen descriptors are 33 levels.
const MOST_DEPTH: usize = 64;
