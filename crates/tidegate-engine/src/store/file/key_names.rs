//! The names of keys that have a state: only the log has them.

use std::sync::Arc;

use tidegate_policy::policy::RuleId;
use tidegate_table::locks::lock;

use super::FileStore;
use super::error::OpenError;
use super::keys::is_logged_as_hash;
use super::reader::LogReader;
use crate::plan::KeyName;
use crate::store::record::Record;

/// Names of keys that are in use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyNames {
    /// The names.
    pub names: Vec<KeyName>,
    /// Whether there are no others.
    pub is_complete: bool,
}

/// How much is read for a list of names.
#[derive(Clone, Copy, Debug)]
pub struct KeyNamesBound {
    /// The most names.
    pub names: usize,
    /// After so many bytes no other segment of the log is read.
    pub bytes: u64,
}

impl FileStore {
    /// The names of keys that are in use, of the rules that are wanted. The segments of the log are
    /// read from the newest to the oldest, until the bound is reached.
    ///
    /// A name is missing if the log has only a hash of a value, because that is too long.
    pub fn key_names(
        &self,
        bound: KeyNamesBound,
        is_wanted: impl Fn(&RuleId) -> bool,
    ) -> Result<KeyNames, OpenError> {
        let mut log = LogReader::newest_first(Arc::clone(&self.shared.disk))?;
        let mut found = KeyNames { names: Vec::new(), is_complete: true };
        loop {
            if log.is_between_segments() && log.bytes_read() >= bound.bytes && !log.is_at_end() {
                found.is_complete = false;
                break;
            }
            let read = log.read_batch(|record| {
                let Record::Key(key) = record else { return };
                // A key that is idle or was erased is no longer in use under this number.
                let number = lock(&self.shared.recorder.keys).number(key.hash);
                let is_used = !key.is_erased && number == Some(key.number);
                if !is_used || !is_wanted(&key.name.rule) {
                    return;
                }
                let values = key.name.parts.iter().filter_map(|(_, value)| value.as_deref());
                if found.names.len() >= bound.names || values.clone().any(is_logged_as_hash) {
                    found.is_complete = false;
                } else {
                    found.names.push(key.name);
                }
            });
            match read {
                Ok(true) => {}
                Ok(false) => break,
                // The next segment can be read without this one.
                Err(_) => found.is_complete = false,
            }
        }
        Ok(found)
    }
}
