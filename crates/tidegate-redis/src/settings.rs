//! What can be set.

use std::time::Duration;

use tidegate_engine::shared::RecordKey;

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
    /// How many replicas have to have what is flushed or synced.
    pub(crate) replicas: u32,
    /// What this node is called.
    pub(crate) node_name: String,
}

impl Settings {
    /// The name of the policy's record on the server.
    pub(crate) fn control_name(&self) -> String {
        format!("{}:{}", self.namespace, RecordKey::control())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "tidegate".to_owned(),
            deadline: Duration::from_millis(50),
            edit_lead: Duration::from_secs(1),
            kept_longer: Duration::from_secs(60),
            replicas: 0,
            node_name: default_name(),
        }
    }
}
