//! How any state is packed into a slot, and lines of either width.

use tidegate_core::{Bucket, Cooldown, Period, QuotaState, Timestamp, Window};
use tidegate_table::table::keyed::sealed::Pack;
use tidegate_table::table::keyed::{pack_sliding, unpack_sliding};
use tidegate_table::table::{
    Line, Locked, Narrow, NarrowLine, SlotTable, Tagged, TaggedLine, Wide, WideLine,
};

use super::MemoryStore;
use crate::any_limit::{AnyLimit, AnyState, DecisionTime};

/// Which table a state is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Narrow,
    Wide,
    None,
}

impl Width {
    #[inline(always)]
    pub(super) fn of(limit: &AnyLimit) -> Self {
        match limit {
            // They come first in `AnyLimit`, so that one comparison tells.
            AnyLimit::Bucket(_) | AnyLimit::Window(_) | AnyLimit::Cooldown(_) => Self::Narrow,
            AnyLimit::Sliding(_) | AnyLimit::Quota(_) => Self::Wide,
            AnyLimit::Slots(_) => Self::None,
        }
    }
}

/// Dispatches on the algorithm of a limit whose states are [narrow](Width::Narrow).
macro_rules! narrow {
    ($any_limit:expr, $limit:ident => $narrow:expr, $other:expr) => {
        match $any_limit {
            AnyLimit::Bucket($limit) => $narrow,
            AnyLimit::Window($limit) => $narrow,
            AnyLimit::Cooldown($limit) => $narrow,
            AnyLimit::Sliding(_) | AnyLimit::Quota(_) | AnyLimit::Slots(_) => $other,
        }
    };
}

pub(super) use narrow;

/// A state of this limit in a narrow slot.
#[inline(always)]
fn unpacked<A: Pack<Line = NarrowLine>>(_: &A, packed: Narrow) -> AnyState
where
    AnyState: From<A::State>,
{
    A::unpack(packed).into()
}

/// A line whose slots hold states of several limits.
///
/// Units on hold are not in the slot; a slot whose key has a hold is pinned.
pub(crate) trait SlotLine: Line<Packed = Tagged<Self::Words>> {
    /// Which table it is of.
    const WIDTH: Width;

    /// How a state is packed.
    type Words: Copy + PartialEq;

    /// The table of a store that has such lines.
    fn table(store: &MemoryStore) -> &SlotTable<Self>;

    fn load_state(&self, slot: usize, limit: &AnyLimit) -> AnyState;

    fn tag(&self, slot: usize) -> u32;

    fn pack(tag: u32, state: &AnyState, decided_at: DecisionTime) -> Self::Packed;

    /// When the period of a quota in a slot ends.
    fn ends_ns(&self, _slot: usize) -> u64 {
        u64::MAX
    }

    /// A time with which [`pack`](Self::pack) writes the same end again.
    fn decided_at(&self, slot: usize) -> DecisionTime {
        let ends_ns = self.ends_ns(slot);
        let ends = (ends_ns != u64::MAX).then(|| Timestamp::from_nanos(ends_ns));
        DecisionTime { now: Timestamp::ZERO, period: Period { index: 0, ends } }
    }
}

impl SlotLine for TaggedLine {
    const WIDTH: Width = Width::Narrow;

    type Words = Narrow;

    #[inline(always)]
    fn table(store: &MemoryStore) -> &SlotTable<Self> {
        &store.narrow
    }

    #[inline(always)]
    fn load_state(&self, slot: usize, limit: &AnyLimit) -> AnyState {
        let packed = self.load(slot).packed;
        narrow!(limit, limit => unpacked(limit, packed), unreachable!("{limit:?} is not narrow"))
    }

    #[inline(always)]
    fn tag(&self, slot: usize) -> u32 {
        self.load(slot).tag
    }

    #[inline(always)]
    fn pack(tag: u32, state: &AnyState, _decided_at: DecisionTime) -> Tagged<Narrow> {
        let packed = match state {
            AnyState::Bucket(state) => Bucket::pack(state),
            AnyState::Window(state) => Window::pack(state),
            AnyState::Cooldown(state) => Cooldown::pack(state),
            AnyState::Sliding(_) | AnyState::Quota(_) | AnyState::Slots { .. } => Narrow::default(),
        };
        Tagged { tag, packed }
    }
}

impl SlotLine for WideLine {
    const WIDTH: Width = Width::Wide;

    type Words = Wide;

    #[inline(always)]
    fn table(store: &MemoryStore) -> &SlotTable<Self> {
        &store.wide
    }

