use std::error::Error;
use std::fmt;

/// A setting that prevents the start, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    setting: &'static str,
    reason: String,
}

impl SettingError {
    /// This setting is invalid for this reason.
    pub(crate) fn new(setting: &'static str, reason: impl Into<String>) -> Self {
        Self { setting, reason: reason.into() }
    }

    /// The setting, as on the command line.
    #[must_use]
    pub const fn setting(&self) -> &'static str {
        self.setting
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.reason)
    }
}

impl Error for SettingError {}
