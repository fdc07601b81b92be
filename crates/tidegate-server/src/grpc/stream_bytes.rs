//! The streams of a connection, counted in the byte budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame_heads::{FrameHead, FrameHeads};
use tidegate_listen::{BudgetKind, Permit};

/// Charges the streams of a connection: each from its first frame until its response is sent or
/// it is reset.
#[derive(Debug)]
pub(crate) struct StreamBytes {
    permit: Arc<Permit>,
    received: FrameHeads,
    written: FrameHeads,
    /// The open streams with what they are charged.
    open: BTreeMap<u32, usize>,
    /// The highest number of a stream so far.
    last: u32,
}

impl StreamBytes {
    pub(crate) fn new(permit: Arc<Permit>) -> Self {
        Self {
            permit,
            received: FrameHeads::default(),
            written: FrameHeads::default(),
            open: BTreeMap::new(),
            last: 0,
        }
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Counts bytes that the peer sent.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let Self { permit, received, open, last, .. } = self;
        let (mut more, mut less) = (0, 0);
        received.find(bytes, |head| match head.kind {
            FrameHead::HEADERS if head.stream > *last => {
                *last = head.stream;
                open.insert(head.stream, STATE_BYTES);
                more += STATE_BYTES;
            }
            FrameHead::DATA => {
                if let Some(charged) = open.get_mut(&head.stream) {
                    *charged += head.length;
                    more += head.length;
                }
            }
            FrameHead::RST_STREAM => {
                less += open.remove(&head.stream).unwrap_or(0);
            }
            _ => {}
        });
        permit.charge(BudgetKind::Received, more);
        permit.release(BudgetKind::Received, less);
    }

    /// Counts bytes that were sent to the peer.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let Self { permit, written, open, .. } = self;
        written.find(bytes, |head| {
            if head.kind == FrameHead::DATA {
                permit.release(BudgetKind::Unsent, head.length);
            }
            if head.ends_stream() {
                let charged = open.remove(&head.stream).unwrap_or(0);
                permit.release(BudgetKind::Received, charged);
            }
        });
    }
}

/// The memory of a stream without its message: its state in HTTP/2, its task and its head, and
/// some for fragmentation.
const STATE_BYTES: usize = 8 << 10;
