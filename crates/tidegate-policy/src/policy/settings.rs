//! The settings of a policy file that decisions and stores need.

use tidegate_table::table::WhenFull;

use crate::request_path::EncodedSlash;
use crate::store_bounds::StoreBounds;

/// The settings of a policy besides its rules: what decisions and stores need of the `[server]` table.
/// What a daemon needs is in [`ServerSettings`](super::ServerSettings).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EngineSettings {
    pub(crate) max_keys: u64,
    pub(crate) max_holds: u64,
    pub(crate) max_idempotency_keys: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) unmatched: Unmatched,
    /// The share of the keys for which denials are enforced, in millionths.
    pub(crate) enforce_ppm: u32,
    pub(crate) quota_mode: bool,
    pub(crate) encoded_slash: EncodedSlash,
    pub(crate) revision: Option<u64>,
}

/// The decision on a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is allowed, and counted.
    #[default]
    Allow,
    /// It is denied.
    Deny,
}

impl EngineSettings {
    /// The default maximum number of keys.
    pub const DEFAULT_MAX_KEYS: u64 = 1 << 24;

    /// Denials are enforced for all keys.
    pub const ENFORCE_ALL_PPM: u32 = 1_000_000;

    /// The number of this revision of the policy. Where several engines share a store, the policy
    /// with the higher one is in force.
    #[must_use]
    pub const fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// The maximum number of keys, in total over all rules.
    #[must_use]
    pub const fn max_keys(&self) -> u64 {
        self.max_keys
    }

    /// The maximum number of open reservations and leases.
    #[must_use]
    pub const fn max_holds(&self) -> u64 {
        self.max_holds
    }

    /// The maximum number of idempotency keys that are kept.
    #[must_use]
    pub const fn max_idempotency_keys(&self) -> u64 {
        self.max_idempotency_keys
    }

    /// What a store keeps at most.
    #[must_use]
    pub fn bounds(&self) -> StoreBounds {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        StoreBounds {
            max_holds: count(self.max_holds),
            max_idempotency_keys: count(self.max_idempotency_keys),
            ..StoreBounds::new(count(self.max_keys), self.when_full)
        }
    }

    /// What happens to keys beyond [`max_keys`](Self::max_keys).
    #[must_use]
    pub const fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// The decision on a request that no rule matches.
    #[must_use]
    pub const fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// The share of the keys for which denials are enforced, in millionths.
    #[must_use]
    pub const fn enforce_ppm(&self) -> u32 {
        self.enforce_ppm
    }

    /// Whether all descriptors of files of envoyproxy/ratelimit are in quota mode.
    #[must_use]
    pub const fn quota_mode(&self) -> bool {
        self.quota_mode
    }

    /// What becomes of `%2F` and `%5C` in the attribute `path`.
    #[must_use]
    pub const fn encoded_slash(&self) -> EncodedSlash {
        self.encoded_slash
    }
}

/// The defaults.
impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_keys: Self::DEFAULT_MAX_KEYS,
            max_holds: StoreBounds::DEFAULT_MAX_HOLDS as u64,
            max_idempotency_keys: StoreBounds::DEFAULT_MAX_IDEMPOTENCY_KEYS as u64,
            when_full: WhenFull::Share,
            unmatched: Unmatched::Allow,
            enforce_ppm: Self::ENFORCE_ALL_PPM,
            quota_mode: false,
            encoded_slash: EncodedSlash::Decode,
            revision: None,
        }
    }
}
