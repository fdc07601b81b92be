//! Telegram's `Update`, of which only messages matter here.

use std::fmt;

use serde::Deserialize;
use tidegate_proto::json::Object;

/// A message that a user has sent to the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the update; the same if Telegram resends it.
    pub update_id: i64,
    /// The user's id.
    pub user: u64,
    /// The chat of replies.
    pub chat: i64,
}

/// The message in an update; `None` if it is an update of another kind.
///
/// Only new messages of users count, not edits, channel posts (which have no user), button presses,
/// polls and so on.
///
/// ```
/// use tidegate_webhook::{Message, message_of};
///
/// let update = br#"{"update_id":7,"message":{"message_id":1,"date":0,"text":"hello",
///     "from":{"id":42,"is_bot":false,"first_name":"Ada"},"chat":{"id":-100,"type":"group"}}}"#;
/// let message = Message { update_id: 7, user: 42, chat: -100 };
/// assert_eq!(message_of(update)?, Some(message));
///
/// let edit = br#"{"update_id":8,"edited_message":{"from":{"id":42},"chat":{"id":-100}}}"#;
/// assert_eq!(message_of(edit)?, None);
/// # Ok::<(), tidegate_webhook::UpdateError>(())
/// ```
pub fn message_of(bytes: &[u8]) -> Result<Option<Message>, UpdateError> {
    let Object(Update { update_id, message }) =
        serde_json::from_slice(bytes).map_err(UpdateError)?;
    let Some(Object(Received { from: Some(Object(from)), chat: Object(chat) })) = message else {
        return Ok(None);
    };
    Ok(Some(Message { update_id, user: from.id, chat: chat.id }))
}

/// The bytes are not an update: the problem and its position.
pub struct UpdateError(serde_json::Error);

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a Telegram update: {}", self.0)
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for UpdateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[derive(Deserialize)]
struct Update {
    update_id: i64,
    message: Option<Object<Received>>,
}

#[derive(Deserialize)]
struct Received {
    from: Option<Object<User>>,
    chat: Object<Chat>,
}

#[derive(Deserialize)]
struct User {
    id: u64,
}

#[derive(Deserialize)]
struct Chat {
    id: i64,
}

#[cfg(test)]
mod tests;
