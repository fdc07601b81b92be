//! Rounds of the game, and tallies, which close governance windows.

use std::sync::PoisonError;

use tidegate::{Answer, Edit, edit::EditError};

use super::{Desk, Parts, Window};
use crate::limits::{DOMAIN, TOKENS_PER_WINDOW};
use crate::note::Note;
use crate::problem::DeskError;
use crate::state::{Fact, FactKind};
use crate::tally::Tally;

impl Desk {
    /// Records that a round was played, the next by number. Repeating it changes nothing.
    pub async fn round(&self, round: u64) -> Result<Window, DeskError> {
        let noted = {
            let mut state = self.state();
            let last = state.rounds().last;
            // A game that was already running may start with any number.
            let is_next = last == 0 || Some(round) == last.checked_add(1);
            match round {
                0 => return Err(DeskError::invalid("Rounds are numbered from 1.")),
                _ if round == last => None,
                _ if is_next => Some(self.noted(&mut state, Note::RoundPlayed { round })?),
                _ => {
                    let why = format!("Round {round} does not follow round {last}.");
                    return Err(DeskError::Conflict(why));
                }
            }
        };
        if let Some(noted) = noted {
            noted.await.map_err(|_| self.outage("round"))?;
        }
        self.window()
    }

    /// Counts the votes and closes the window, if enough rounds were played.
    pub async fn tally(&self) -> Result<Tally, DeskError> {
        let desk = self.clone();
        // Once begun it runs to its end, even if the caller is gone.
        let tallied = tokio::task::spawn_blocking(move || desk.tally_now());
        tallied.await.unwrap_or(Err(DeskError::Outage))
    }

    /// First writes the result and its consequences, then applies them. An interrupted tally is
    /// finished by the next one.
    fn tally_now(&self) -> Result<Tally, DeskError> {
        let Parts { closing, interval, .. } = &*self.parts;
        let _closing = closing.lock().unwrap_or_else(PoisonError::into_inner);
        let governors = self.parts.governors.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (tally, noted) = {
            let mut state = self.state();
            if let Some(unfinished) = state.unfinished() {
                (unfinished.clone(), None)
            } else {
                let played = state.rounds().in_window;
                if played < *interval {
                    let why = format!(
                        "The window spans {interval} rounds of the game; {played} of them were \
                         played."
                    );
                    return Err(DeskError::Conflict(why));
                }
                let tally = Tally::count(self.window_number(), state.ballot(), &governors);
                let noted = self.noted(&mut state, Note::Tallied(tally.clone()))?;
                (tally, Some(noted))
            }
        };
        if let Some(noted) = noted {
            noted.block().map_err(|_| self.outage("tally"))?;
        }
        self.close_window(&tally)?;
        Ok(tally)
    }

    /// Applies what is left of a tally: the new cap, from the next window on, and the end of the
    /// window, which gives each governor tokens.
    pub(super) fn close_window(&self, tally: &Tally) -> Result<(), DeskError> {
        let Parts { engine, limits, .. } = &*self.parts;
        let window = tally.window;
        if self.window_number() == window {
            // The cap of this window, whatever the next one has.
            let proposals_per_window = self.window()?.proposals_per_window;
            if let Some(cap) = tally.proposals_per_window {
                let actor = format!("the tally of window {window}");
                let rule = limits.cap_rule(cap).map_err(EditError::from);
                let changed = rule.and_then(|rule| engine.edit(&actor, Edit::rule(rule)).block());
                changed.map_err(|errors| {
                    tracing::error!("cannot set the cap to {cap}: {errors}");
                    DeskError::Outage
                })?;
            }
            let tokens = TOKENS_PER_WINDOW;
            let note = Note::WindowClosed { window, proposals_per_window, tokens };
            let closed = {
                // Submissions and confirmations are in one window or in the other.
                let mut state = self.state();
                let closed = engine.close_round(DOMAIN, &note.to_text());
                if matches!(closed, Answer::Ready(Err(_))) {
                    return Err(self.outage("tally"));
                }
                state.apply(Fact { kind: FactKind::WindowClosed, hold: None, note: Some(note) });
                closed
            };
            closed.block().map_err(|_| self.outage("tally"))?;
            tracing::info!(window, "governance window closed");
        }
        Ok(())
    }
}
