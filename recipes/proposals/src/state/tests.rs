use tidegate::{Timestamp, hold::HoldId};

use super::{ClosedWindow, Fact, FactKind, MOST_KEPT, Rounds, State};
use crate::note::Note;
use crate::proposal::{Draft, Interpretation, Proposal, ProposalId, Status, Vote};
use crate::tally::{ProposalTally, Tally};

fn hold(number: u64) -> HoldId {
    format!("{number:032x}").parse().unwrap()
}

fn proposed(number: u64) -> Fact {
    let draft = Draft { tier: 4, text: "a change".into() };
    let note = Note::Proposed { governor: "ada".into(), draft };
    Fact::held(FactKind::Reserve, hold(number), Some(note))
}

fn interpreted(number: u64) -> Fact {
    let interpretation =
        Interpretation { summary: "it".into(), tier: 4, proposals_per_window: Some(5) };
    Fact::noted(Note::Interpreted { proposal: ProposalId(hold(number)), interpretation })
}

fn confirmed(number: u64) -> Fact {
    Fact::held(FactKind::Commit, hold(number), Some(Note::Confirmed))
}

fn sum(facts: impl IntoIterator<Item = Fact>) -> State {
    let mut state = State::default();
    facts.into_iter().for_each(|fact| state.apply(fact));
    state
}

fn get(state: &State, number: u64) -> &Proposal {
    state.get(ProposalId(hold(number))).unwrap()
}

#[test]
fn facts_add_up_to_a_proposal() {
    let mut state = sum([proposed(1), proposed(2)]);
    assert_eq!(get(&state, 1).status, Status::Interpreting);
    state.apply(interpreted(1));
    assert_eq!(get(&state, 1).status, Status::Interpreted);
    state.apply(confirmed(1));
    let vote =
        Note::Voted { proposal: ProposalId(hold(1)), governor: "bob".into(), vote: Vote::Yes };
    state.apply(Fact::noted(vote));
    assert_eq!(state.ballot().map(|it| it.id.0).collect::<Vec<_>>(), [hold(1)]);
    state.apply(Fact::noted(Note::RoundPlayed { round: 8 }));
    assert_eq!(state.rounds(), Rounds { last: 8, in_window: 1 });
    let counted = ProposalTally { proposal: ProposalId(hold(1)), yes: 1, no: 0, passed: true };
    let tally =
        Tally { window: 1, governors: 2, proposals: vec![counted], proposals_per_window: Some(5) };
    state.apply(Fact::noted(Note::Tallied(tally.clone())));
    assert_eq!((state.unfinished(), state.ballot().count()), (Some(&tally), 0));
    assert_eq!((get(&state, 1).status, get(&state, 1).window), (Status::Passed, Some(1)));
    // A round played between the tally and the end of its window belongs to the next window.
    state.apply(Fact::noted(Note::RoundPlayed { round: 9 }));
    let note = Note::WindowClosed { window: 1, proposals_per_window: 3, tokens: 2 };
    state.apply(Fact { kind: FactKind::WindowClosed, hold: None, note: Some(note) });
    assert_eq!(state.unfinished(), None);
    assert_eq!(state.rounds(), Rounds { last: 9, in_window: 1 });
    let closed = ClosedWindow { window: 1, proposals_per_window: 3 };
    assert_eq!(state.windows().collect::<Vec<_>>(), [&closed]);
    assert_eq!(get(&state, 2).status, Status::Interpreting);
    state.apply(proposed(3));
    assert_eq!((get(&state, 2).submitted_in, get(&state, 3).submitted_in), (1, 2));
}

#[test]
fn changed_vote_counts_once() {
    let vote = |vote| {
        let proposal = ProposalId(hold(1));
        Fact::noted(Note::Voted { proposal, governor: "bob".into(), vote })
    };
    let state = sum([proposed(1), interpreted(1), confirmed(1), vote(Vote::Yes), vote(Vote::No)]);
    assert_eq!(get(&state, 1).votes.values().collect::<Vec<_>>(), [&Vote::No]);
}

#[test]
fn released_proposals_are_final() {
    let reason = Note::Cancelled { reason: "because".into() };
    let state = sum([
        proposed(1),
        Fact::held(FactKind::Cancel, hold(1), Some(reason)),
        interpreted(1),
        proposed(2),
        interpreted(2),
        Fact::held(FactKind::Expire, hold(2), None),
    ]);
    assert_eq!(
        (get(&state, 1).status, get(&state, 2).status),
        (Status::Cancelled, Status::Expired)
    );
    assert_eq!(get(&state, 1).reason.as_deref(), Some("because"));
}

#[test]
fn enrolling_is_no_proposal() {
    let enrolled = |governor: &str, secret: Option<&str>| {
        let secret_sha256 = secret.map(Into::into);
        Fact::enrolled(Note::Enrolled { governor: governor.into(), tokens: 2, secret_sha256 })
    };
    let state = sum([enrolled("ada", None), enrolled("di", Some("digest"))]);
    assert!(state.is_enrolled("ada") && state.is_enrolled("di") && !state.is_enrolled("bob"));
    assert_eq!(state.added().collect::<Vec<_>>(), [("di", "digest")]);
    assert_eq!(state.proposals().count(), 0);
}

#[test]
fn only_pending_proposals_can_be_overdue() {
    let mut state = sum([proposed(1), proposed(2), interpreted(2), confirmed(2), proposed(3)]);
    for number in [1, 2] {
        state.set_expiry(ProposalId(hold(number)), Some(Timestamp::from_secs(10)));
    }
    assert!(state.overdue(Timestamp::from_secs(9)).is_empty());
    assert_eq!(state.overdue(Timestamp::from_secs(10)), [hold(1)]);
}

#[test]
fn memory_is_bounded_by_open_proposals() {
    let many = MOST_KEPT as u64 + 100;
    let over = |number| [proposed(number), Fact::held(FactKind::Expire, hold(number), None)];
    let state = sum([proposed(0)].into_iter().chain((1..=many).flat_map(over)));
    assert_eq!(state.proposals().count(), MOST_KEPT + 1);
    assert_eq!(get(&state, 0).status, Status::Interpreting, "open proposals stay");
    assert!(
        state.get(ProposalId(hold(1))).is_none() && state.get(ProposalId(hold(many))).is_some()
    );
}

#[test]
fn notes_round_trip() {
    for fact in [proposed(1), interpreted(1), confirmed(1)] {
        let note = fact.note.unwrap();
        assert_eq!(Note::from_text(&note.to_text()), Ok(note));
    }
    for strange in ["", "{}", r#"{"event":"tomorrow"}"#] {
        assert!(Note::from_text(strange).is_err());
    }
}
