//! Protobuf's JSON: field names in lowerCamelCase or snake_case, large numbers as strings; unknown
//! fields are errors.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit};
use super::value::Kind;
use super::{
    HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit, Struct,
    Value,
};
use crate::json::Object;

/// Why a JSON text is not a request: the problem and its position.
pub struct JsonError(serde_json::Error);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid RateLimitRequest: {}", self.0)
    }
}

tidegate_core::debug_as_displayed!(JsonError);

impl std::error::Error for JsonError {}

/// Parses a request from JSON.
pub fn request_from_json(json: &[u8]) -> Result<RateLimitRequest, JsonError> {
    let Object::<Request>(read) = serde_json::from_slice(json).map_err(JsonError)?;
    Ok(RateLimitRequest {
        domain: read.domain.unwrap_or_default().into_bytes(),
        descriptors: list(read.descriptors).map(|Object(read)| read.into()).collect(),
        hits_addend: read.hits_addend.map_or(0, |Narrow(number)| number),
    })
}

/// The number of objects in a JSON text, before anything of it is decoded: as many descriptors and
/// entries does a request have at most.
///
/// ```
/// use tidegate_proto::rls;
///
/// let call = br#"{"domain": "{", "descriptors": [{"entries": [{"key": "\"{"}]}]}"#;
/// assert_eq!(rls::count_json_objects(call), 3);
/// ```
#[must_use]
pub fn count_json_objects(json: &[u8]) -> usize {
    let (mut count, mut is_in_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_text => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            b'{' if !is_in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Encodes a response as JSON.
#[must_use]
pub fn response_to_json(response: &RateLimitResponse) -> String {
    let written = Response {
        overall_code: response.overall_code().as_str_name(),
        statuses: response.statuses.iter().map(Status::new).collect(),
        response_headers_to_add: response.response_headers_to_add.iter().map(Header::new).collect(),
        dynamic_metadata: response.dynamic_metadata.as_ref().map(structure),
    };
    // Strings, numbers and lists only: serialization cannot fail.
    serde_json::to_string(&written).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    domain: Option<String>,
    descriptors: Option<Vec<Object<Descriptor>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Narrow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    entries: Option<Vec<Object<EntryOf>>>,
    limit: Option<Object<Override>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Wide>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryOf {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Override {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Narrow>,
    unit: Option<UnitOf>,
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(read: Descriptor) -> Self {
        let entry = |Object(EntryOf { key, value })| Entry {
            key: key.unwrap_or_default().into_bytes(),
            value: value.unwrap_or_default().into_bytes(),
        };
        Self {
            entries: list(read.entries).map(entry).collect(),
            limit: read.limit.map(|Object(limit)| RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(0, |Narrow(number)| number),
                unit: limit.unit.map_or(0, |UnitOf(number)| number),
            }),
            hits_addend: read.hits_addend.map(|Wide(number)| number),
            is_negative_hits: read.is_negative_hits.unwrap_or_default(),
        }
    }
}

fn list<T>(list: Option<Vec<T>>) -> impl Iterator<Item = T> {
    list.into_iter().flatten()
}

/// A number, or its digits in a string; a whole number may be written as `1.0` or `1e3`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Digits {
    Number(u64),
    Decimal(f64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(try_from = "Digits")]
struct Wide(u64);

#[derive(Deserialize)]
#[serde(try_from = "Digits")]
struct Narrow(u32);

impl TryFrom<Digits> for Wide {
    type Error = &'static str;

    fn try_from(digits: Digits) -> Result<Self, Self::Error> {
        match digits {
            Digits::Number(number) => Ok(Self(number)),
            Digits::Decimal(number) => whole(number).map(Self),
            Digits::Text(text) => match text.parse() {
                Ok(number) => Ok(Self(number)),
                Err(_) => text.parse().map_err(|_| NOT_WHOLE).and_then(whole).map(Self),
            },
        }
    }
}

impl TryFrom<Digits> for Narrow {
    type Error = &'static str;

    fn try_from(digits: Digits) -> Result<Self, Self::Error> {
        let Wide(number) = digits.try_into()?;
        u32::try_from(number).map(Self).map_err(|_| "the number exceeds 32 bits")
    }
}

/// A whole number in decimal notation, up to 2^53: above that not every number is exact.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and fits")]
fn whole(number: f64) -> Result<u64, &'static str> {
    let fits = number.fract() == 0.0 && (0.0..=MOST_WHOLE).contains(&number);
    if fits { Ok(number as u64) } else { Err(NOT_WHOLE) }
}

const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;
const NOT_WHOLE: &str = "not a whole number";

/// The name or the number of a unit.
#[derive(Deserialize)]
#[serde(try_from = "UnitText")]
struct UnitOf(i32);

#[derive(Deserialize)]
#[serde(untagged)]
enum UnitText {
    Number(i32),
    Name(String),
}

impl TryFrom<UnitText> for UnitOf {
    type Error = &'static str;

    fn try_from(unit: UnitText) -> Result<Self, Self::Error> {
        match unit {
            UnitText::Number(number) => Ok(Self(number)),
            UnitText::Name(name) => {
                let unit = RateLimitUnit::from_str_name(&name);
                unit.map(|unit| Self(unit.into())).ok_or("unknown unit")
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    overall_code: &'static str,
    statuses: Vec<Status<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Header<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<serde_json::Value>,
}

fn structure(structure: &Struct) -> serde_json::Value {
    structure.fields.iter().map(|(name, it)| (name.clone(), value(it))).collect()
}

fn value(it: &Value) -> serde_json::Value {
    match &it.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        // Without a point, as protobuf's JSON has whole numbers.
        Some(Kind::NumberValue(number)) => match whole(*number) {
            Ok(number) => number.into(),
            Err(_) => (*number).into(),
        },
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(is_true)) => (*is_true).into(),
        Some(Kind::StructValue(fields)) => structure(fields),
        Some(Kind::ListValue(list)) => list.values.iter().map(value).collect(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<Limit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
}

#[derive(Serialize)]
struct Header<'a> {
    key: &'a str,
    value: &'a str,
}

impl<'a> Status<'a> {
    fn new(status: &'a DescriptorStatus) -> Self {
        let code = Code::try_from(status.code).unwrap_or(Code::Unknown);
        Self {
            code: code.as_str_name(),
            current_limit: status.current_limit.as_ref().map(|limit| Limit {
                name: &limit.name,
                requests_per_unit: limit.requests_per_unit,
                unit: Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).as_str_name(),
            }),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.map(|it| format!("{}s", it.seconds)),
        }
    }
}

impl<'a> Header<'a> {
    fn new(header: &'a HeaderValue) -> Self {
        Self { key: &header.key, value: &header.value }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
