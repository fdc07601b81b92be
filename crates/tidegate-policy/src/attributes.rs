use std::fmt::Write;

/// The attributes of a request: names and values, in an order.
///
/// A rule names an attribute, or the one at a position, as `2.path`. [`COUNT`](Self::COUNT) and
/// [`NUMBER`](Self::NUMBER) are names, too. None of these is ever the name that a client gave: an attribute that is
/// called `1.user` has a position like any other, and is found by that alone.
///
/// ```
/// use tidegate::policy::Attributes;
///
/// let attributes = Attributes::new(&[("plan", "free"), ("path", "/search"), ("1.path", "/")]);
/// assert_eq!(attributes.get("path"), Some("/search"));
/// assert_eq!(attributes.get("2.path"), Some("/search"));
/// assert_eq!(attributes.get("1.path"), None);
/// assert_eq!(attributes.get(Attributes::COUNT), Some("3"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    list: &'a [(&'a str, &'a str)],
    /// How many at the beginning have no position.
    unordered: usize,
    number: usize,
}

/// How a rule names an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributeName<'n> {
    Name(&'n str),
    /// The attribute at this index, if it has this name.
    Position(usize, &'n str),
    Count,
    Number,
}

impl<'a> Attributes<'a> {
    /// The name of the number of attributes that have a position.
    pub const COUNT: &'static str = "entries of the descriptor";

    /// The name of the number of a request among those of one call, from 1; the first one has none.
    pub const NUMBER: &'static str = "number of the descriptor";

    /// These names and values.
    #[inline]
    #[must_use]
    pub const fn new(list: &'a [(&'a str, &'a str)]) -> Self {
        Self { list, unordered: 0, number: 0 }
    }

    /// The same, of which so many at the beginning have no position: rules that name an attribute find
    /// these first.
    #[must_use]
    pub const fn with_unordered(self, unordered: usize) -> Self {
        Self { unordered, ..self }
    }

    /// The same, of a request with this index among those of one call.
    #[must_use]
    pub const fn with_number(self, number: usize) -> Self {
        Self { number, ..self }
    }

    /// All of them, as they were given, with those that have no position.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> &'a [(&'a str, &'a str)] {
        self.list
    }

    /// The value that a rule finds by a name; of a repeated name, the first.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        match AttributeName::of(name) {
            AttributeName::Name(name) => {
                self.list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
            }
            AttributeName::Position(index, name) => {
                let at = self.ordered().get(index).filter(|(known, _)| *known == name);
                at.map(|(_, value)| *value)
            }
            AttributeName::Count => Some(small(self.ordered().len())),
            AttributeName::Number => (self.number > 0).then(|| small(self.number)),
        }
    }

    /// Those that have a position, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.ordered().iter().copied()
    }

    #[inline]
    pub(crate) fn ordered(&self) -> &'a [(&'a str, &'a str)] {
        self.list.get(self.unordered..).unwrap_or_default()
    }

    /// Calls a function with every name that [`get`](Self::get) knows, and its value.
    pub(crate) fn each(&self, mut then: impl FnMut(&str, &'a str)) {
        for (at, (name, value)) in self.list.iter().enumerate() {
            let is_first = self.list[..at].iter().all(|(earlier, _)| earlier != name);
            if is_first && Self::is_name(name) {
                then(name, value);
            }
        }
        let mut by_position = String::new();
        for (position, (name, value)) in (1..).zip(self.ordered()) {
            by_position.clear();
            // Writing to a string does not fail.
            let _ = write!(by_position, "{position}.{name}");
            then(&by_position, value);
        }
        for name in [Self::COUNT, Self::NUMBER] {
            if let Some(value) = self.get(name) {
                then(name, value);
            }
        }
    }

    /// How many at the beginning have no position.
    #[doc(hidden)]
    #[must_use]
    pub const fn unordered(&self) -> usize {
        self.unordered
    }

    /// The index among the requests of one call.
    #[doc(hidden)]
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Whether rules mean an attribute by this name, and not a position or a number.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        matches!(AttributeName::of(name), AttributeName::Name(_))
    }
}

/// The attributes of a request of which the names are known by which rules find them, as those of a key are.
///
/// ```
/// use tidegate::policy::NamedAttributes;
///
/// let named = NamedAttributes::new([("2.user", "ada"), ("1.plan", "free")]);
/// let attributes = named.attributes();
/// assert_eq!(attributes.get("2.user"), Some("ada"));
/// assert_eq!(attributes.iter().next(), Some(("plan", "free")));
/// ```
#[derive(Clone, Debug, Default)]
pub struct NamedAttributes<'a> {
    list: Vec<(&'a str, &'a str)>,
    unordered: usize,
    number: usize,
}

impl<'a> NamedAttributes<'a> {
    /// The attributes with these names and values. If no name has a position, their order is the given one.
    pub fn new(named: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut list, mut ordered, mut number) = (Vec::new(), Vec::new(), 0);
        let reach = |count: usize, ordered: &mut Vec<_>| {
            ordered.resize(count.clamp(ordered.len(), MOST_POSITIONS), ("", ""));
        };
        for (name, value) in named {
            match AttributeName::of(name) {
                AttributeName::Position(index, key) if index < MOST_POSITIONS => {
                    reach(index + 1, &mut ordered);
                    ordered[index] = (key, value);
                }
                AttributeName::Count => reach(value.parse().unwrap_or(0), &mut ordered),
                AttributeName::Number => number = value.parse().unwrap_or(1),
                _ => list.push((name, value)),
            }
        }
        let unordered = if ordered.is_empty() { 0 } else { list.len() };
        list.append(&mut ordered);
        Self { list, unordered, number }
    }

    /// Attributes of which no name has a meaning: they have the positions of their order.
    pub fn as_given(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { list: list.into_iter().collect(), unordered: 0, number: 0 }
    }

    /// The attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(&self.list).with_unordered(self.unordered).with_number(self.number)
    }
}

impl<'n> AttributeName<'n> {
    #[inline]
    pub(crate) fn of(name: &'n str) -> Self {
        match name.as_bytes().first() {
            Some(b'1'..=b'9') => Self::by_position(name),
            Some(b'e') if name == Attributes::COUNT => Self::Count,
            Some(b'n') if name == Attributes::NUMBER => Self::Number,
            _ => Self::Name(name),
        }
    }

    fn by_position(text: &'n str) -> Self {
        let of_text = || {
            let (position, name) = text.split_once('.')?;
            let is_number = position.bytes().all(|it| it.is_ascii_digit());
            let position: usize = is_number.then_some(position)?.parse().unwrap_or(usize::MAX);
            Some(Self::Position(position - 1, name))
        };
        of_text().unwrap_or(Self::Name(text))
    }
}

/// A number as text; all numbers above the largest that rules distinguish are the same.
pub(crate) fn small(number: usize) -> &'static str {
    NUMBERS.get(number).unwrap_or(&"more")
}

/// The most attributes that rules distinguish by their number.
pub(crate) const MOST_COUNTED: usize = 16;

const NUMBERS: [&str; MOST_COUNTED + 1] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];

/// Names with later positions are found nowhere in [`NamedAttributes`]: its list has all positions before.
const MOST_POSITIONS: usize = 1_000;

#[cfg(test)]
mod tests;
