//! How durable a server makes what it acknowledges, and what has to be waited for beyond that.

use std::fmt;

use tidegate_policy::policy::{Durability, Policy};

use crate::facts::{LogSync, ServerFacts};

/// What has to be waited for, once a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// So many replicas have it.
    pub(crate) replicas: u32,
    /// The log is synced.
    pub(crate) log: bool,
}

impl Waits {
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Both of two.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { replicas: self.replicas.max(other.replicas), log: self.log || other.log }
    }
}

/// A rule sets a durability that the server lacks.
#[derive(Clone, PartialEq, Eq)]
pub struct DurabilityError {
    rule: String,
    level: Durability,
    reason: String,
}

impl fmt::Display for DurabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Durability::Memory => "memory",
            Durability::Flush => "flush",
            Durability::Fsync => "fsync",
        };
        let Self { rule, reason, .. } = self;
        write!(f, "the store cannot provide durability = \"{level}\" of rule {rule}: {reason}")
    }
}

tidegate_core::debug_as_displayed!(DurabilityError);

impl std::error::Error for DurabilityError {}

impl ServerFacts {
    /// What a level needs beyond the acknowledgement, or why the server cannot provide it.
    pub(crate) fn waits(&self, level: Durability, replicas: u32) -> Result<Waits, String> {
        if level == Durability::Memory {
            return Ok(Waits::default());
        }
        if replicas > 0 && !self.can_wait {
            return Err("its user may not use WAIT (grant +wait)".to_owned());
        }
        if replicas > self.replicas {
            let connected = self.replicas;
            return Err(format!(
                "it has {connected} connected replicas, and store_replicas is {replicas}"
            ));
        }
        let log = match (level, self.log) {
            (Durability::Fsync, LogSync::None) => {
                return Err("it has no log (set appendonly yes)".to_owned());
            }
            (Durability::Fsync, LogSync::Unseen) => {
                return Err(format!(
                    "WAITAOF is not available on {self}, or to its user (grant +waitaof), and it \
                     is not known that appendfsync is always (set that, and grant +config|get)"
                ));
            }
            (Durability::Fsync, LogSync::Later) => true,
            _ => false,
        };
        Ok(Waits { replicas, log })
    }

    /// What the server can do for a level.
    pub(crate) fn best_waits(&self, level: Durability, replicas: u32) -> Waits {
        if level == Durability::Memory {
            return Waits::default();
        }
        let replicas = if self.can_wait { replicas.min(self.replicas) } else { 0 };
        Waits { replicas, log: level == Durability::Fsync && self.log == LogSync::Later }
    }

    /// The highest level that the server provides.
    pub(crate) fn offers(&self, replicas: u32) -> Durability {
        let levels = [Durability::Fsync, Durability::Flush];
        let offered = levels.into_iter().find(|level| self.waits(*level, replicas).is_ok());
        offered.unwrap_or(Durability::Memory)
    }

    /// The first rule of a policy that sets a durability which the server lacks.
    pub(crate) fn check(&self, policy: &Policy, replicas: u32) -> Result<(), DurabilityError> {
        for rule in policy.rules() {
            let Some(level) = rule.durability() else { continue };
            if let Err(reason) = self.waits(level, replicas) {
                return Err(DurabilityError { rule: rule.id().to_string(), level, reason });
            }
        }
        Ok(())
    }

    /// Whether `WAITAOF` of this version waits for the disk. From Redis 7.2.2 until 8.0, and in Valkey,
    /// it may return before the log is synced, unless `appendfsync` is `always`.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.program == "redis" && self.version >= [8, 0, 0]
    }
}

#[cfg(test)]
mod tests;
