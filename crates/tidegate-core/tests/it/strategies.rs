//! Random limits, amounts and walks through time, with a liking for edges.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tidegate_core::{Algorithm, Bucket, Cooldown, Debt, Rate, Sliding, Timestamp, Window};

use crate::model::{BucketPicture, CooldownPicture, Picture, SlidingPicture, WindowPicture, nanos};

/// As many cases as `PROPTEST_CASES` sets. A failure becomes its own test, not a seed file.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// A limit that has a model, and the numbers that make a walk interesting for it.
pub(crate) trait Subject: Algorithm {
    type Picture: Picture<Limit = Self>;

    /// The largest cost that can ever fit.
    fn capacity(&self) -> u64;

    /// Two lengths of time that matter to it.
    fn scales(&self) -> [u64; 2];

    /// Whether a denied check changes the state.
    fn is_extended_by_refusals(&self) -> bool {
        false
    }

    /// Whether a peek at a cost of `remaining + 1` has to be denied.
    fn counts_units(&self) -> bool {
        true
    }
}

impl Subject for Bucket {
    type Picture = BucketPicture;

    fn capacity(&self) -> u64 {
        self.capacity()
    }

    /// The time that a unit takes, and the time that a burst takes.
    fn scales(&self) -> [u64; 2] {
        let period = u128::from(nanos(self.rate().period()));
        [1, self.capacity()].map(|units| {
            let scale = (period * u128::from(units)).div_ceil(self.rate().count().into());
            u64::try_from(scale).unwrap_or(u64::MAX)
        })
    }
}

impl Subject for Window {
    type Picture = WindowPicture;

    fn capacity(&self) -> u64 {
        self.max()
    }

    fn scales(&self) -> [u64; 2] {
        [nanos(self.per()); 2]
    }
}

impl Subject for Sliding {
    type Picture = SlidingPicture;

    fn capacity(&self) -> u64 {
        self.max()
    }

    fn scales(&self) -> [u64; 2] {
        [nanos(self.per()), nanos(self.per()).div_ceil(self.parts().into())]
    }
}

impl Subject for Cooldown {
    type Picture = CooldownPicture;

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn scales(&self) -> [u64; 2] {
        [nanos(self.gap()); 2]
    }

    fn is_extended_by_refusals(&self) -> bool {
        *self == self.extended_by_refusals()
    }

    fn counts_units(&self) -> bool {
        false
    }
}

/// An amount, relative to the capacity of the limit that it is put to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    Exactly(u64),
    Sixteenths(u64),
    CapacityAnd(u64),
}

impl Amount {
    pub(crate) fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Exactly(amount) => amount,
            Self::Sixteenths(share) => capacity / 16 * share + capacity % 16 * share / 16,
            Self::CapacityAnd(more) => capacity.saturating_add(more),
        }
    }
}

/// A move through time, in nanoseconds or relative to one of the limit's scales.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    By(i64),
    Sixteenths { scale: usize, share: i64, and: i64 },
    To(u64),
}

impl Move {
    pub(crate) fn from(self, now: u64, scales: [u64; 2]) -> u64 {
        let moved = match self {
            Self::By(nanos) => i128::from(now) + i128::from(nanos),
            Self::Sixteenths { scale, share, and } => {
                let moved = i128::from(scales[scale]) * i128::from(share) / 16;
                i128::from(now) + moved + i128::from(and)
            }
            Self::To(nanos) => nanos.into(),
        };
        u64::try_from(moved.clamp(0, Timestamp::MAX.as_nanos().into())).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Check(Amount),
    CheckPostpaid(Amount),
    Peek(Amount),
    Refund(Amount),
    Hold(Amount),
    Commit(Amount, Amount),
    Cancel(Amount),
    /// Continues under the limit of this number.
    Edit(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) time: Move,
    pub(crate) op: Op,
}

pub(crate) fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        4 => (0..=3_u64).prop_map(Amount::Exactly),
        6 => (0..=16_u64).prop_map(Amount::Sixteenths),
        2 => (0..=2_u64).prop_map(Amount::CapacityAnd),
        1 => any::<u64>().prop_map(Amount::Exactly),
        1 => Just(Amount::Exactly(u64::MAX)),
    ]
}

/// Moves forward only.
pub(crate) fn forward() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => Just(Move::By(0)),
        2 => (0..=3_i64).prop_map(Move::By),
        8 => (0..2_usize, 0..=20_i64, 0..=1_i64)
            .prop_map(|(scale, share, and)| Move::Sixteenths { scale, share, and }),
        1 => (0..2_usize, 0..=1_000_i64, Just(0))
            .prop_map(|(scale, share, and)| Move::Sixteenths { scale, share, and }),
    ]
}

/// Moves in any direction, and leaps.
pub(crate) fn anywhere() -> impl Strategy<Value = Move> {
    prop_oneof![
        12 => forward(),
        2 => (-3..=0_i64).prop_map(Move::By),
        3 => (0..2_usize, -40..=0_i64, -1..=1_i64)
            .prop_map(|(scale, share, and)| Move::Sixteenths { scale, share, and }),
        1 => select(vec![0, 1, Timestamp::MAX.as_nanos() - 1, Timestamp::MAX.as_nanos()])
            .prop_map(Move::To),
        1 => (0..=Timestamp::MAX.as_nanos()).prop_map(Move::To),
    ]
}

