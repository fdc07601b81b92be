//! Single commands on the servers that have their keys, beside the batches.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tidegate_engine::shared::RecordKey;

use crate::commands::{ReadFailure, found, refusal};
use crate::frame::{Cell, Head};
use crate::intent::{Found, Intent};
use crate::link::Link;
use crate::slots;

/// The connections of a moment, by key.
#[derive(Clone)]
pub(crate) struct Servers {
    pub(crate) connections: Vec<Option<MultiplexedConnection>>,
    /// For each slot the number of its connection; `None` if the first one serves all keys.
    pub(crate) owners: Option<Arc<[Option<u16>]>>,
    pub(crate) prefix: Arc<str>,
    pub(crate) commit_sha: Arc<str>,
    /// Values that expire do so no earlier than this, in milliseconds since 1970.
    pub(crate) at_least_ms: u64,
}

/// Why a command was not done, or why it is not known whether it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandFailure(pub(crate) String);

/// What became of a value that was to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The new one is there, as it was sent.
    Yes,
    /// One with the same mark and stamp was there before: another process was faster. Of a record it
    /// may have another expiry.
    Before,
    /// Another one was there.
    No(Found),
}

impl Replaced {
    /// Whether the new value is there, by whichever process.
    pub(crate) const fn is_there(&self) -> bool {
        matches!(self, Self::Yes | Self::Before)
    }
}

impl Servers {
    /// The value of a key.
    pub(crate) async fn get(&self, key: &RecordKey) -> Result<Found, CommandFailure> {
        let mut command = redis::cmd("GET");
        command.arg(self.name(key));
        self.read(key, &self.query(key, &command).await?)
    }

    /// Replaces a value, if it is still there, by a record.
    pub(crate) async fn put_cell(
        &self,
        key: &RecordKey,
        expected: &Found,
        cell: &Cell,
    ) -> Result<Replaced, CommandFailure> {
        let new = (cell.head(), cell.value(), cell.expires_ms);
        self.replace(key, expected.head(), new).await
    }

    /// Replaces an intent, if it is still there, by the same one in another phase.
    pub(crate) async fn put_intent(
        &self,
        key: &RecordKey,
        expected: &Intent,
        intent: &Intent,
    ) -> Result<Replaced, CommandFailure> {
        let new = (intent.head(), intent.value(), intent.expires_ms);
        self.replace(key, expected.head(), new).await
    }

    async fn replace(
        &self,
        key: &RecordKey,
        expected: Head,
        (head, value, expires_ms): (Head, Vec<u8>, u64),
    ) -> Result<Replaced, CommandFailure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.commit_sha).arg(1).arg(self.name(key)).arg(1).arg(&head[..]);
        command.arg(&expected[..]).arg(value);
        match expires_ms {
            0 => command.arg(""),
            at_ms => command.arg(at_ms),
        };
        let response = self.query(key, &command).await?;
        let Value::Array(groups) = &response else {
            return Err(CommandFailure(format!("the script responds with {response:?}")));
        };
        match groups.first() {
            Some(Value::Int(1)) => Ok(Replaced::Yes),
            Some(Value::Int(_)) => Ok(Replaced::Before),
            Some(Value::Array(values)) => {
                self.read(key, values.first().unwrap_or(&Value::Nil)).map(Replaced::No)
            }
            other => Err(CommandFailure(format!("the script responds with {other:?}"))),
        }
    }

    fn name(&self, key: &RecordKey) -> String {
        format!("{}{key}", self.prefix)
    }

    fn read(&self, key: &RecordKey, value: &Value) -> Result<Found, CommandFailure> {
        found(value).map_err(|failure| match failure {
            ReadFailure::Foreign => {
                CommandFailure(format!("{} is not of this program", self.name(key)))
            }
            ReadFailure::Refused(error) => CommandFailure(error),
        })
    }

    /// Sends a command to the server of a key.
    async fn query(&self, key: &RecordKey, command: &Cmd) -> Result<Value, CommandFailure> {
        let number = match &self.owners {
            None => Some(0),
            Some(owners) => owners.get(slots::slot_of(&self.name(key))).copied().flatten(),
        };
        let connection = number.and_then(|it| self.connections.get(usize::from(it))?.clone());
        let Some(mut connection) = connection else {
            return Err(CommandFailure(format!("no connection to the server of {key}")));
        };
        let mut loaded = false;
        loop {
            let sent = connection.send_packed_command(command);
            let response = match tokio::time::timeout(TIMEOUT, sent).await {
                Ok(response) => response,
                Err(_) => return Err(CommandFailure("the server does not respond".to_owned())),
            };
            match response {
                Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT" && !loaded => {}
                Err(error) if error.code() == Some("NOSCRIPT") && !loaded => {}
                Ok(Value::ServerError(error)) if error.code() != "WRONGTYPE" => {
                    return Err(CommandFailure(refusal(&error)));
                }
                Ok(value) => return Ok(value),
                Err(error) => return Err(failure(&error)),
            }
            loaded = true;
            Link::load_scripts(connection.clone()).await.map_err(|error| failure(&error))?;
        }
    }
}

/// In the server's words, if it is an error of the server.
fn failure(error: &RedisError) -> CommandFailure {
    CommandFailure(match error.code() {
        Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
        None => error.to_string(),
    })
}

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(1);
