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
            (EntryKind::Reserve, Some(Note::Proposed { draft, .. })) => {
                let reason = format!("proposed at tier {}", draft.tier);
                let spent = |(governor, units)| {
                    named("token.spent").tokens(governor, -signed(units), reason.clone())
                };
                booked(entry, Transfer::Held).map(spent).collect()
            }
            (EntryKind::Cancel, Some(Note::Cancelled { reason })) => {
                let refunded =
                    |(of, units)| named("token.refunded").tokens(of, signed(units), reason.clone());
                booked(entry, Transfer::Cancelled).map(refunded).collect()
            }
            (EntryKind::Expire, _) => {
                let refunded = |(of, units)| {
                    let reason = "not confirmed in time".into();
                    named("token.refunded").tokens(of, signed(units), reason)
                };
                booked(entry, Transfer::Expired).map(refunded).collect()
            }
            (EntryKind::Commit, _) => {
                let confirmed =
                    |(of, _)| Event { governor: Some(of), ..named("proposal.confirmed") };
                booked(entry, Transfer::Committed).map(confirmed).collect()
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
            _ => Vec::new(),
        }
    }
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

/// Tokens of governors that an entry has transferred in this way.
fn booked(entry: &LedgerEntry, booking: Transfer) -> impl Iterator<Item = (String, u64)> {
    let is_meant = move |it: &&Booking| it.key.rule().name() == TOKENS && it.booking == booking;
    entry.bookings.iter().filter(is_meant).map(|it| {
        let mut parts = it.key.parts();
        let governor = parts.find(|(attribute, _)| *attribute == GOVERNOR);
        let governor = governor.and_then(|(_, value)| value).unwrap_or_default();
        (governor.to_owned(), it.units)
    })
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The maximum number of events on a page, apart from the rest of its last entry.
const MOST_EVENTS: usize = 10_000;
