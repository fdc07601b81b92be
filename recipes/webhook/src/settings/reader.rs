use std::ffi::OsString;
use std::fmt;

use super::variables::{Redaction, Variable};

/// An invalid setting: its name, and what was expected.
#[derive(Clone, PartialEq, Eq)]
pub struct SettingError {
    name: &'static str,
    /// The value as it may be printed; `None` if it is not set.
    given: Option<String>,
    expected: String,
}

impl SettingError {
    /// The variable.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, given, expected } = self;
        match given {
            Some(given) => write!(f, "{name} is {given}: expected {expected}"),
            None => write!(f, "{name} is not set: expected {expected}"),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SettingError {}

/// Reader of variables.
pub(super) struct VariableReader<F> {
    pub(super) read: F,
}

impl<F: Fn(&str) -> Option<OsString>> VariableReader<F> {
    /// The parsed value of a variable, or of its default if it is not set.
    pub(super) fn parsed<T>(
        &self,
        variable: Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let raw = self.raw(variable);
        raw.as_ref()
            .and_then(|raw| raw.to_str())
            .and_then(parse)
            .ok_or_else(|| self.wrong(variable))
    }

    /// The value of a variable, if it is set.
    pub(super) fn optional<T>(
        &self,
        variable: Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        match (self.read)(variable.name) {
            None => Ok(None),
            Some(_) => self.parsed(variable, parse).map(Some),
        }
    }

    /// The error of an invalid variable.
    pub(super) fn wrong(&self, variable: Variable) -> SettingError {
        let show = |raw: OsString| match variable.redaction {
            Redaction::Value => format!("{:?}", raw.to_string_lossy()),
            Redaction::NameOnly => "invalid".to_owned(),
        };
        let expected = variable.expected.to_owned();
        SettingError { name: variable.name, given: self.raw(variable).map(show), expected }
    }

    /// The error of an invalid variable, with a reason.
    pub(super) fn wrong_because(
        &self,
        variable: Variable,
        reason: &dyn fmt::Display,
    ) -> SettingError {
        let error = self.wrong(variable);
        SettingError { expected: format!("{} ({reason})", error.expected), ..error }
    }

    fn raw(&self, variable: Variable) -> Option<OsString> {
        (self.read)(variable.name).or(variable.default.map(OsString::from))
    }
}

/// A whole number: digits and nothing else.
pub(super) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
