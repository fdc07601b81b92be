//! What the policy file says, checked: rules, and how to find those that a request meets.

mod limit;
mod parts;
mod rule;

pub use limit::{Cycle, Limit, Slots};
pub use parts::{Condition, CostTable, Grant, Key, KeyPart, Override, Pattern};
pub use rule::{Durability, Effective, Missing, Mode, OnError, Rule};
