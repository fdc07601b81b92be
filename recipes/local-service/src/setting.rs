use std::error::Error;
use std::fmt;

/// A setting that prevents the start, and why.
#[derive(Clone, PartialEq, Eq)]
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

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for SettingError {}
