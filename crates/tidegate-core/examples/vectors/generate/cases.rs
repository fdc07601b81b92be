//! The cases, as readable scripts.
//!
//! A script is a list of operations, separated by semicolons: `check 3`, `commit 5 2`, or `edit 1`
//! for the case's limit of that number. `@250ms` before an operation sets the time, `period 3
//! 4000ms` the open period and when it ends (`host`: when the host closes it). Both stay until they
//! are set again. `max` is 2^64 − 1, `end` the last moment of the clock.

use tidegate_core::{Carry, Debt, Timestamp};

use super::key::{Limit, Op};
use super::{Case, script};

/// A name, the limit it starts under and those it is edited to, and a script.
type Raw = (&'static str, &'static [Limit], &'static str);

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * SECOND;
const END: u64 = Timestamp::MAX.as_nanos();

const ONE: Limit = bucket_of(1, SECOND, 1);
const TEN: Limit = bucket_of(1, SECOND, 10);
const MINUTE: Limit = window_of(10, 60 * SECOND);
const ON_GRID: Limit = aligned_of(10, 60 * SECOND);
const LOG: Limit = sliding_of(3, 10 * SECOND, 10);
const PARTS: Limit = sliding_of(20, 10 * SECOND, 10);
const PLAIN: Limit = cooldown_of(5 * SECOND);
const EXTENDED: Limit = extended_of(5 * SECOND);
const LAPSES: Limit = quota_of_10(Carry::Nothing, Debt::All);
const UP_TO_5: Limit = quota_of_10(Carry::UpTo(5), Debt::All);
const ALL: Limit = quota_of_10(Carry::All, Debt::All);
const LAPSES_NO_DEBT: Limit = quota_of_10(Carry::Nothing, Debt::Nothing);
const LAPSES_DEBT_UP_TO_4: Limit = quota_of_10(Carry::Nothing, Debt::UpTo(4));
const UP_TO_5_NO_DEBT: Limit = quota_of_10(Carry::UpTo(5), Debt::Nothing);

const fn quota_of_10(carry: Carry, debt: Debt) -> Limit {
    Limit::Quota { max: 10, carry, debt }
}

const fn bucket_of(count: u64, period_ns: u64, burst: u64) -> Limit {
    Limit::Bucket { count, period_ns, burst, debt: Debt::Nothing }
}

const fn overdrawn_of(count: u64, period_ns: u64, burst: u64) -> Limit {
    Limit::Bucket { count, period_ns, burst, debt: Debt::All }
}

const fn window_of(max: u64, per_ns: u64) -> Limit {
    Limit::Window { max, per_ns, aligned: false }
}

const fn aligned_of(max: u64, per_ns: u64) -> Limit {
    Limit::Window { max, per_ns, aligned: true }
}

const fn sliding_of(max: u64, per_ns: u64, parts: u32) -> Limit {
    Limit::Sliding { max, per_ns, parts }
}

const fn cooldown_of(gap_ns: u64) -> Limit {
    Limit::Cooldown { gap_ns, extended_by_refusals: false }
}

const fn extended_of(gap_ns: u64) -> Limit {
    Limit::Cooldown { gap_ns, extended_by_refusals: true }
}

pub(crate) fn bucket() -> Vec<Case> {
    let walks = [
        walk(
            "walk in whole microseconds, 50 per second, burst 20",
            bucket_of(50, SECOND, 20),
            12,
            [200 * MS, 20 * MS],
        ),
        walk("walk, 3 per second, burst 10", bucket_of(3, SECOND, 10), 7, [2 * SECOND, 1]),
        walk(
            "walk, 7 per 999999937 ns, burst 100",
            bucket_of(7, 999_999_937, 100),
            40,
            [9 * SECOND, 1],
        ),
    ];
    read(BUCKET).chain(walks).collect()
}

pub(crate) fn window() -> Vec<Case> {
    let walks = [
        walk("walk in whole microseconds", window_of(20, SECOND), 9, [400 * MS, US]),
        walk("walk on the grid", aligned_of(20, SECOND), 9, [400 * MS, US]),
        walk("walk in nanoseconds", window_of(97, 999_999_937), 40, [400 * MS, 1]),
    ];
    read(WINDOW).chain(walks).collect()
}

pub(crate) fn sliding() -> Vec<Case> {
    let walks = [
        walk("walk in whole microseconds, log", sliding_of(8, SECOND, 10), 4, [300 * MS, US]),
        walk("walk in whole microseconds, parts", sliding_of(50, SECOND, 10), 20, [300 * MS, US]),
        walk("walk in nanoseconds, parts", sliding_of(97, 999_999_937, 7), 40, [400 * MS, 1]),
    ];
    read(SLIDING).chain(walks).collect()
}

pub(crate) fn cooldown() -> Vec<Case> {
    let walks = [
        walk("walk in whole microseconds", PLAIN, 3, [4 * SECOND, US]),
        walk("walk in whole microseconds, denials extend", EXTENDED, 3, [6 * SECOND, US]),
    ];
    read(COOLDOWN).chain(walks).collect()
}

pub(crate) fn quota() -> Vec<Case> {
    read(QUOTA).collect()
}

/// The cases of a table.
fn read(table: &'static [Raw]) -> impl Iterator<Item = Case> {
    table.iter().map(|(name, limits, text)| script::case(name, limits, text))
}

/// Pseudo-random numbers, the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A long walk: costs up to `most`, steps up to `step_ns`, in multiples of `grain_ns`.
fn walk(name: &str, limit: Limit, most: u64, [step_ns, grain_ns]: [u64; 2]) -> Case {
    let mut dice = Dice(most ^ step_ns);
    let mut case = Case::new(name, limit);
    let (mut at_ns, mut held) = (0, 0);
    for _ in 0..60 {
        at_ns += dice.below(step_ns / grain_ns + 1) * dice.below(3) / 2 * grain_ns;
        let (roll, amount) = (dice.below(10), dice.below(most + 1));
        let op = match roll {
            0 => Op::Peek { cost: amount },
            1 => Op::Refund { units: amount },
            2 if held == 0 => {
                held = amount / 2;
                Op::Hold { units: held }
            }
            3 | 4 if held > 0 => {
                let units = std::mem::take(&mut held);
                if roll == 3 { Op::Commit { units, actual: amount } } else { Op::Cancel { units } }
            }
            _ => Op::Check { cost: amount },
        };
        case = case.at_ns(at_ns).op(op);
    }
    case
}

const BUCKET: &[Raw] = &[
    (
        "burst, then one by one",
        &[bucket_of(1, SECOND, 3)],
        "check 1; check 1; check 1; check 1; @999ms check 1; @1000ms check 1; check 1; \
         @10000ms peek 0; check 3; check 1",
    ),
    (
        "two half intervals make one unit",
        &[ONE],
        "check 1; @500ms check 1; @1000ms check 1; @1500ms check 1",
    ),
    (
        "cost of zero, cost above the burst",
        &[TEN],
        "check 0; check 11; check max; check 10; check 0; check 11",
    ),
    (
        "peeks change nothing",
        &[TEN],
        "peek 10; peek 11; peek 3; check 4; peek 7; peek 6; @500ms peek 7",
    ),
    (
        "refund returns no more than is outstanding",
        &[TEN],
        "refund 1; check 4; refund 1; @1500ms refund 4; refund 1; check 10; check 1",
    ),
    (
        "held units do not refill",
        &[TEN],
        "hold 6; check 5; check 4; @60000ms peek 0; check 5; check 4; cancel 6; peek 0",
    ),
    (
        "commit of less, of all, of more",
        &[TEN],
        "hold 5; commit 5 2; peek 0; hold 3; commit 3 3; peek 0; hold 1; commit 1 9; peek 0; \
         commit 4 1; @10000ms peek 0",
    ),
    (
        "hold and cancel is the identity",
        &[TEN],
        "check 3; hold 7; check 1; cancel 7; peek 7; peek 8; @500ms hold 4; @2500ms cancel 4; \
         peek 0",
    ),
    (
        "commit into debt",
        &[Limit::Bucket { count: 1, period_ns: SECOND, burst: 5, debt: Debt::UpTo(10) }],
        "hold 5; commit 5 12; check 0; check 1; @6999ms check 0; @7000ms check 0; check 1; \
         @8000ms check 1; hold 1; @9000ms commit 0 100",
    ),
    (
        "clock steps back",
        &[bucket_of(1, SECOND, 5)],
        "@60000ms check 5; @59000ms check 1; check 0; @60000ms check 1; @61000ms check 1; \
         @0ms check 1",
    ),
    (
        "burst lowered and raised again",
        &[bucket_of(100, SECOND, 100), bucket_of(100, SECOND, 5), bucket_of(100, SECOND, 200)],
        "check 90; edit 1; peek 1; peek 0; edit 0; peek 0; @50ms edit 2; peek 0; check 115; \
         check 1",
    ),
    (
        "rate edited",
        &[TEN, bucket_of(2, SECOND, 10), bucket_of(1, 3 * SECOND, 10)],
        "check 10; @500ms edit 1; check 1; @750ms check 1; edit 2; @3749ms check 1; \
         @3750ms check 1",
    ),
    (
        "rate edited with holds",
        &[TEN, bucket_of(10, SECOND, 8)],
        "hold 4; check 6; edit 1; peek 0; @400ms check 4; cancel 4; check 4; check 1",
    ),
    (
        "600 million per second, in nanoseconds",
        &[bucket_of(600_000_000, SECOND, 3)],
        "check 3; check 1; @1ns check 1; @2ns check 1; @3ns check 1; @4ns check 1; \
         @5ns check 1; @10ns check 3; check 1",
    ),
    (
        "thirds of a second",
        &[bucket_of(3, SECOND, 1)],
        "check 1; check 1; @333333333ns check 1; @333333334ns check 1; check 1; \
         @666666667ns check 1; @666666668ns check 1",
    ),
    (
        "one per day, a million at once",
        &[bucket_of(1, DAY, 1_000_000)],
        "check 999999; check 1; check 1; check 1000000; @86400000ms check 1; check 1",
    ),
    (
        "10^12 per second",
        &[bucket_of(1_000_000_000_000, SECOND, 1_000_000)],
        "check 1000000; check 1; @1ns check 1001; check 1000; check 1; @1001ns peek 0",
    ),
    (
        "end of the clock",
        &[bucket_of(1, SECOND, 2)],
        "@end-1000000000 check 2; check 1; check 2; @end check 1; check 1",
    ),
    ("one per 292 years", &[bucket_of(1, END, 2)], "check 2; check 1; @1ns check 1; @end check 1"),
    (
        "largest burst",
        &[bucket_of(1_000_000_000, SECOND, u64::MAX)],
        "check max; check 1; @7ns check 8; check 7; hold 1; @1us peek 0",
    ),
    (
        "postpaid: booked in full, and paid by refilling",
        &[overdrawn_of(1, SECOND, 10)],
        "postpaid 0; postpaid 25; postpaid 0; postpaid 5; @20999ms postpaid 0; @21000ms postpaid 0; \
         postpaid 1; postpaid 1; @31000ms refund 4; postpaid 0",
    ),
    (
        "postpaid: a part of a unit does not count as left",
        &[overdrawn_of(1, SECOND, 2)],
        "postpaid 1; @500ms postpaid 1; postpaid 0; postpaid 1; @1499ms postpaid 0; @2500ms postpaid 3",
    ),
    (
        "postpaid: up to a debt",
        &[Limit::Bucket { count: 1, period_ns: SECOND, burst: 5, debt: Debt::UpTo(10) }],
        "postpaid 100; postpaid 0; @10999ms postpaid 0; @11000ms postpaid 100; @22000ms postpaid 1",
    ),
    (
        "postpaid: beside a hold",
        &[overdrawn_of(1, SECOND, 10)],
        "hold 4; postpaid 20; postpaid 0; @14999ms postpaid 0; @15000ms postpaid 0; cancel 4; \
         postpaid 0; postpaid 1",
    ),
    (
        "postpaid: edited there and back",
        &[overdrawn_of(1, SECOND, 10), overdrawn_of(3, SECOND, 30)],
        "postpaid 40; edit 1; postpaid 0; edit 0; postpaid 0; @30999ms postpaid 0; @31000ms postpaid 0",
    ),
    (
        "postpaid: as far as a state can count",
        &[overdrawn_of(1, DAY, 1)],
        "postpaid max; postpaid max; postpaid 0; @end postpaid 0",
    ),
];

const WINDOW: &[Raw] = &[
    (
        "opened by the first charge",
        &[MINUTE],
        "@25000ms peek 1; check 10; check 1; @60000ms check 1; @84999ms check 1; \
         @85000ms check 1; peek 0",
    ),
    (
        "aligned to the clock",
        &[ON_GRID],
        "@25000ms peek 1; check 10; check 1; @59999ms check 1; @60000ms check 1; peek 0",
    ),
    (
        "a peek opens nothing",
        &[MINUTE],
        "@1000ms peek 10; check 0; @5000ms check 1; @61000ms check 10; @65000ms check 10",
    ),
    ("cost above the maximum", &[MINUTE], "check 11; check max; check 4; check 7; check 6"),
    (
        "refund within the window",
        &[MINUTE],
        "check 8; refund 3; peek 0; refund 100; peek 0; check 10; @60000ms refund 10; peek 0",
    ),
    (
        "refund of everything closes the window",
        &[MINUTE],
        "check 5; @30000ms refund 5; @40000ms check 10; @60000ms check 1; @100000ms check 1",
    ),
    (
        "hold stays when the window ends",
        &[MINUTE],
        "hold 4; check 6; check 1; @60000ms check 7; check 6; commit 4 4; check 1; \
         @120000ms check 10",
    ),
    (
        "hold does not open the window",
        &[MINUTE],
        "hold 4; @50000ms check 6; @60000ms check 1; @109999ms check 1; @110000ms check 6",
    ),
    (
        "hold and cancel is the identity",
        &[MINUTE],
        "check 3; hold 7; check 1; cancel 7; peek 7; peek 8; hold 2; @70000ms cancel 2; \
         check 10",
    ),
    (
        "commit of less, of all, of more",
        &[MINUTE],
        "hold 5; commit 5 2; peek 0; hold 3; commit 3 3; peek 0; hold 1; commit 1 9; peek 0; \
         commit 4 1",
    ),
    (
        "wait for a hold is unknown",
        &[MINUTE],
        "hold 8; check 3; check 2; check 1; cancel 8; check 9; check 8",
    ),
    (
        "clock steps back, aligned",
        &[ON_GRID],
        "@60000ms check 9; @59000ms check 2; check 1; @119999ms check 1; @120000ms check 10",
    ),
    (
        "clock steps back behind a hold",
        &[MINUTE],
        "@100000ms hold 4; @0ms commit 4 4; @60000ms check 7; @159999ms check 7; \
         @160000ms check 7",
    ),
    (
        "maximum lowered and raised again",
        &[window_of(100, SECOND), window_of(5, SECOND)],
        "check 90; edit 1; check 0; check 1; edit 0; peek 0; check 10",
    ),
    (
        "new length applies to the next window",
        &[MINUTE, window_of(10, SECOND)],
        "check 10; edit 1; @1000ms check 1; @60000ms check 10; @61000ms check 10",
    ),
    ("longer than the clock is left", &[window_of(1, END)], "@1ns check 1; check 1; @end check 1"),
    (
        "largest maximum",
        &[window_of(0xffff_ffff, SECOND)],
        "check 4294967294; check max; check 2; check 1; @1000ms hold 4294967295; check 1",
    ),
    ("windows of one nanosecond", &[aligned_of(2, 1)], "check 2; check 1; @1ns check 2; check 1"),
    (
        "postpaid: booked in full until the window ends",
        &[MINUTE],
        "postpaid 0; postpaid 9; postpaid 25; postpaid 0; postpaid 1; @59999ms postpaid 0; \
         @60000ms postpaid 0; postpaid 3; refund 2; postpaid 0",
    ),
    (
        "postpaid: on the grid",
        &[ON_GRID],
        "@30000ms postpaid 11; postpaid 0; @60000ms postpaid 10; postpaid 0; refund 1; postpaid 0",
    ),
    (
        "postpaid: as far as a window can count",
        &[MINUTE],
        "postpaid max; postpaid 1; postpaid 0; refund 4294967290; postpaid 0; @60000ms postpaid 0",
    ),
    (
        "postpaid: beside a hold",
        &[MINUTE],
        "hold 9; postpaid 5; postpaid 0; @60000ms postpaid 0; hold 1; postpaid 0; cancel 1; postpaid 2",
    ),
    (
        "postpaid: a hold that a full count has no room for",
        &[MINUTE],
        "hold 3; postpaid 4294967294; commit 3 3; postpaid 0; refund max; postpaid 0",
    ),
];

const SLIDING: &[Raw] = &[
    (
        "log is exact",
        &[LOG],
        "check 1; @4000ms check 1; @9000ms check 1; check 1; @9999ms check 1; \
         @10000ms check 1; check 1; @13999ms check 1; @14000ms check 1; @24000ms peek 0",
    ),
    (
        "log to the nanosecond",
        &[sliding_of(2, SECOND, 10)],
        "@1ns check 1; @2ns check 1; @1000ms check 1; @1000000001ns check 2; check 1",
    ),
    (
        "log waits for as many as are needed",
        &[LOG],
        "check 1; @1000ms check 1; @2000ms check 1; check 3; check 2; check 1; check 4",
    ),
    (
        "parts count the oldest part whole",
        &[PARTS],
        "@500ms check 20; check 1; @10500ms check 1; @10999ms check 1; @11000ms check 20",
    ),
    (
        "parts leave one by one",
        &[PARTS],
        "@100ms check 9; @1100ms check 2; @2100ms check 9; check 1; check 10; check 12; \
         @11000ms check 9; check 1; @12000ms check 2; check 1",
    ),
    (
        "from log to parts and back",
        &[sliding_of(12, 10 * SECOND, 5)],
        "@100ms check 4; @3100ms check 4; @5000ms check 4; check 1; @10100ms check 1; \
         @12000ms check 4; @40000ms check 3; @50000ms check 12",
    ),
    (
        "one part",
        &[sliding_of(10, SECOND, 1)],
        "@999ms check 10; @1999ms check 1; @2000ms check 10",
    ),
    (
        "fifteen parts of uneven length",
        &[sliding_of(30, 100, 15)],
        "@6ns check 15; @7ns check 15; check 1; @106ns check 1; @107ns check 15; check 1; \
         @113ns check 1; @114ns check 1",
    ),
    ("cost above the maximum", &[PARTS], "check 21; check max; check 20; check 0"),
    (
        "refund takes the oldest",
        &[LOG],
        "check 1; @5000ms check 2; refund 1; check 1; @10000ms check 1; @15000ms check 3; \
         refund 9; peek 0",
    ),
    (
        "refund from parts",
        &[PARTS],
        "@500ms check 12; @5500ms check 8; refund 10; peek 0; @11000ms peek 0; refund 100; \
         peek 0",
    ),
    (
        "held units do not leave",
        &[LOG],
        "hold 2; check 2; check 1; @60000ms check 2; check 1; commit 2 2; peek 1",
    ),
    (
        "commit of less, of all, of more",
        &[PARTS],
        "hold 10; commit 10 4; peek 0; hold 6; commit 6 6; peek 0; hold 1; commit 1 50; \
         peek 0; commit 4 1",
    ),
    (
        "hold and cancel is the identity",
        &[PARTS],
        "check 13; hold 7; check 1; cancel 7; peek 7; peek 8; hold 2; @70000ms cancel 2; \
         check 20",
    ),
    (
        "clock steps back",
        &[LOG],
        "@60000ms check 2; @50000ms check 1; check 1; @69999ms check 1; @70000ms check 3",
    ),
    (
        "clock steps back in parts",
        &[PARTS],
        "@60500ms check 12; @50000ms check 8; check 1; @71000ms check 20",
    ),
    (
        "maximum lowered and raised again",
        &[PARTS, sliding_of(5, 10 * SECOND, 10)],
        "check 12; edit 1; check 0; check 1; edit 0; peek 0; check 8",
    ),
    (
        "log keeps its times on a new grid",
        &[LOG, sliding_of(3, 5 * SECOND, 2)],
        "check 1; @4000ms check 2; edit 1; @5000ms check 1; check 1; edit 0; @13999ms check 2; \
         @14000ms check 2",
    ),
    (
        "parts move to the last moment on a new grid",
        &[PARTS, sliding_of(20, 10 * SECOND, 4)],
        "@500ms check 12; @5500ms check 8; edit 1; check 1; @12499ms check 1; \
         @12500ms check 12; check 1",
    ),
    (
        "shortened and lengthened again",
        &[PARTS, sliding_of(20, SECOND, 10)],
        "@500ms check 12; @5500ms check 6; edit 1; @5501ms edit 0; peek 0; @11000ms peek 0; \
         @16500ms peek 0",
    ),
    (
        "longer than the clock is left",
        &[sliding_of(1, END, 15)],
        "@1ns check 1; check 1; @end check 1",
    ),
    (
        "postpaid: booked in full until it leaves, from the log",
        &[LOG],
        "postpaid 2; @1000ms postpaid 4; postpaid 0; @10000ms postpaid 0; @10999ms postpaid 0; \
         @11000ms postpaid 0; postpaid 3; postpaid 0",
    ),
    (
        "postpaid: booked in full until it leaves, by sub-windows",
        &[PARTS],
        "postpaid 12; @3000ms postpaid 40; postpaid 0; @11000ms postpaid 0; @13999ms postpaid 0; \
         @14000ms postpaid 0; postpaid 1; refund 1; postpaid 0",
    ),
    (
        "postpaid: as far as a sliding window can count",
        &[PARTS],
        "postpaid max; postpaid 1; postpaid 0; refund 4294967285; postpaid 0; @11000ms postpaid 0",
    ),
    (
        "postpaid: beside a hold",
        &[LOG],
        "hold 2; postpaid 5; postpaid 0; @10000ms postpaid 0; cancel 2; postpaid 1",
    ),
    (
        "postpaid: a hold that a full count has no room for",
        &[PARTS],
        "hold 3; postpaid 4294967294; commit 3 3; postpaid 0; refund max; postpaid 0",
    ),
];

const COOLDOWN: &[Raw] = &[
    (
        "gap between admissions",
        &[PLAIN],
        "check 1; check 1; @4999ms check 1; @5000ms check 1; @5001ms check 1",
    ),
    ("cost does not matter", &[PLAIN], "check max; check 2; @5000ms check 1000"),
    (
        "a peek starts nothing",
        &[PLAIN],
        "peek 1; check 0; peek 0; check 1; check 0; @5000ms check 0; peek 1",
    ),
    (
        "denials do not extend",
        &[PLAIN],
        "check 1; @3000ms check 1; @4000ms check 1; @5000ms check 1",
    ),
    (
        "denials extend",
        &[EXTENDED],
        "check 1; @3000ms check 1; @5000ms check 1; @9999ms check 1; @14999ms check 1",
    ),
    (
        "a peek extends nothing",
        &[EXTENDED],
        "check 1; @3000ms peek 1; check 0; @4999ms peek 1; @5000ms check 1",
    ),
    (
        "a denied hold extends",
        &[EXTENDED],
        "hold 1; @3000ms hold 1; @5000ms check 1; @10000ms check 1",
    ),
    ("a hold starts the gap", &[PLAIN], "hold 1; check 1; @5000ms check 1"),
    (
        "a cancelled hold still starts the gap",
        &[PLAIN],
        "hold 1; cancel 1; check 1; @5000ms check 1",
    ),
    (
        "commit charges what it says",
        &[PLAIN],
        "hold 1; commit 1 7; check 1; commit 0 0; @5000ms check 1",
    ),
    ("refund returns nothing", &[PLAIN], "check 3; refund 3; check 1; @5000ms check 1"),
    (
        "gap edited",
        &[PLAIN, cooldown_of(2 * SECOND), cooldown_of(10 * SECOND)],
        "check 1; edit 1; @1999ms check 1; edit 2; @9999ms check 1; @10000ms check 1",
    ),
    (
        "gap shortened and lengthened again",
        &[PLAIN, cooldown_of(1)],
        "check 1; edit 1; edit 0; @4999ms check 1; @5000ms check 1",
    ),
    (
        "clock steps back",
        &[PLAIN],
        "@60000ms check 1; @0ms check 1; @64999ms check 1; @65000ms check 1",
    ),
    (
        "clock steps back, denials extend",
        &[EXTENDED],
        "@60000ms check 1; @0ms check 1; @64999ms check 1; @69999ms check 1",
    ),
    ("gap of one nanosecond", &[cooldown_of(1)], "check 1; check 1; @1ns check 1"),
    ("longer than the clock is left", &[cooldown_of(END)], "@1ns check 1; check 1; @end check 1"),
    ("ends with the clock", &[cooldown_of(END)], "check 1; check 1; @end-1 check 1; @end check 1"),
];

const QUOTA: &[Raw] = &[
    (
        "unused units lapse",
        &[LAPSES],
        "period 0 1000ms check 4; check 7; @1000ms period 1 2000ms check 11; check 10; \
         check 1",
    ),
    (
        "up to five are carried",
        &[UP_TO_5],
        "period 0 1000ms check 2; @1000ms period 1 2000ms peek 0; check 16; check 15; check 1; \
         @2000ms period 2 3000ms check 10; check 1; @5000ms period 5 6000ms check 15",
    ),
    (
        "less than the bound is carried",
        &[UP_TO_5],
        "period 0 1000ms check 7; @1000ms period 1 2000ms check 14; check 13; check 1",
    ),
    (
        "all are carried",
        &[ALL],
        "period 0 1000ms check 2; @1000ms period 1 2000ms check 18; \
         @2000ms period 2 3000ms check 10; check 1; @10000ms period 10 11000ms peek 0; \
         check 80; check 1",
    ),
    (
        "wait for the next period",
        &[UP_TO_5],
        "period 0 1000ms @300ms check 10; check 10; check 11; check 16; @999ms check 1; \
         @1000ms period 1 2000ms check 10",
    ),
    (
        "wait for more than the next period is unknown",
        &[ALL],
        "period 0 1000ms check 5; check 15; check 16; check max",
    ),
    (
        "rounds that the host closes",
        &[LAPSES],
        "period 7 host check 10; check 1; check 11; @90000ms check 1; period 8 host check 1; \
         peek 0",
    ),
    (
        "rounds that the host closes, up to five carried",
        &[UP_TO_5],
        "period 7 host check 8; check 3; period 8 host check 12; check 1; \
         period 9 host peek 0",
    ),
    (
        "rounds that the host closes, all carried",
        &[ALL],
        "period 1 host check 1; period 3 host peek 0; check 29; check 1; check max",
    ),
    (
        "refund within the period",
        &[LAPSES],
        "period 0 1000ms check 8; refund 3; peek 0; refund 100; peek 0; check 10; \
         @1000ms period 1 2000ms refund 10; peek 0",
    ),
    (
        "refund of carried units",
        &[UP_TO_5],
        "period 0 1000ms @1000ms period 1 2000ms check 15; refund 15; check 15; check 1",
    ),
    (
        "hold ends with its period",
        &[LAPSES],
        "period 0 1000ms hold 4; check 6; check 1; @1000ms period 1 2000ms check 7; peek 0; \
         commit 4 4; peek 0; check 3; check 1; @2000ms period 2 3000ms check 10",
    ),
    (
        "hold of a closed period commits more, less and nothing",
        &[LAPSES],
        "period 0 host hold 4; hold 3; hold 2; hold 1; period 1 host hold 5; peek 0; \
         commit 4 6; peek 0; commit 3 1; peek 0; cancel 2; peek 0; commit 1 9; peek 0; refund 3; \
         commit 5 5; peek 0; refund 20; peek 0",
    ),
    (
        "hold stays when its period closes with carry",
        &[UP_TO_5_NO_DEBT],
        "period 0 1000ms hold 4; check 6; check 1; @1000ms period 1 2000ms check 11; peek 0; \
         check 10; check 1; commit 4 4; check 1; @2000ms period 2 3000ms check 10",
    ),
    (
        "debt is paid by the next periods",
        &[LAPSES],
        "period 0 1000ms hold 5; commit 5 27; peek 0; peek 1; check 1; \
         @1000ms period 1 2000ms peek 0; check 1; @2000ms period 2 3000ms check 4; check 3; \
         check 1; @3000ms period 3 4000ms check 10",
    ),
    (
        "periods without requests pay debt",
        &[ALL],
        "period 0 host hold 1; commit 1 35; period 2 host peek 0; period 3 host check 6; check 5; \
         period 5 host peek 0",
    ),
    (
        "debt comes before what is carried",
        &[UP_TO_5],
        "period 0 host hold 8; commit 8 18; period 1 host peek 0; check 1; period 2 host check 2; \
         period 3 host peek 0",
    ),
    (
        "debt up to a bound",
        &[LAPSES_DEBT_UP_TO_4],
        "period 0 host hold 4; hold 6; commit 4 7; peek 0; commit 6 8; peek 0; period 1 host \
         peek 0; hold 1; commit 1 11; commit 0 9; period 2 host check 7; check 6",
    ),
    (
        "no debt: what is beyond is forgiven",
        &[LAPSES_NO_DEBT],
        "period 0 host hold 4; commit 4 13; peek 0; check 1; period 1 host hold 2; check 3; \
         commit 2 9; period 2 host check 10",
    ),
    (
        "refund reduces debt first",
        &[LAPSES],
        "period 0 host hold 4; commit 4 15; refund 3; peek 0; refund 2; peek 0; refund 4; peek 0; \
         hold 1; commit 1 10; period 1 host check 1; refund 9; peek 0",
    ),
    (
        "wait for a debt of more than the next period is unknown",
        &[LAPSES],
        "period 0 1000ms @250ms hold 1; commit 1 15; peek 0; peek 5; peek 6; peek 11; hold 1; \
         commit 0 10; peek 0; peek 1",
    ),
    (
        "overdrawn by a commit while others hold",
        &[LAPSES],
        "period 0 host hold 6; hold 4; commit 6 12; peek 0; cancel 4; peek 0; refund 2; peek 0; \
         check 0; refund 1; check 1",
    ),
    (
        "hold is carried with its units",
        &[ALL],
        "period 0 1000ms hold 4; @1000ms period 1 2000ms peek 0; cancel 4; peek 0; check 20; \
         check 1",
    ),
    (
        "wait for a hold is unknown",
        &[LAPSES],
        "period 0 1000ms hold 8; check 3; check 2; check 2; cancel 8; check 8",
    ),
    (
        "hold and cancel is the identity",
        &[UP_TO_5],
        "period 0 1000ms check 3; hold 7; check 1; cancel 7; peek 7; peek 8; \
         @1000ms period 1 2000ms hold 2; cancel 2; peek 0",
    ),
    (
        "commit of less, of all, of more",
        &[LAPSES],
        "period 0 1000ms hold 5; commit 5 2; peek 0; hold 3; commit 3 3; peek 0; hold 1; \
         commit 1 9; peek 0; commit 4 1",
    ),
    (
        "a period read late changes nothing",
        &[LAPSES],
        "@1000ms period 1 2000ms check 10; @999ms period 0 1000ms check 1; refund 2; check 2; \
         @2000ms period 2 3000ms check 10",
    ),
    (
        "a period that is over gives no wait",
        &[LAPSES],
        "period 0 1000ms @1000ms check 10; check 1; @1500ms check 1; period 1 2000ms check 1",
    ),
    (
        "nothing charged yet",
        &[UP_TO_5],
        "period 3 4000ms @3000ms peek 0; check 0; peek 15; peek 16; peek 10",
    ),
    (
        "largest numbers",
        &[Limit::Quota { max: u64::MAX, carry: Carry::All, debt: Debt::All }],
        "period 0 host check max; check 1; period 1 host check 1; period max host peek 0; \
         check max; check 1",
    ),
    (
        "postpaid: booked in full, and paid by the next periods",
        &[LAPSES],
        "period 0 1000ms postpaid 0; postpaid 4; postpaid 28; postpaid 0; postpaid 3; \
         @1000ms period 1 2000ms postpaid 0; @2000ms period 2 3000ms postpaid 0; \
         @3000ms period 3 4000ms postpaid 0; postpaid 5; postpaid 1; refund 2; postpaid 0",
    ),
    (
        "postpaid: rounds, with units carried over",
        &[ALL],
        "period 0 host postpaid 3; period 1 host postpaid 0; postpaid 20; postpaid 0; period 2 host \
         postpaid 7; postpaid 0",
    ),
    (
        "postpaid: up to a debt",
        &[LAPSES_DEBT_UP_TO_4],
        "period 0 host postpaid 9; postpaid 50; postpaid 50; period 1 host postpaid 5; postpaid 1; \
         postpaid 1",
    ),
    (
        "postpaid: no debt",
        &[LAPSES_NO_DEBT],
        "period 0 host postpaid 9; postpaid 50; postpaid 0; period 1 host postpaid 0",
    ),
    (
        "postpaid: beside a hold",
        &[LAPSES],
        "period 0 1000ms hold 4; postpaid 9; postpaid 0; @1000ms period 1 2000ms postpaid 0",
    ),
    (
        "postpaid: largest numbers",
        &[Limit::Quota { max: u64::MAX, carry: Carry::All, debt: Debt::All }],
        "period 0 host postpaid max-1; postpaid max; postpaid max; postpaid 0; period 3 host postpaid 0",
    ),
];