/// Operations; edits pick one of `limits`.
pub(crate) fn op(limits: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => amount().prop_map(Op::Check),
        2 => amount().prop_map(Op::Peek),
        2 => amount().prop_map(Op::Refund),
        3 => amount().prop_map(Op::Hold),
        3 => (amount(), amount()).prop_map(|(units, actual)| Op::Commit(units, actual)),
        2 => amount().prop_map(Op::Cancel),
        if limits > 1 { 2 } else { 1 } => (0..limits).prop_map(Op::Edit),
    ]
}

/// Operations, also with costs that are booked whatever is left.
pub(crate) fn op_with_postpaid(limits: usize) -> impl Strategy<Value = Op> {
    prop_oneof![5 => op(limits), 1 => amount().prop_map(Op::CheckPostpaid)]
}

/// Steps, also with costs that are booked whatever is left.
pub(crate) fn steps_with_postpaid(
    time: impl Strategy<Value = Move>,
    limits: usize,
) -> impl Strategy<Value = Vec<Step>> {
    let step = (time, op_with_postpaid(limits)).prop_map(|(time, op)| Step { time, op });
    prop::collection::vec(step, 1..40)
}

pub(crate) fn steps(
    time: impl Strategy<Value = Move>,
    limits: usize,
) -> impl Strategy<Value = Vec<Step>> {
    let step = (time, op(limits)).prop_map(|(time, op)| Step { time, op });
    prop::collection::vec(step, 1..40)
}

/// A length of time: from a nanosecond to the whole clock, primes and round ones.
pub(crate) fn length() -> impl Strategy<Value = Duration> {
    let edges = vec![
        1,
        2,
        7,
        1_000,
        999_983,
        1_000_000,
        999_999_937,
        1_000_000_000,
        60_000_000_000,
        86_400_000_000_000,
        3_155_760_000_000_000_000,
        Timestamp::MAX.as_nanos() - 1,
        Timestamp::MAX.as_nanos(),
    ];
    prop_oneof![
        4 => select(edges),
        2 => 1..=100_u64,
        2 => 1..=10_000_000_000_u64,
        1 => 1..=Timestamp::MAX.as_nanos(),
    ]
    .prop_map(Duration::from_nanos)
}

fn count() -> impl Strategy<Value = u64> {
    let edges = vec![1, 2, 3, 7, 10, 97, 100, 1_000, 65_537, 600_000_000, 1_000_000_000_000];
    prop_oneof![
        5 => select(edges),
        3 => 1..=100_u64,
        1 => 1..=u64::from(u32::MAX),
        1 => Just(u64::from(u32::MAX)),
        1 => 1..=u64::MAX,
    ]
}

pub(crate) fn bucket() -> impl Strategy<Value = Bucket> {
    let debt = prop_oneof![3 => Just(0), 1 => 1..=10_u64, 1 => count()];
    (count(), length(), count(), debt).prop_filter_map("not exact", |(n, period, burst, debt)| {
        Bucket::try_new(Rate::try_new(n, period).ok()?, burst)
            .ok()?
            .with_debt(Debt::up_to(debt.min(u64::MAX - 1)))
            .ok()
    })
}

/// Buckets whose edits into one another are exact: their ticks have small common multiples.
pub(crate) fn related_bucket() -> impl Strategy<Value = Bucket> {
    let period = select(vec![1_000_000_000_u64, 3_000_000_000, 7_000_000_000, 60_000_000_000]);
    (1..=50_u64, period, prop_oneof![1..=20_u64, 1..=1_000_000_u64], 0..=3_u64).prop_map(
        |(n, period, burst, debt)| {
            let rate = Rate::new(n, Duration::from_nanos(period));
            Bucket::try_new(rate, burst).unwrap().with_debt(Debt::up_to(debt)).unwrap()
        },
    )
}

pub(crate) fn window() -> impl Strategy<Value = Window> {
    (count(), length(), any::<bool>()).prop_map(|(max, per, aligned)| {
        let window = Window::new(max.min(u32::MAX.into()), per);
        if aligned { window.aligned() } else { window }
    })
}

pub(crate) fn sliding() -> impl Strategy<Value = Sliding> {
    let max = prop_oneof![4 => 1..=8_u64, 4 => 9..=40_u64, 1 => 1..=u64::from(u32::MAX)];
    let parts = prop_oneof![1..=4_u32, 1..=15_u32];
    (max, length(), parts).prop_filter_map("too many parts", |(max, per, parts)| {
        Sliding::try_new(max, per, parts).ok()
    })
}

pub(crate) fn cooldown() -> impl Strategy<Value = Cooldown> {
    (length(), any::<bool>()).prop_map(|(gap, extended)| {
        let cooldown = Cooldown::new(gap);
        if extended { cooldown.extended_by_refusals() } else { cooldown }
    })
}
