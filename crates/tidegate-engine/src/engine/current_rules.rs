//! The rules in force, for threads that look at them all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};

use super::ruleset::Ruleset;

/// The rules in force. A guard from before stays good as long as they are the same.
pub(super) struct CurrentRules {
    rules: ArcSwap<Ruleset>,
    /// The address of the rules. Rules that a guard holds keep their address, and no others get it,
    /// so a guard with this address is one of these rules.
    address: AtomicUsize,
}

/// Rules that stay in memory as long as they are guarded.
pub(super) type GuardedRules = Guard<Arc<Ruleset>>;

impl CurrentRules {
    pub(super) fn new(rules: Ruleset) -> Self {
        let rules = Arc::new(rules);
        let address = AtomicUsize::new(Arc::as_ptr(&rules).addr());
        Self { rules: ArcSwap::new(rules), address }
    }

    /// The rules in force.
    #[inline(always)]
    pub(super) fn load(&self) -> GuardedRules {
        self.rules.load()
    }

    /// The rules in force, for longer.
    pub(super) fn load_full(&self) -> Arc<Ruleset> {
        self.rules.load_full()
    }

    /// Puts other rules into force. Calls are one after the other, in the order of the versions.
    pub(super) fn store(&self, rules: Arc<Ruleset>) {
        let address = Arc::as_ptr(&rules).addr();
        self.rules.store(rules);
        // Who sees this loads the new rules, which are there.
        self.address.store(address, Ordering::Release);
    }

    /// Makes these the rules in force; a read and a comparison where they are so already.
    #[inline(always)]
    pub(super) fn renew(&self, known: &mut Option<GuardedRules>) {
        if !self.is_current(known) {
            *known = Some(self.load());
        }
    }

    /// The same for one of many that are kept at the same time. They count as references to the
    /// rules: a thread has only a few guards that do not.
    #[inline]
    pub(super) fn renew_counted(&self, known: &mut Option<GuardedRules>) {
        if !self.is_current(known) {
            *known = Some(Guard::from_inner(self.load_full()));
        }
    }

    #[inline(always)]
    fn is_current(&self, known: &Option<GuardedRules>) -> bool {
        let address = self.address.load(Ordering::Acquire);
        known.as_ref().is_some_and(|known| Arc::as_ptr(known).addr() == address)
    }
}
