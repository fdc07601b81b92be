//! JSON objects that are nothing else.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A value that is written as a JSON object.
///
/// A derived `Deserialize` of a struct accepts an array of its fields, too. A client that sends one
/// has made a mistake, which should not be a request by accident: values of this type are
/// objects, or an error.
///
/// ```
/// use serde::Deserialize;
/// use tidegate_proto::json::Object;
///
/// #[derive(Deserialize)]
/// struct Draft {
///     tier: u64,
/// }
///
/// let Object(draft) = serde_json::from_str::<Object<Draft>>(r#"{"tier":4}"#)?;
/// assert_eq!(draft.tier, 4);
/// assert!(serde_json::from_str::<Draft>("[4]").is_ok());
/// assert!(serde_json::from_str::<Object<Draft>>("[4]").is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests;
