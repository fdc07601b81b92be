use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The protocol version of this module.
pub const PROTOCOL_VERSION: i64 = 1;

/// The fields that every request has: its type and its protocol version.
///
/// Other fields belong to the type of request; its handler [parses](super::parse) the same text
/// again for them. Nothing in a request identifies its sender: a field that claims to is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The type, such as `ping`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The protocol version; older clients send 0, null or nothing.
    #[serde(rename = "protocolVersion", default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<i64>,
}

impl Request {
    /// A request of this type, in the current protocol version.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.into(), protocol_version: Some(PROTOCOL_VERSION) }
    }

    /// Whether the request's version is supported: the current one, or none.
    #[must_use]
    pub fn is_of_known_version(&self) -> bool {
        matches!(self.protocol_version, None | Some(0 | PROTOCOL_VERSION))
    }
}

/// The response to a request: a result or a failure.
///
/// On the wire it is one object with `ok`, the fields of the result, and `protocolVersion`.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response<T = Pong> {
    /// The request succeeded.
    Ok(T),
    /// The request failed.
    Error(Failure),
}

/// The response to a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    /// The version of the service.
    pub service_version: String,
    /// The time of day in ISO 8601.
    pub time: String,
}

/// Why a request failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The reason, as text for people.
    pub error: String,
    /// Milliseconds after which a retry makes sense; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The name of the limit that denied the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

impl Failure {
    /// A failure with this reason and no other fields.
    #[must_use]
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), ..Self::default() }
    }
}

/// The encoded form of a response.
#[derive(Serialize)]
struct Wire<'a, T> {
    ok: bool,
    #[serde(flatten)]
    body: &'a T,
    #[serde(rename = "protocolVersion")]
    protocol_version: i64,
}

impl<T: Serialize> Serialize for Response<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let protocol_version = PROTOCOL_VERSION;
        match self {
            Self::Ok(body) => Wire { ok: true, body, protocol_version }.serialize(serializer),
            Self::Error(body) => Wire { ok: false, body, protocol_version }.serialize(serializer),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Response<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = serde_json::Map::deserialize(deserializer)?;
        let ok = fields.get("ok").and_then(serde_json::Value::as_bool);
        match ok.ok_or_else(|| D::Error::custom("`ok` is missing or not a boolean"))? {
            true => serde_json::from_value(fields.into()).map(Self::Ok),
            false => serde_json::from_value(fields.into()).map(Self::Error),
        }
        .map_err(D::Error::custom)
    }
}
