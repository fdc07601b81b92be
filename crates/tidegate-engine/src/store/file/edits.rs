//! Edits of the policy in the log: what an edit changed, and now and then all of them.

use super::recovery::FileReplay;
use crate::edits::{Change, Overlay};
use crate::store::StoredEdits;
use crate::store::record::{EditRecord, EditedItem, Malformed, OverlayEdit};

/// The edits in force, and what the log has of them.
#[derive(Debug, Default)]
pub(super) struct LoggedEdits {
    pub(super) stored: StoredEdits,
    /// The overlay as the log has it.
    text: String,
    /// How many edits there were.
    revision: u64,
    /// Bytes of parts since the overlay was last written whole.
    parts_len: usize,
}

impl LoggedEdits {
    pub(super) fn new(stored: StoredEdits, text: String, revision: u64) -> Self {
        // The first edit writes all of it: the parts so far are not counted.
        Self { stored, parts_len: text.len(), text, revision }
    }

    /// Makes an edit, and returns its record.
    pub(super) fn edit(&mut self, overlay: &Overlay, changes: &[Change]) -> EditRecord {
        self.stored.overlay = overlay.clone();
        self.stored.changes.add(changes);
        self.revision += 1;
        let text = overlay.to_toml();
        let part = OverlayEdit::part(&self.text, &text);
        let part_len = part.len();
        // Parts need all edits before them. So the whole follows when the parts are half as long as
        // it: that at most triples the bytes of all edits.
        let overlay = if self.parts_len.saturating_add(part_len) >= text.len() / 2 {
            self.parts_len = 0;
            OverlayEdit::Whole(text.as_str().into())
        } else {
            self.parts_len += part_len;
            part
        };
        self.text = text;
        let changes = changes.iter().map(shortened).collect();
        EditRecord { revision: self.revision, overlay, changes }
    }

    /// A record of all edits, for a snapshot.
    pub(super) fn whole(&self) -> EditRecord {
        let changes = self.stored.changes.iter().map(shortened).collect();
        let overlay = OverlayEdit::Whole(self.text.as_str().into());
        EditRecord { revision: self.revision, overlay, changes }
    }
}

/// A change as the log has it: long descriptions are cut off.
fn shortened(change: &Change) -> EditedItem {
    let mut item = EditedItem::from(change);
    for text in [&mut item.before, &mut item.after].into_iter().flatten() {
        if text.len() > LONGEST_DESCRIPTION {
            let end =
                (0..=LONGEST_DESCRIPTION).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            *text = format!("{}…", &text[..end]).into();
        }
    }
    item
}

/// The longest description of a rule before or after an edit in the log, in bytes.
const LONGEST_DESCRIPTION: usize = 4 << 10;

impl FileReplay {
    pub(super) fn apply_edit(&mut self, edit: &EditRecord) -> Result<(), Malformed> {
        // A snapshot may contain what the log repeats.
        if edit.revision > self.revision {
            match &edit.overlay {
                OverlayEdit::Whole(text) => self.overlay = text.to_string(),
                OverlayEdit::Part { .. } if edit.revision != self.revision + 1 => {
                    return Err(Malformed);
                }
                part => self.overlay = part.applied_to(&self.overlay).ok_or(Malformed)?,
            }
            self.revision = edit.revision;
        }
        let changes: Vec<Change> = edit.changes.iter().cloned().map(Change::from).collect();
        self.changes.add(&changes);
        Ok(())
    }
}
