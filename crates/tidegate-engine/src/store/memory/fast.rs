//! The fast path: known keys without holds or old limits.
//!
//! States stay packed, and decisions are written into the caller's buffer. Everything else is left
//! to the other paths, with nothing changed. Each step is a function of its own: in one large
//! function most values would be moved to the stack and back.

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Charging, Mode};
use tidegate_table::table::{Locked, give_way, is_unchanged};

use super::{MemoryStore, Plan, Width};
use crate::any_limit::{Decisions, INLINE};
use crate::plan::{FastCharge, FastCharges, FastList};
use mixed::WideCharge;

mod mixed;
mod narrow;

/// What a limit decides on a charge, if its state is plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    Denied,
    /// The key is not in the line.
    Elsewhere,
    /// The key has a hold, or counts under an older limit.
    NotPlain,
}

/// Why charges were not decided. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    /// They need another path, or a state by which they are denied has changed.
    OtherPath,
    /// Another thread has written to a line that they change.
    Lost,
}

impl MemoryStore {
    /// Decides the charges of a plan; `None` if they are too many or need another path.
    #[inline(always)]
    pub(super) fn charge_planned(
        &self,
        Plan { version, charges, .. }: &Plan<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        if charges.len() > INLINE
            || charges.iter().any(|charge| charge.charging != Charging::Allowed)
        {
            return None;
        }
        let mut list: FastList<'_> = [const { None }; INLINE];
        for (fast, charge) in list.iter_mut().zip(charges) {
            self.fetch_line(fast.insert(charge.fast()));
        }
        self.charge_fast(FastCharges { version: *version, now, list: &list }, decisions)
    }

    /// Decides a few plain charges; `None` if they need another path.
    #[inline(always)]
    pub(super) fn charge_fast(
        &self,
        FastCharges { version, now, list }: FastCharges<'_>,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        for losses in 0..MOST_LOSSES {
            decisions.clear();
            match self.charge_list(list, (version, now), decisions) {
                Ok(is_allowed) => return Some(is_allowed),
                Err(Undecided::OtherPath) => return None,
                Err(Undecided::Lost) => give_way(losses),
            }
        }
        None
    }

    #[inline(always)]
    fn charge_list(
        &self,
        list: &FastList<'_>,
        at: (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        match list {
            [Some(charge), None, _] => match Width::of(charge.limit) {
                Width::Narrow => self.charge_one(charge, at, decisions),
                Width::Wide => self.charge_one_wide(charge, at, decisions),
                Width::None => Err(Undecided::OtherPath),
            },
            [Some(a), Some(b), None] => self.charge_several([a, b], at, decisions),
            [Some(a), Some(b), Some(c)] => self.charge_several([a, b, c], at, decisions),
            [None, ..] => Err(Undecided::OtherPath),
        }
    }

    /// Prefetches the home line of a charge's key.
    #[inline(always)]
    pub(in crate::store) fn fetch_line(&self, charge: &FastCharge<'_>) {
        match Width::of(charge.limit) {
            Width::Narrow => {
                self.narrow.fetch(charge.hash);
            }
            Width::Wide => {
                self.wide.fetch(charge.hash);
            }
            Width::None => {}
        }
    }

    #[inline(always)]
    fn charge_several<const N: usize>(
        &self,
        list: [&FastCharge<'_>; N],
        at: (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        if list.iter().all(|charge| Width::of(charge.limit) == Width::Narrow) {
            self.charge_narrow(list, at, decisions)
        } else {
            self.charge_mixed(list, at, decisions)
        }
    }

    #[inline(always)]
    fn charge_one(
        &self,
        charge: &FastCharge<'_>,
        (version, now): (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        let mut charged = None;
        let fit = self.evaluate_narrow(charge, now, decisions, &mut charged);
        let charged = charged.as_ref().ok_or(Undecided::OtherPath)?;
        let line = charged.line;
        if charged.changes() {
            let mut locked = Locked::if_unchanged(line, charged.header).ok_or(Undecided::Lost)?;
            if self.is_in_force(version).is_err() || !charged.is_still_true(&locked) {
                return Err(Undecided::OtherPath);
            }
            charged.store(&mut locked);
        } else if !is_unchanged(line, charged.header) {
            return Err(Undecided::OtherPath);
        }
        Ok(fit == Fit::Fits || charge.mode == Mode::Shadow)
    }

    #[inline(never)]
    fn charge_one_wide(
        &self,
        charge: &FastCharge<'_>,
        (version, now): (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        let line = self.wide.fetch(charge.hash).home;
        let (charged, fit) =
            WideCharge::evaluate(line, charge, now, decisions).ok_or(Undecided::OtherPath)?;
        if charged.changes() {
            let mut locked = Locked::if_unchanged(line, charged.header).ok_or(Undecided::Lost)?;
            if self.is_in_force(version).is_err() || !charged.is_still_true(&locked) {
                return Err(Undecided::OtherPath);
            }
            charged.store(&mut locked);
        } else if !is_unchanged(line, charged.header) {
            return Err(Undecided::OtherPath);
        }
        Ok(fit == Fit::Fits || charge.mode == Mode::Shadow)
    }
}

/// How often charges lose their lines to other threads before they take another path. The next one
/// tries as often, and after that lines are locked before they are read.
const MOST_LOSSES: u32 = 4;
