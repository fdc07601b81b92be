//! The form of intents.

use std::sync::Arc;

use tidegate_engine::shared::RecordKey;

use super::{After, Found, Intent, Member, Phase};
use crate::frame::{Cell, Foreign};

fn key(text: &str) -> RecordKey {
    RecordKey::from_text(text).unwrap()
}

fn intents() -> Vec<Intent> {
    let members: Arc<[Member]> = Arc::from([
        Member { key: key("state:00000000000000ff"), expected: Some(7) },
        Member { key: key("hold:00000000000000010000000000000002"), expected: None },
        Member { key: key("name:000000000000000a000000000000000b"), expected: Some(0) },
    ]);
    let record = |bytes: &[u8]| Some(Arc::from(bytes));
    let befores = [
        Cell::ABSENT,
        Cell { stamp: Some(3), expires_ms: 9, record: None },
        Cell { stamp: Some(4), expires_ms: 0, record: record(b"before") },
    ];
    let afters = [
        After::Unchanged,
        After::Changed { expires_ms: 0, record: record(b"after") },
        After::Changed { expires_ms: 5, record: None },
    ];
    let mut all = Vec::new();
    for phase in [Phase::Laid, Phase::Pinned, Phase::Committed] {
        for (before, after) in befores.iter().zip(&afters) {
            let (before, after) = (before.clone(), after.clone());
            let members = Arc::clone(&members);
            all.push(Intent { phase, stamp: 1, expires_ms: 77, members, before, after });
        }
    }
    all
}

#[test]
fn an_intent_is_read_as_it_was_written() {
    for intent in intents() {
        let value = intent.value();
        assert!(value.starts_with(&intent.head()));
        assert_eq!(Found::read(&value), Ok(Found::Intent(Box::new(intent))));
    }
}

#[test]
fn a_value_that_was_cut_is_never_taken_for_a_whole_one() {
    for intent in intents() {
        let value = intent.value();
        for length in 0..value.len() {
            match Found::read(&value[..length]) {
                Err(Foreign) => {}
                // Its last part is the record itself, which has no end mark, as that of a record.
                Ok(Found::Intent(read)) => {
                    assert_eq!((&read.members, &read.before), (&intent.members, &intent.before));
                    assert!(matches!(read.after, After::Changed { .. }));
                }
                Ok(Found::Cell(cell)) => panic!("{cell:?}"),
            }
        }
    }
    assert_eq!(Found::read(b"tgx1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), Err(Foreign));
}

#[test]
fn what_replaces_an_intent_expires_no_earlier_than_allowed() {
    for intent in intents() {
        let (done, undone) = (intent.committed(50), intent.withdrawn(99, 50));
        assert_eq!((done.stamp, undone.stamp), (Some(1), Some(99)));
        for cell in [done, undone] {
            let is_forever = cell.record.is_some() && cell.expires_ms == 0;
            assert!(is_forever || cell.expires_ms >= 50, "{cell:?}");
        }
    }
}
