//! What can be set.

use std::time::Duration;

use crate::nodes::default_name;

/// How a store uses its server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) deadline: Duration,
    /// How far ahead of time edits take force.
    pub(crate) edit_lead: Duration,
    /// How much longer values are kept than they are needed.
    pub(crate) kept_longer: Duration,
    /// Whether records are on all nodes of a cluster.
    pub(crate) is_spread: bool,
    /// How many replicas have to have what is flushed or synced.
    pub(crate) replicas: u32,
    /// What this node is called.
    pub(crate) node_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "tidegate".to_owned(),
            deadline: Duration::from_millis(50),
            edit_lead: Duration::from_secs(1),
            kept_longer: Duration::from_secs(60),
            is_spread: false,
            replicas: 0,
            node_name: default_name(),
        }
    }
}
