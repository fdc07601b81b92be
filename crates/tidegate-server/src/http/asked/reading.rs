//! The reading itself: one visitor for each kind of value, and where in the document it is.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::problem::escaped;
use super::{Asked, CHECK, Field};

/// Where in a document a value is.
#[derive(Debug)]
pub(super) enum Place<'p> {
    Root,
    Name { within: &'p Place<'p>, name: &'p str },
    Index { within: &'p Place<'p>, index: usize },
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Name { within, name } => write!(f, "{within}/{}", escaped(name)),
            Self::Index { within, index } => write!(f, "{within}/{index}"),
        }
    }
}

/// Remembers where the first thing was that went wrong.
#[derive(Debug, Default)]
pub(super) struct Faults(RefCell<Option<String>>);

impl Faults {
    fn note(&self, place: &Place<'_>) {
        self.0.borrow_mut().get_or_insert_with(|| place.to_string());
    }

    fn at<E: Error>(&self, place: &Place<'_>, what: impl fmt::Display) -> E {
        self.note(place);
        E::custom(what)
    }

    pub(super) fn pointer(&self) -> Option<String> {
        self.0.take()
    }
}

/// A value that is wanted at a place.
pub(super) struct At<'c, V> {
    wanted: V,
    place: &'c Place<'c>,
    faults: &'c Faults,
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for At<'_, V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        // What is noted is looked at only if there was an error, and then the innermost counts.
        let Self { wanted, place, faults } = self;
        deserializer.deserialize_any(wanted).inspect_err(|_| faults.note(place))
    }
}

/// An object with these fields.
#[derive(Clone, Copy)]
pub(super) struct ObjectWanted<'c> {
    pub(super) fields: &'static [Field],
    pub(super) place: &'c Place<'c>,
    pub(super) faults: &'c Faults,
    pub(super) most_requests: usize,
}

impl<'c> ObjectWanted<'c> {
    pub(super) fn into_seed(self) -> At<'c, Self> {
        At { wanted: self, place: self.place, faults: self.faults }
    }

    fn field<E: Error>(&self, place: &Place<'_>, name: &str) -> Result<Field, E> {
        self.fields.iter().copied().find(|field| field.name() == name).ok_or_else(|| {
            let known: Vec<_> =
                self.fields.iter().map(|field| format!("`{}`", field.name())).collect();
            let hint = match &known[..] {
                [] => "there are none here".into(),
                known => format!("there are {}", known.join(", ")),
            };
            self.faults.at(place, format_args!("unknown field `{name}`; {hint}"))
        })
    }
}

impl<'de> Visitor<'de> for ObjectWanted<'_> {
    type Value = Asked<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Asked<'de>, A::Error> {
        let faults = self.faults;
        let mut asked = Asked::default();
        let mut seen = 0_u32;
        while let Some(name) = map.next_key_seed(TextWanted)? {
            let place = &Place::Name { within: self.place, name: &name };
            let field = self.field(place, &name)?;
            let bit = 1 << field as u32;
            if seen & bit != 0 {
                return Err(faults.at(place, format_args!("field `{name}` is there twice")));
            }
            seen |= bit;
            match field {
                Field::Domain => {
                    asked.domain =
                        Some(map.next_value_seed(At { wanted: TextWanted, place, faults })?);
                }
                Field::Reservation => {
                    asked.reservation =
                        Some(map.next_value_seed(At { wanted: TextWanted, place, faults })?);
                }
                Field::Peek => {
                    asked.peek = map.next_value_seed(At { wanted: FlagWanted, place, faults })?;
                }
                Field::Cost | Field::WaitMs | Field::Amount | Field::Actual => {
                    let count = map.next_value_seed(At { wanted: CountWanted, place, faults })?;
                    *asked.count_mut(field) = Some(count);
                }
                Field::Attributes => {
                    let wanted = AttributesWanted { place, faults };
                    asked.attributes = map.next_value_seed(At { wanted, place, faults })?;
                }
                Field::Requests => {
                    let object = ObjectWanted { place, ..self };
                    let wanted = RequestsWanted { object };
                    asked.requests = Some(map.next_value_seed(At { wanted, place, faults })?);
                }
            }
        }
        Ok(asked)
    }
}

impl Asked<'_> {
    fn count_mut(&mut self, field: Field) -> &mut Option<u64> {
        match field {
            Field::WaitMs => &mut self.wait_ms,
            Field::Amount => &mut self.amount,
            Field::Actual => &mut self.actual,
            _ => &mut self.cost,
        }
    }
}

/// A text.
struct TextWanted;

impl<'de> DeserializeSeed<'de> for TextWanted {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextWanted {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// True or false.
struct FlagWanted;

impl Visitor<'_> for FlagWanted {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<bool, E> {
        Ok(flag)
    }
}

/// A number of units or milliseconds.
struct CountWanted;

impl Visitor<'_> for CountWanted {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<u64, E> {
        Ok(count)
    }
}

/// The value of an attribute.
struct ValueWanted;

impl<'de> Visitor<'de> for ValueWanted {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a whole number of at most 64 bits")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }
}

/// Names and values.
struct AttributesWanted<'c> {
    place: &'c Place<'c>,
    faults: &'c Faults,
}

impl<'de> Visitor<'de> for AttributesWanted<'_> {
    type Value = smallvec::SmallVec<[(Cow<'de, str>, Cow<'de, str>); 4]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let faults = self.faults;
        let mut attributes = Self::Value::new();
        while let Some(name) = map.next_key_seed(TextWanted)? {
            let place = &Place::Name { within: self.place, name: &name };
            if attributes.iter().any(|(known, _)| *known == name) {
                return Err(faults.at(place, "this attribute is there twice"));
            }
            if attributes.len() == MOST_ATTRIBUTES {
                let what = format_args!("more than {MOST_ATTRIBUTES} attributes");
                return Err(faults.at(self.place, what));
            }
            let value = map.next_value_seed(At { wanted: ValueWanted, place, faults })?;
            attributes.push((name, value));
        }
        Ok(attributes)
    }
}

/// The requests of a batch.
struct RequestsWanted<'c> {
    /// What they are within.
    object: ObjectWanted<'c>,
}

impl<'de> Visitor<'de> for RequestsWanted<'_> {
    type Value = Vec<Asked<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let ObjectWanted { place: within, faults, most_requests, .. } = self.object;
        let mut requests = Vec::new();
        loop {
            let place = &Place::Index { within, index: requests.len() };
            let wanted = ObjectWanted { fields: CHECK, place, ..self.object };
            let Some(request) = list.next_element_seed(wanted.into_seed())? else {
                return Ok(requests);
            };
            if requests.len() == most_requests {
                let what = format_args!("more than {most_requests} requests in a batch");
                return Err(faults.at(within, what));
            }
            requests.push(request);
        }
    }
}

/// More than this is no description of a request any more.
pub(super) const MOST_ATTRIBUTES: usize = 64;
