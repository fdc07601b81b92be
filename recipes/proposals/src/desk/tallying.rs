//! Rounds of the game, and tallies, which close governance windows.

use std::sync::PoisonError;

use super::{Desk, Parts, Window};
use crate::limits::{DOMAIN, TOKENS_PER_WINDOW};
use crate::note::Note;
use crate::problem::DeskError;
use crate::state::{Fact, FactKind};
use crate::tally::Tally;

impl Desk {
    /// The game has played a round, the next one by number. To tell it again changes nothing.
    pub async fn round(&self, round: u64) -> Result<Window, DeskError> {
        let noted = {
            let mut state = self.state();
            let last = state.rounds().last;
            // Games that have been played before may begin with any number.
            let is_next = last == 0 || Some(round) == last.checked_add(1);
            match round {
                0 => return Err(DeskError::invalid("Rounds are numbered from 1.")),
                _ if round == last => None,
                _ if is_next => Some(self.noted(&mut state, Note::RoundPlayed { round })?),
                _ => {
                    let why = format!("Round {last} was the last one: round {round} is not next.");
                    return Err(DeskError::Conflict(why));
                }
            }
        };
        if let Some(noted) = noted {
            noted.await.map_err(|_| DeskError::Outage)?;
        }
        self.window()
    }

    /// Counts the votes and closes the window, if as many rounds have been played as it spans.
    pub async fn tally(&self) -> Result<Tally, DeskError> {
        let desk = self.clone();
        // Once begun it is done to its end, whoever waits for it.
        let tallied = tokio::task::spawn_blocking(move || desk.tally_now());
        tallied.await.unwrap_or(Err(DeskError::Outage))
    }

    /// First it is written down what the votes say and what follows from that, then it is done.
    /// Whoever finds it half done does the rest.
    fn tally_now(&self) -> Result<Tally, DeskError> {
        let Parts { closing, governors, interval, .. } = &*self.parts;
        let _closing = closing.lock().unwrap_or_else(PoisonError::into_inner);
        let (tally, noted) = {
            let mut state = self.state();
            if let Some(unfinished) = state.unfinished() {
                (unfinished.clone(), None)
            } else {
                let played = state.rounds().in_window;
                if played < *interval {
                    let why = format!(
                        "The window spans {interval} rounds of the game, and {played} of them were \
                         played."
                    );
                    return Err(DeskError::Conflict(why));
                }
                let tally = Tally::count(self.window_number(), state.ballot(), governors);
                let noted = self.noted(&mut state, Note::Tallied(tally.clone()))?;
                (tally, Some(noted))
            }
        };
        if let Some(noted) = noted {
            noted.wait().map_err(|_| DeskError::Outage)?;
        }
        self.close_window(&tally)?;
        Ok(tally)
    }

    /// Does what follows from a tally, as far as it is not done: the new cap, which counts from the
    /// next window on, and the end of the window, which gives everybody tokens.
    pub(super) fn close_window(&self, tally: &Tally) -> Result<(), DeskError> {
        let Parts { engine, limits, .. } = &*self.parts;
        let window = tally.window;
        if self.window_number() == window {
            // This window's own, whatever the next one has.
            let proposals_per_window = self.window()?.proposals_per_window;
            if let Some(cap) = tally.proposals_per_window {
                let changed = limits.cap_rule(cap).and_then(|rule| {
                    engine.replace_rule(&format!("the tally of window {window}"), rule)
                });
                changed.map_err(|errors| {
                    tracing::error!("the cap cannot be {cap}: {errors}");
                    DeskError::Outage
                })?;
            }
            let tokens = TOKENS_PER_WINDOW;
            let note = Note::WindowClosed { window, proposals_per_window, tokens };
            let closed = engine.close_round_noting(DOMAIN, &note.to_text());
            closed.wait().map_err(|_| DeskError::Outage)?;
            let fact = Fact { deed: FactKind::WindowClosed, hold: None, note: Some(note) };
            self.state().apply(fact);
            tracing::info!(window, "closed a governance window");
        }
        Ok(())
    }
}
