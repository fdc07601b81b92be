//! The event log: which tokens each governor received, spent and got back, and why.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate::durable::{Booking, EntryKind, LedgerEntry, OpenError, Transfer};

use crate::limits::{CAP, GOVERNOR, TOKENS};
use crate::note::Note;
use crate::proposal::{ProposalId, Vote};
use crate::state::Fact;

/// The requested part of the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Only events of this governor.
    pub governor: Option<String>,
    /// Only entries with a higher number.
    pub after: u64,
    /// The approximate number of events; those of one entry stay together.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { governor: None, after: 0, limit: 1_000 }
    }
}

/// Part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// The `after` of the next page. Absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One event of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// The number of its ledger entry.
    pub number: u64,
    /// The time in milliseconds since 1970.
    pub at_ms: u64,
    /// The kind of event, such as `token.spent`.
    pub event: String,
    /// The governor, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Tokens gained, or spent if negative. A governor's balance is the sum of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<i64>,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The proposal, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalId>,
}

impl Audit {
    /// A page of the log.
    pub(crate) fn of(
        entries: impl Iterator<Item = Result<LedgerEntry, OpenError>>,
        page: &Page,
    ) -> Result<Self, OpenError> {
        let mut audit = Self::default();
        let mut reader = EventReader::default();
        for entry in entries {
            let entry = entry?;
            let number = entry.number;
            // Earlier entries are read all the same: they determine who is enrolled.
            let mut events = reader.read(&entry);
            events.retain(|event| page.governor.is_none() || event.governor == page.governor);
            if number <= page.after || events.is_empty() {
                continue;
            }
            if audit.events.len() >= page.limit.clamp(1, MOST_EVENTS) {
                audit.next = audit.events.last().map(|event| event.number);
                break;
            }
            audit.events.append(&mut events);
        }
        Ok(audit)
    }
}

/// Converts entries to events, in order.
#[derive(Debug, Default)]
struct EventReader {
    enrolled: BTreeSet<String>,
}

impl EventReader {
    fn read(&mut self, entry: &LedgerEntry) -> Vec<Event> {
        // The desk does not open with notes that it cannot parse.
        let note = Fact::from_entry(entry).ok().and_then(|fact| fact.note);
        let proposal = entry.hold.map(ProposalId);
        let at = Event {
            number: entry.number,
            at_ms: entry.at.as_nanos() / 1_000_000,
            proposal,
            ..Event::default()
        };
        let named = |event: &str| Event { event: event.into(), ..at.clone() };
        match (&entry.what, note) {
            (EntryKind::Enrol, Some(Note::Enrolled { governor, tokens, .. })) => {
                self.enrolled.insert(governor.clone());
                let event = named("token.regenerated");
                vec![event.tokens(governor, signed(tokens), "enrolled".into())]
            }
            (EntryKind::RoundClosed { .. }, Some(Note::WindowClosed { window, tokens, .. })) => {
                let reason = format!("window {window} closed");
                let get = |governor: &String| {
                    let event = named("token.regenerated");
                    event.tokens(governor.clone(), signed(tokens), reason.clone())
                };
                self.enrolled.iter().map(get).collect()
            }
            (EntryKind::Edited(change), _)
                if change.rule().is_some_and(|rule| rule.name() == CAP) =>
            {
                let reason =
                    change.after.as_ref().map(|after| format!("{}: {after}", change.actor));
                vec![Event { reason, ..named("cap.changed") }]
            }
            (EntryKind::Note, Some(note)) => noted(&at, note),
            (_, note) => transferred(&at, note.as_ref(), entry),
        }
    }
}

/// The events of the tokens that an entry has moved, whatever it is: so they always add up.
fn transferred(at: &Event, note: Option<&Note>, entry: &LedgerEntry) -> Vec<Event> {
    let reason = match note {
        Some(Note::Proposed { draft, .. }) => Some(format!("proposed at tier {}", draft.tier)),
        Some(Note::Cancelled { reason }) => Some(reason.clone()),
        _ if entry.what == EntryKind::Expire => Some("not confirmed in time".into()),
        _ => entry.cause.as_deref().map(Into::into),
    };
    let event = |booking: &Booking| {
        let (name, tokens) = match booking.booking {
            Transfer::Held | Transfer::Charged => ("token.spent", -signed(booking.units)),
            Transfer::Cancelled | Transfer::Expired | Transfer::Refunded => {
                ("token.refunded", signed(booking.units))
            }
            Transfer::Committed => ("proposal.confirmed", 0),
            _ => return None,
        };
        let event = Event { event: name.into(), governor: governor(booking), ..at.clone() };
        Some(match tokens {
            0 => event,
            tokens => Event { tokens: Some(tokens), reason: reason.clone(), ..event },
        })
    };
    let is_meant = |it: &&Booking| it.key.rule().name() == TOKENS && it.units > 0;
    entry.bookings.iter().filter(is_meant).filter_map(event).collect()
}

impl Event {
    fn tokens(self, governor: String, tokens: i64, reason: String) -> Self {
        Self { governor: Some(governor), tokens: Some(tokens), reason: Some(reason), ..self }
    }
}

/// The events of a standalone note.
fn noted(at: &Event, note: Note) -> Vec<Event> {
    let named = |event: &str| Event { event: event.into(), ..at.clone() };
    match note {
        Note::Interpreted { proposal, interpretation } => vec![Event {
            proposal: Some(proposal),
            reason: Some(interpretation.summary),
            ..named("proposal.interpreted")
        }],
        Note::Voted { proposal, governor, vote } => vec![Event {
            proposal: Some(proposal),
            governor: Some(governor),
            reason: Some(if vote == Vote::Yes { "yes" } else { "no" }.into()),
            ..named("vote.cast")
        }],
        Note::RoundPlayed { round } => {
            vec![Event { reason: Some(format!("round {round}")), ..named("round.played") }]
        }
        Note::Tallied(tally) => {
            let counted = tally.proposals.iter().map(|counted| Event {
                proposal: Some(counted.proposal),
                reason: Some(format!(
                    "{} yes, {} no, of {} governors",
                    counted.yes, counted.no, tally.governors
                )),
                ..named(if counted.passed { "proposal.passed" } else { "proposal.failed" })
            });
            let window = Some(format!("window {}", tally.window));
            let closing = Event { reason: window, ..named("window.tallied") };
            counted.chain([closing]).collect()
        }
        _ => Vec::new(),
    }
}

/// The governor whose tokens were moved; `None` if the name was erased.
fn governor(booking: &Booking) -> Option<String> {
    let mut parts = booking.key.parts();
    let (_, value) = parts.find(|(attribute, _)| *attribute == GOVERNOR)?;
    value.map(ToOwned::to_owned)
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The maximum number of events on a page, apart from the rest of its last entry.
const MOST_EVENTS: usize = 10_000;
