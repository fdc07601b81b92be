use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of the protocol that this module speaks.
pub const PROTOCOL_VERSION: i64 = 1;

/// What every request says: what it wants, in which version of the protocol.
///
/// Other fields belong to the type of request; who serves it [parses](super::parse) the same text
/// again for them. Nothing in a request says who sent it: a field that claims to is a field like any
/// other, and nobody reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What is wanted, such as `ping`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of the protocol; callers from before versions send 0, nothing or null.
    #[serde(rename = "protocolVersion", default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<i64>,
}

impl Request {
    /// A request of this type, in the version that this module speaks.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.into(), protocol_version: Some(PROTOCOL_VERSION) }
    }

    /// Whether the request is in a version that can be answered: this one, or from before versions.
    #[must_use]
    pub fn is_of_known_version(&self) -> bool {
        matches!(self.protocol_version, None | Some(0 | PROTOCOL_VERSION))
    }
}

/// The answer to a request: what was wanted, or why not.
///
/// On the wire it is one object with `ok`, the fields of the answer, and `protocolVersion`.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response<T = Pong> {
    /// What was wanted.
    Ok(T),
    /// It was not done.
    Error(Failure),
}

/// The answer to a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    /// The version of the service.
    pub service_version: String,
    /// The time of day, as in ISO 8601.
    pub time: String,
}

/// Why a request was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The reason, for people.
    pub error: String,
    /// After how many milliseconds it is worth trying again; absent where nobody can know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The name of the limit that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

impl Failure {
    /// A failure for this reason, and no more to say.
    #[must_use]
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), ..Self::default() }
    }
}

/// A response as it is on the wire.
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
        match ok.ok_or_else(|| D::Error::custom("`ok` is not there, or neither true nor false"))? {
            true => serde_json::from_value(fields.into()).map(Self::Ok),
            false => serde_json::from_value(fields.into()).map(Self::Error),
        }
        .map_err(D::Error::custom)
    }
}
