//! What a policy says that was probably not meant.

use super::Rule;
use super::check::Finding;

pub(crate) fn lint(_rules: &[Rule]) -> Vec<Finding> {
    Vec::new()
}
