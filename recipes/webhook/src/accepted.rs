//! Accepted messages in the ledger: each is there before Telegram gets its response, and is open
//! until the agent's response is there, too.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use axum::body::Bytes;
use tidegate::StoreEngine;
use tidegate::durable::{EntryKind, Filter, LedgerEntry, OpenError};

use crate::limits::DOMAIN;
use crate::update::Message;

/// An accepted message that the agent has not responded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// Its name: the user and the update.
    pub(crate) id: MessageId,
    /// The update, as Telegram sent it.
    pub(crate) update: Bytes,
}

/// The name of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageId {
    user: u64,
    pub(crate) update_id: i64,
}

impl From<&Message> for MessageId {
    fn from(message: &Message) -> Self {
        Self { user: message.user, update_id: message.update_id }
    }
}

impl MessageId {
    /// The note of an accepted message.
    pub(crate) fn accepted(self, update: &str) -> String {
        format!("{ACCEPTED} {self}\n{update}")
    }

    fn answered(self) -> String {
        format!("{ANSWERED} {self}")
    }

    fn from_text(text: &str) -> Option<Self> {
        let (user, update_id) = text.split_once(':')?;
        Some(Self { user: user.parse().ok()?, update_id: update_id.parse().ok()? })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.update_id)
    }
}

/// The ledger of a webhook whose counts are on disk.
#[derive(Clone)]
pub(crate) struct AcceptedLedger(StoreEngine);

impl AcceptedLedger {
    pub(crate) fn new(engine: StoreEngine) -> Self {
        Self(engine)
    }

    /// Records that a message needs no further call of the agent.
    pub(crate) async fn answered(&self, id: MessageId) {
        if self.0.note(DOMAIN, &id.answered()).await.is_err() {
            tracing::warn!(message = %id, "response not recorded: it is sent again after a restart");
        }
    }
}

/// The accepted messages of a ledger that are open, in the order in which they were accepted.
pub fn open_messages(engine: &StoreEngine) -> Result<Vec<AcceptedMessage>, OpenError> {
    // A disk that accepts no writes can still be read.
    let ledger = match (engine.ledger(), engine.file_store()) {
        (Ok(ledger), _) => ledger,
        (Err(_), Some(store)) => store.ledger(),
        (Err(_), None) => return Ok(Vec::new()),
    };
    let (mut open, mut numbers) = (BTreeMap::new(), HashMap::new());
    // Entries about users without a limit have no domain.
    for entry in ledger.entries(&Filter::new())? {
        let entry = entry?;
        match read(&entry) {
            Some(LedgerNote::Accepted(message)) => {
                numbers.insert(message.id, entry.number);
                open.insert(entry.number, message);
            }
            Some(LedgerNote::Answered(id)) => {
                numbers.remove(&id).and_then(|number| open.remove(&number));
            }
            None => {}
        }
    }
    Ok(open.into_values().collect())
}

enum LedgerNote {
    Accepted(AcceptedMessage),
    Answered(MessageId),
}

fn read(entry: &LedgerEntry) -> Option<LedgerNote> {
    let note = entry.note.as_deref()?;
    match entry.what {
        EntryKind::Commit => {
            let (head, update) = note.split_once('\n')?;
            let id = MessageId::from_text(head.strip_prefix(ACCEPTED)?.trim_start())?;
            let update = Bytes::copy_from_slice(update.as_bytes());
            Some(LedgerNote::Accepted(AcceptedMessage { id, update }))
        }
        EntryKind::Note => {
            let id = MessageId::from_text(note.strip_prefix(ANSWERED)?.trim_start())?;
            Some(LedgerNote::Answered(id))
        }
        _ => None,
    }
}

const ACCEPTED: &str = "accepted";
const ANSWERED: &str = "answered";
