//! The visitors that decode request bodies, with the path of each value.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::problem::escaped;
use super::{BodyAttributes, BodyField, CHECK, RequestBody};

/// The path of a value in a document.
#[derive(Debug)]
pub(super) enum JsonPath<'p> {
    Root,
    Name { within: &'p JsonPath<'p>, name: &'p str },
    Index { within: &'p JsonPath<'p>, index: usize },
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Name { within, name } => write!(f, "{within}/{}", escaped(name)),
            Self::Index { within, index } => write!(f, "{within}/{index}"),
        }
    }
}

/// The path of the first error.
#[derive(Debug, Default)]
pub(super) struct ErrorLocation(RefCell<Option<String>>);

impl ErrorLocation {
    fn note(&self, path: &JsonPath<'_>) {
        self.0.borrow_mut().get_or_insert_with(|| path.to_string());
    }

    fn at<E: Error>(&self, path: &JsonPath<'_>, what: impl fmt::Display) -> E {
        self.note(path);
        E::custom(what)
    }

    pub(super) fn pointer(&self) -> Option<String> {
        self.0.take()
    }
}

/// A seed with the path of its value.
pub(super) struct LocatedSeed<'c, V> {
    seed: V,
    path: &'c JsonPath<'c>,
    errors: &'c ErrorLocation,
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for LocatedSeed<'_, V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        // Paths are noted from the innermost value outwards, and the first one noted stays.
        let Self { seed, path, errors } = self;
        deserializer.deserialize_any(seed).inspect_err(|_| errors.note(path))
    }
}

/// An object that may have these fields.
#[derive(Clone, Copy)]
pub(super) struct ObjectForm<'c> {
    pub(super) fields: &'static [BodyField],
    pub(super) path: &'c JsonPath<'c>,
    pub(super) errors: &'c ErrorLocation,
    pub(super) most_requests: usize,
}

/// Decodes an object in place: returned through the decoder, it would be copied several times.
pub(super) struct ObjectSeed<'c, 'o, 'de> {
    form: ObjectForm<'c>,
    object: &'o mut RequestBody<'de>,
}

impl<'c> ObjectForm<'c> {
    pub(super) fn seed<'o, 'de>(
        self,
        object: &'o mut RequestBody<'de>,
    ) -> LocatedSeed<'c, ObjectSeed<'c, 'o, 'de>> {
        let seed = ObjectSeed { form: self, object };
        LocatedSeed { seed, path: self.path, errors: self.errors }
    }

    fn field<E: Error>(&self, path: &JsonPath<'_>, name: &str) -> Result<BodyField, E> {
        self.fields.iter().copied().find(|field| field.name() == name).ok_or_else(|| {
            let known: Vec<_> =
                self.fields.iter().map(|field| format!("`{}`", field.name())).collect();
            let hint = match &known[..] {
                [] => "no fields are allowed here".into(),
                known => format!("known fields: {}", known.join(", ")),
            };
            self.errors.at(path, format_args!("unknown field `{name}`; {hint}"))
        })
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { form, object } = self;
        let errors = form.errors;
        let mut seen = 0_u32;
        while let Some(name) = map.next_key_seed(TextSeed)? {
            let path = &JsonPath::Name { within: form.path, name: &name };
            let field = form.field(path, &name)?;
            let bit = 1 << field as u32;
            if seen & bit != 0 {
                return Err(errors.at(path, format_args!("field `{name}` appears twice")));
            }
            seen |= bit;
            match field {
                BodyField::Domain => {
                    object.domain =
                        Some(map.next_value_seed(LocatedSeed { seed: TextSeed, path, errors })?);
                }
                BodyField::Reservation => {
                    object.reservation =
                        Some(map.next_value_seed(LocatedSeed { seed: TextSeed, path, errors })?);
                }
                BodyField::Peek => {
                    object.peek =
                        map.next_value_seed(LocatedSeed { seed: FlagSeed, path, errors })?;
                }
                BodyField::Cost | BodyField::WaitMs | BodyField::Amount | BodyField::Actual => {
                    let count =
                        map.next_value_seed(LocatedSeed { seed: CountSeed, path, errors })?;
                    *object.count_mut(field) = Some(count);
                }
                BodyField::Attributes => {
                    let seed = AttributesSeed { path, errors, attributes: &mut object.attributes };
                    map.next_value_seed(LocatedSeed { seed, path, errors })?;
                }
                BodyField::Requests => {
                    let seed = RequestsSeed { form: ObjectForm { path, ..form } };
                    object.requests =
                        Some(map.next_value_seed(LocatedSeed { seed, path, errors })?);
                }
            }
        }
        Ok(())
    }
}

impl RequestBody<'_> {
    fn count_mut(&mut self, field: BodyField) -> &mut Option<u64> {
        match field {
            BodyField::WaitMs => &mut self.wait_ms,
            BodyField::Amount => &mut self.amount,
            BodyField::Actual => &mut self.actual,
            _ => &mut self.cost,
        }
    }
}

/// Decodes a string.
struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Decodes true or false.
struct FlagSeed;

impl Visitor<'_> for FlagSeed {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<bool, E> {
        Ok(flag)
    }
}

/// Decodes a number of units or milliseconds.
struct CountSeed;

impl Visitor<'_> for CountSeed {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<u64, E> {
        Ok(count)
    }
}

/// Decodes the value of an attribute.
struct AttributeValueSeed;

impl<'de> Visitor<'de> for AttributeValueSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a whole number of at most 64 bits")
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

/// Decodes attributes, names and values, in place.
struct AttributesSeed<'c, 'o, 'de> {
    path: &'c JsonPath<'c>,
    errors: &'c ErrorLocation,
    attributes: &'o mut BodyAttributes<'de>,
}

impl<'de> Visitor<'de> for AttributesSeed<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { errors, attributes, .. } = self;
        while let Some(name) = map.next_key_seed(TextSeed)? {
            let path = &JsonPath::Name { within: self.path, name: &name };
            if attributes.iter().any(|(known, _)| *known == name) {
                return Err(errors.at(path, "the attribute appears twice"));
            }
            if attributes.len() == MOST_ATTRIBUTES {
                let what = format_args!("more than {MOST_ATTRIBUTES} attributes");
                return Err(errors.at(self.path, what));
            }
            let value =
                map.next_value_seed(LocatedSeed { seed: AttributeValueSeed, path, errors })?;
            attributes.push((name, value));
        }
        Ok(())
    }
}

/// Decodes the requests of a batch.
struct RequestsSeed<'c> {
    /// The form of the object that contains them.
    form: ObjectForm<'c>,
}

impl<'de> Visitor<'de> for RequestsSeed<'_> {
    type Value = Vec<RequestBody<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let ObjectForm { path: within, errors, most_requests, .. } = self.form;
        let mut requests = Vec::new();
        loop {
            let path = &JsonPath::Index { within, index: requests.len() };
            let form = ObjectForm { fields: CHECK, path, ..self.form };
            let mut request = RequestBody::default();
            let Some(()) = list.next_element_seed(form.seed(&mut request))? else {
                return Ok(requests);
            };
            if requests.len() == most_requests {
                let what = format_args!("more than {most_requests} requests in a batch");
                return Err(errors.at(within, what));
            }
            requests.push(request);
        }
    }
}

/// The most attributes of a request.
pub(super) const MOST_ATTRIBUTES: usize = 64;
