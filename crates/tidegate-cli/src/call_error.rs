//! Why a daemon gave no response.

use std::fmt;

/// Why there is no response, with a hint.
#[derive(Debug)]
pub(crate) struct CallError {
    message: String,
    hint: Option<String>,
}

impl CallError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// The same with something to do about it.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  = hint: {hint}"),
            None => Ok(()),
        }
    }
}
