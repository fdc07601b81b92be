//! Why a store cannot be used, and why there is no connection.

use std::fmt;

use crate::commands::without_arguments;

/// Why a store cannot be used.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisError {
    /// The address is none, with the reason.
    Url(String),
    /// A setting has no meaning, with the reason.
    Setting(String),
    /// A file for TLS cannot be used, with its path and the reason.
    Tls(String),
    /// There is no thread for it, with the reason.
    Thread(String),
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(reason) => write!(f, "the address of the store cannot be used: {reason}"),
            Self::Setting(reason) | Self::Tls(reason) => f.write_str(reason),
            Self::Thread(reason) => write!(f, "the store has no thread: {reason}"),
        }
    }
}

impl std::error::Error for RedisError {}

tidegate_core::debug_as_displayed!(RedisError);

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct ConnectFailure(pub(crate) String);

impl From<redis::RedisError> for ConnectFailure {
    fn from(error: redis::RedisError) -> Self {
        Self(without_arguments(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::without_arguments;

    #[test]
    fn a_failure_has_no_arguments_of_commands() {
        let error = "ERR unknown command 'AUTH', with args beginning with: 'app' 'hunter2'";
        assert_eq!(without_arguments(error), "ERR unknown command 'AUTH'");
    }
}
