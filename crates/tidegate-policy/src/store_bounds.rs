use tidegate_table::table::WhenFull;

/// How much a store keeps at most, in total over all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreBounds {
    /// Keys.
    pub max_keys: usize,
    /// What happens to new keys beyond the maximum.
    pub when_full: WhenFull,
    /// Open reservations and leases. Of these a domain has at most half.
    pub max_holds: usize,
    /// Idempotency keys. Beyond it the domain with most loses its oldest.
    pub max_idempotency_keys: usize,
}

impl StoreBounds {
    /// The default maximum of open reservations and leases.
    pub const DEFAULT_MAX_HOLDS: usize = 1 << 18;

    /// The default maximum of idempotency keys.
    pub const DEFAULT_MAX_IDEMPOTENCY_KEYS: usize = 1 << 20;

    /// A maximum of keys, and the defaults for everything else.
    #[must_use]
    pub const fn new(max_keys: usize, when_full: WhenFull) -> Self {
        Self {
            max_keys,
            when_full,
            max_holds: Self::DEFAULT_MAX_HOLDS,
            max_idempotency_keys: Self::DEFAULT_MAX_IDEMPOTENCY_KEYS,
        }
    }

    /// The maximum of open reservations and leases of one domain.
    #[doc(hidden)]
    #[must_use]
    pub const fn max_holds_of_domain(&self) -> usize {
        self.max_holds.div_ceil(2)
    }
}
