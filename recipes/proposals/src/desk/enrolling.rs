//! Governors: who they are, and their first tokens.

use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use tidegate::{CheckError, Request};

use super::{Balance, Desk, StartError};
use crate::governors::{Caller, SecretDigest};
use crate::limits::{ACT, DOMAIN, ENROL, GOVERNOR, TOKENS_PER_WINDOW};
use crate::note::Note;
use crate::problem::DeskError;
use crate::state::Fact;

/// A governor to enrol.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewGovernor {
    /// The governor's name.
    pub governor: String,
    /// The governor's secret, of at least 16 characters.
    pub secret: String,
}

impl std::fmt::Debug for NewGovernor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewGovernor").field("governor", &self.governor).finish_non_exhaustive()
    }
}

/// What an enrolment came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Enrolled {
    /// What the governor has.
    #[serde(flatten)]
    pub balance: Balance,
    /// Whether the governor was enrolled before; nothing has changed then.
    #[serde(skip)]
    pub is_repeat: bool,
}

impl Desk {
    /// Enrols a governor: the secret is valid, and the tokens of this window are there. Repeating it
    /// changes nothing.
    pub async fn enrol(&self, new: NewGovernor) -> Result<Enrolled, DeskError> {
        let NewGovernor { governor, secret } = new;
        let (desk, name) = (self.clone(), governor.clone());
        // Once begun it runs to its end, even if the caller is gone.
        let enrolling = tokio::task::spawn_blocking(move || desk.enrol_now(&name, &secret));
        let is_repeat = enrolling.await.unwrap_or(Err(DeskError::Outage))?;
        Ok(Enrolled { balance: self.balance(&governor)?, is_repeat })
    }

    /// Returns whether the governor was enrolled before.
    fn enrol_now(&self, governor: &str, secret: &str) -> Result<bool, DeskError> {
        // One enrolment at a time, so that two do not get the same secret.
        let mut governors = self.parts.governors.write().unwrap_or_else(PoisonError::into_inner);
        let secret = governors.candidate(governor, secret).map_err(DeskError::invalid)?;
        let other =
            || DeskError::Conflict(format!("`{governor}` is enrolled with another secret."));
        if governors.has(governor) {
            let is_same = governors.is_secret_of(governor, secret);
            return if is_same { Ok(true) } else { Err(other()) };
        }
        // An enrolment that failed with an outage may be in the ledger, with its secret.
        let text = secret.to_text();
        if self.state().added().any(|(name, known)| name == governor && known != text) {
            return Err(other());
        }
        self.give_first_tokens(governor, Some(secret)).map_err(|_| self.outage("enrol"))?;
        governors.add(governor, secret).map_err(DeskError::invalid)?;
        Ok(false)
    }

    /// Enrols the governors of the settings who are new, and adds those who were enrolled later.
    pub(super) fn enrol_all(&self) -> Result<(), StartError> {
        let mut governors = self.parts.governors.write().unwrap_or_else(PoisonError::into_inner);
        for governor in governors.names() {
            if !self.state().is_enrolled(governor) {
                self.give_first_tokens(governor, None).map_err(StartError::Enrol)?;
            }
        }
        for (name, digest) in self.state().added() {
            let digest = SecretDigest::from_text(digest);
            let digest = digest.ok_or_else(|| format!("the digest of `{name}` is malformed"));
            digest.and_then(|it| governors.add(name, it)).map_err(StartError::Governor)?;
        }
        Ok(())
    }

    /// Makes a governor known to the engine, so that every window adds tokens, whether or not there
    /// is a proposal. It blocks until that is durable.
    fn give_first_tokens(
        &self,
        governor: &str,
        secret: Option<SecretDigest>,
    ) -> Result<(), CheckError> {
        let note = Note::Enrolled {
            governor: governor.into(),
            tokens: TOKENS_PER_WINDOW,
            secret_sha256: secret.map(SecretDigest::to_text),
        };
        let (text, attributes) = (note.to_text(), [(GOVERNOR, governor), (ACT, ENROL)]);
        let request = Request::new(DOMAIN, &attributes).note(&text);
        let enrolled = {
            let mut state = self.state();
            let enrolled = self.parts.engine.enrol(&request);
            if !matches!(enrolled, tidegate::Answer::Ready(Err(_))) {
                state.apply(Fact::enrolled(note));
            }
            enrolled
        };
        enrolled.block().map(drop)
    }

    /// The caller with this secret.
    #[must_use]
    pub fn caller(&self, secret: &str) -> Option<Caller> {
        self.parts.governors.read().unwrap_or_else(PoisonError::into_inner).caller(secret)
    }

    /// The names of the governors.
    #[must_use]
    pub fn governors(&self) -> Vec<String> {
        let governors = self.parts.governors.read().unwrap_or_else(PoisonError::into_inner);
        governors.names().map(ToOwned::to_owned).collect()
    }
}