    fn load_state(&self, slot: usize, limit: &AnyLimit) -> AnyState {
        unpack_wide(&self.load(slot).packed, limit)
    }

    fn tag(&self, slot: usize) -> u32 {
        self.load(slot).tag
    }

    /// A quota also stores when its period ends, so that one without carry can be dropped then.
    fn pack(tag: u32, state: &AnyState, decided_at: DecisionTime) -> Tagged<Wide> {
        let mut packed = Wide::default();
        match state {
            AnyState::Sliding(state) => packed = pack_sliding(state),
            AnyState::Quota(state) => {
                let ends_ns = decided_at.period.ends.map_or(u64::MAX, Timestamp::as_nanos);
                let QuotaState { period, used, carried, debt, held_from, .. } = *state;
                packed[..6].copy_from_slice(&[period, used, carried, ends_ns, debt, held_from]);
            }
            _ => {}
        }
        Tagged { tag, packed }
    }

    fn ends_ns(&self, slot: usize) -> u64 {
        self.load(slot).packed[3]
    }
}

/// The state in the words of a wide slot.
#[inline(always)]
pub(crate) fn unpack_wide(words: &Wide, limit: &AnyLimit) -> AnyState {
    match limit {
        AnyLimit::Quota(_) => AnyState::Quota(QuotaState {
            period: words[0],
            used: words[1],
            carried: words[2],
            held: 0,
            debt: words[4],
            held_from: words[5],
        }),
        AnyLimit::Sliding(_) => AnyState::Sliding(unpack_sliding(*words)),
        other => unreachable!("{other:?} is not wide"),
    }
}

/// A line of either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnyLine<'a> {
    Narrow(&'a TaggedLine),
    Wide(&'a WideLine),
}

/// Calls the same function on a line of either width.
macro_rules! either {
    ($any:expr, $line:ident => $then:expr) => {
        match $any {
            Self::Narrow($line) => $then,
            Self::Wide($line) => $then,
        }
    };
}

impl<'a> AnyLine<'a> {
    pub(crate) fn address(self) -> usize {
        either!(self, line => std::ptr::from_ref(line).addr())
    }

    pub(crate) fn lock(self) -> AnyLocked<'a> {
        match self {
            Self::Narrow(line) => AnyLocked::Narrow(Locked::new(line)),
            Self::Wide(line) => AnyLocked::Wide(Locked::new(line)),
        }
    }
}

/// A locked line of either width.
#[derive(Debug)]
pub(crate) enum AnyLocked<'a> {
    Narrow(Locked<'a, TaggedLine>),
    Wide(Locked<'a, WideLine>),
}

impl AnyLocked<'_> {
    pub(crate) fn address(&self) -> usize {
        either!(self, line => line.address())
    }

    pub(crate) fn find(&self, hash: u64) -> Option<usize> {
        either!(self, line => line.find(hash))
    }

    pub(crate) fn is_pinned(&self, slot: usize) -> bool {
        either!(self, line => line.header.is_pinned(slot))
    }

    pub(crate) fn tag(&self, slot: usize) -> u32 {
        either!(self, line => line.load(slot).tag)
    }

    pub(crate) fn load_state(&self, slot: usize, limit: &AnyLimit) -> AnyState {
        either!(self, line => line.line().load_state(slot, limit))
    }

    /// Stores a state; the caller stores its held units.
    pub(crate) fn store(
        &mut self,
        slot: usize,
        tag: u32,
        state: &AnyState,
        decided_at: DecisionTime,
    ) {
        let is_pinned = state.held() > 0;
        match self {
            Self::Narrow(line) => {
                line.store(slot, TaggedLine::pack(tag, state, decided_at));
                line.header.set_pinned(slot, is_pinned);
            }
            Self::Wide(line) => {
                let mut packed = WideLine::pack(tag, state, decided_at);
                if let AnyState::Quota(state) = state
                    && state.period != decided_at.period.index
                {
                    // The request came late: the state's own period has another end.
                    let before = line.load(slot).packed;
                    packed.packed[3] = if before[0] == state.period { before[3] } else { u64::MAX };
                }
                line.store(slot, packed);
                line.header.set_pinned(slot, is_pinned);
            }
        }
    }

    #[cfg(feature = "durable")]
    pub(crate) fn set_pinned(&mut self, slot: usize, pinned: bool) {
        either!(self, line => line.header.set_pinned(slot, pinned));
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        either!(self, line => line.clear(slot));
    }
}
