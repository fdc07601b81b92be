use std::time::Duration;

use super::{Condition, CostTable, Key, Limit, Override};

/// Who is limited, and how: match, key, limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(crate) name: Box<str>,
    pub(crate) domain: Box<str>,
    /// All of them must hold; none means that the rule applies to its whole domain.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) cost: Option<CostTable>,
    pub(crate) deny: Option<Box<str>>,
    pub(crate) mode: Mode,
    pub(crate) group: Option<Box<str>>,
    pub(crate) overrides: Vec<Override>,
    pub(crate) on_error: OnError,
    pub(crate) missing: Missing,
    /// `None`: what the store considers right for the limit.
    pub(crate) durability: Option<Durability>,
    pub(crate) reserve_for: Duration,
    pub(crate) charge_refused: bool,
    pub(crate) effective: Effective,
}

/// Whether a denial bites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A denial is a denial.
    #[default]
    Enforce,
    /// A denial is counted and reported, and the request goes on.
    Shadow,
}

/// What happens to a request when the store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It passes.
    #[default]
    Allow,
    /// It is refused.
    Deny,
}

/// What happens to a request without an attribute that the key needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is refused.
    #[default]
    Refuse,
    /// The rule does not apply to it.
    Skip,
    /// All such requests share one key.
    Share,
}

/// How safe a charge is when the answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It is in memory.
    Memory,
    /// The operating system has it.
    Flush,
    /// The disk has it.
    Fsync,
}

/// When an edit of the limit begins to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effective {
    /// At once.
    #[default]
    Now,
    /// With the next window, period or round of each key.
    Next,
}
