use tollgate_core::{Carry, Timestamp};

use super::Case;
use super::key::{Limit, Op};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * SECOND;
const END: u64 = Timestamp::MAX.as_nanos();

const fn bucket_of(count: u64, period_ns: u64, burst: u64) -> Limit {
    Limit::Bucket { count, period_ns, burst, debt: 0 }
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

/// Numbers that look random and are the same everywhere.
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
        at_ns +=
            dice.below(step_ns / grain_ns + 1) * grain_ns * dice.below(3) / 2 / grain_ns * grain_ns;
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

pub(crate) fn bucket() -> Vec<Case> {
    let mut cases = bucket_basics();
    cases.extend(bucket_edges());
    cases.extend([
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
    ]);
    cases
}

fn bucket_basics() -> Vec<Case> {
    let one = bucket_of(1, SECOND, 1);
    let ten = bucket_of(1, SECOND, 10);
    vec![
        Case::new("burst, then one by one", bucket_of(1, SECOND, 3))
            .check(1)
            .check(1)
            .check(1)
            .check(1)
            .at_ms(999)
            .check(1)
            .at_ms(1_000)
            .check(1)
            .check(1)
            .at_ms(10_000)
            .peek(0)
            .check(3)
            .check(1),
        Case::new("two half intervals make one unit", one)
            .check(1)
            .at_ms(500)
            .check(1)
            .at_ms(1_000)
            .check(1)
            .at_ms(1_500)
            .check(1),
        Case::new("cost of zero, cost above the burst", ten)
            .check(0)
            .check(11)
            .check(u64::MAX)
            .check(10)
            .check(0)
            .check(11),
        Case::new("looks change nothing", ten)
            .peek(10)
            .peek(11)
            .peek(3)
            .check(4)
            .peek(7)
            .peek(6)
            .at_ms(500)
            .peek(7),
        Case::new("refund gives back no more than is outstanding", ten)
            .refund(1)
            .check(4)
            .refund(1)
            .at_ms(1_500)
            .refund(4)
            .refund(1)
            .check(10)
            .check(1),
        Case::new("held units do not refill", ten)
            .hold(6)
            .check(5)
            .check(4)
            .at_ms(60_000)
            .peek(0)
            .check(5)
            .check(4)
            .cancel(6)
            .peek(0),
        Case::new("commit of less, of all, of more", ten)
            .hold(5)
            .commit(5, 2)
            .peek(0)
            .hold(3)
            .commit(3, 3)
            .peek(0)
            .hold(1)
            .commit(1, 9)
            .peek(0)
            .commit(4, 1)
            .at_ms(10_000)
            .peek(0),
        Case::new("hold and cancel is the identity", ten)
            .check(3)
            .hold(7)
            .check(1)
            .cancel(7)
            .peek(7)
            .peek(8)
            .at_ms(500)
            .hold(4)
            .at_ms(2_500)
            .cancel(4)
            .peek(0),
        Case::new(
            "commit into debt",
            Limit::Bucket { count: 1, period_ns: SECOND, burst: 5, debt: 10 },
        )
        .hold(5)
        .commit(5, 12)
        .check(0)
        .check(1)
        .at_ms(6_999)
        .check(0)
        .at_ms(7_000)
        .check(0)
        .check(1)
        .at_ms(8_000)
        .check(1)
        .hold(1)
        .at_ms(9_000)
        .commit(0, 100),
        Case::new("clock steps back", bucket_of(1, SECOND, 5))
            .at_ms(60_000)
            .check(5)
            .at_ms(59_000)
            .check(1)
            .check(0)
            .at_ms(60_000)
            .check(1)
            .at_ms(61_000)
            .check(1)
            .at_ms(0)
            .check(1),
    ]
}

fn bucket_edges() -> Vec<Case> {
    let ten = bucket_of(1, SECOND, 10);
    vec![
        Case::new("burst lowered and raised again", bucket_of(100, SECOND, 100))
            .check(90)
            .edit(bucket_of(100, SECOND, 5))
            .peek(1)
            .peek(0)
            .edit(bucket_of(100, SECOND, 100))
            .peek(0)
            .at_ms(50)
            .edit(bucket_of(100, SECOND, 200))
            .peek(0)
            .check(115)
            .check(1),
        Case::new("rate edited", ten)
            .check(10)
            .at_ms(500)
            .edit(bucket_of(2, SECOND, 10))
            .check(1)
            .at_ms(750)
            .check(1)
            .edit(bucket_of(1, 3 * SECOND, 10))
            .at_ms(3_749)
            .check(1)
            .at_ms(3_750)
            .check(1),
        Case::new("rate edited with holds", ten)
            .hold(4)
            .check(6)
            .edit(bucket_of(10, SECOND, 8))
            .peek(0)
            .at_ms(400)
            .check(4)
            .cancel(4)
            .check(4)
            .check(1),
        Case::new("600 million per second, in nanoseconds", bucket_of(600_000_000, SECOND, 3))
            .check(3)
            .check(1)
            .at_ns(1)
            .check(1)
            .at_ns(2)
            .check(1)
            .at_ns(3)
            .check(1)
            .at_ns(4)
            .check(1)
            .at_ns(5)
            .check(1)
            .at_ns(10)
            .check(3)
            .check(1),
        Case::new("thirds of a second", bucket_of(3, SECOND, 1))
            .check(1)
            .check(1)
            .at_ns(333_333_333)
            .check(1)
            .at_ns(333_333_334)
            .check(1)
            .check(1)
            .at_ns(666_666_667)
            .check(1)
            .at_ns(666_666_668)
            .check(1),
        Case::new("one per day, a million at once", bucket_of(1, DAY, 1_000_000))
            .check(999_999)
            .check(1)
            .check(1)
            .check(1_000_000)
            .at_ns(DAY)
            .check(1)
            .check(1),
        Case::new("10^12 per second", bucket_of(1_000_000_000_000, SECOND, 1_000_000))
            .check(1_000_000)
            .check(1)
            .at_ns(1)
            .check(1_001)
            .check(1_000)
            .check(1)
            .at_ns(1_001)
            .peek(0),
        Case::new("end of the clock", bucket_of(1, SECOND, 2))
            .at_ns(END - SECOND)
            .check(2)
            .check(1)
            .check(2)
            .at_ns(END)
            .check(1)
            .check(1),
        Case::new("one per 292 years", bucket_of(1, END, 2))
            .check(2)
            .check(1)
            .at_ns(1)
            .check(1)
            .at_ns(END)
            .check(1),
        Case::new("largest burst", bucket_of(1_000_000_000, SECOND, u64::MAX))
            .check(u64::MAX)
            .check(1)
            .at_ns(7)
            .check(8)
            .check(7)
            .hold(1)
            .at_us(1)
            .peek(0),
    ]
}

pub(crate) fn window() -> Vec<Case> {
    let minute = window_of(10, 60 * SECOND);
    let on_grid = aligned_of(10, 60 * SECOND);
    vec![
        Case::new("opened by the first charge", minute)
            .at_ms(25_000)
            .peek(1)
            .check(10)
            .check(1)
            .at_ms(60_000)
            .check(1)
            .at_ms(84_999)
            .check(1)
            .at_ms(85_000)
            .check(1)
            .peek(0),
        Case::new("aligned to the clock", on_grid)
            .at_ms(25_000)
            .peek(1)
            .check(10)
            .check(1)
            .at_ms(59_999)
            .check(1)
            .at_ms(60_000)
            .check(1)
            .peek(0),
        Case::new("a look opens nothing", minute)
            .at_ms(1_000)
            .peek(10)
            .check(0)
            .at_ms(5_000)
            .check(1)
            .at_ms(61_000)
            .check(10)
            .at_ms(65_000)
            .check(10),
        Case::new("cost above the maximum", minute)
            .check(11)
            .check(u64::MAX)
            .check(4)
            .check(7)
            .check(6),
        Case::new("refund within the window", minute)
            .check(8)
            .refund(3)
            .peek(0)
            .refund(100)
            .peek(0)
            .check(10)
            .at_ms(60_000)
            .refund(10)
            .peek(0),
        Case::new("refund of everything closes the window", minute)
            .check(5)
            .at_ms(30_000)
            .refund(5)
            .at_ms(40_000)
            .check(10)
            .at_ms(60_000)
            .check(1)
            .at_ms(100_000)
            .check(1),
        Case::new("hold stays when the window ends", minute)
            .hold(4)
            .check(6)
            .check(1)
            .at_ms(60_000)
            .check(7)
            .check(6)
            .commit(4, 4)
            .check(1)
            .at_ms(120_000)
            .check(10),
        Case::new("hold does not open the window", minute)
            .hold(4)
            .at_ms(50_000)
            .check(6)
            .at_ms(60_000)
            .check(1)
            .at_ms(109_999)
            .check(1)
            .at_ms(110_000)
            .check(6),
        Case::new("hold and cancel is the identity", minute)
            .check(3)
            .hold(7)
            .check(1)
            .cancel(7)
            .peek(7)
            .peek(8)
            .hold(2)
            .at_ms(70_000)
            .cancel(2)
            .check(10),
        Case::new("commit of less, of all, of more", minute)
            .hold(5)
            .commit(5, 2)
            .peek(0)
            .hold(3)
            .commit(3, 3)
            .peek(0)
            .hold(1)
            .commit(1, 9)
            .peek(0)
            .commit(4, 1),
        Case::new("hold in the way is unknown", minute)
            .hold(8)
            .check(3)
            .check(2)
            .check(1)
            .cancel(8)
            .check(9)
            .check(8),
        Case::new("clock steps back, aligned", on_grid)
            .at_ms(60_000)
            .check(9)
            .at_ms(59_000)
            .check(2)
            .check(1)
            .at_ms(119_999)
            .check(1)
            .at_ms(120_000)
            .check(10),
        Case::new("clock steps back behind a hold", minute)
            .at_ms(100_000)
            .hold(4)
            .at_ms(0)
            .commit(4, 4)
            .at_ms(60_000)
            .check(7)
            .at_ms(159_999)
            .check(7)
            .at_ms(160_000)
            .check(7),
        Case::new("maximum lowered and raised again", window_of(100, SECOND))
            .check(90)
            .edit(window_of(5, SECOND))
            .check(0)
            .check(1)
            .edit(window_of(100, SECOND))
            .peek(0)
            .check(10),
        Case::new("new length applies to the next window", minute)
            .check(10)
            .edit(window_of(10, SECOND))
            .at_ms(1_000)
            .check(1)
            .at_ms(60_000)
            .check(10)
            .at_ms(61_000)
            .check(10),
        Case::new("longer than the clock is left", window_of(1, END))
            .at_ns(1)
            .check(1)
            .check(1)
            .at_ns(END)
            .check(1),
        Case::new("largest maximum", window_of(u64::MAX, SECOND))
            .check(u64::MAX - 1)
            .check(u64::MAX)
            .check(2)
            .check(1)
            .at_ms(1_000)
            .hold(u64::MAX)
            .check(1),
        Case::new("windows of one nanosecond", aligned_of(2, 1))
            .check(2)
            .check(1)
            .at_ns(1)
            .check(2)
            .check(1),
        walk("walk in whole microseconds", window_of(20, SECOND), 9, [400 * MS, US]),
        walk("walk on the grid", aligned_of(20, SECOND), 9, [400 * MS, US]),
        walk("walk in nanoseconds", window_of(97, 999_999_937), 40, [400 * MS, 1]),
    ]
}

pub(crate) fn sliding() -> Vec<Case> {
    let log = sliding_of(3, 10 * SECOND, 10);
    let parts = sliding_of(20, 10 * SECOND, 10);
    let mut cases = vec![
        Case::new("log is exact", log)
            .check(1)
            .at_ms(4_000)
            .check(1)
            .at_ms(9_000)
            .check(1)
            .check(1)
            .at_ms(9_999)
            .check(1)
            .at_ms(10_000)
            .check(1)
            .check(1)
            .at_ms(13_999)
            .check(1)
            .at_ms(14_000)
            .check(1)
            .at_ms(24_000)
            .peek(0),
        Case::new("log to the nanosecond", sliding_of(2, SECOND, 10))
            .at_ns(1)
            .check(1)
            .at_ns(2)
            .check(1)
            .at_ns(SECOND)
            .check(1)
            .at_ns(SECOND + 1)
            .check(2)
            .check(1),
        Case::new("log waits for as many as are needed", log)
            .check(1)
            .at_ms(1_000)
            .check(1)
            .at_ms(2_000)
            .check(1)
            .check(3)
            .check(2)
            .check(1)
            .check(4),
        Case::new("parts count the oldest part whole", parts)
            .at_ms(500)
            .check(20)
            .check(1)
            .at_ms(10_500)
            .check(1)
            .at_ms(10_999)
            .check(1)
            .at_ms(11_000)
            .check(20),
        Case::new("parts leave one by one", parts)
            .at_ms(100)
            .check(9)
            .at_ms(1_100)
            .check(2)
            .at_ms(2_100)
            .check(9)
            .check(1)
            .check(10)
            .check(12)
            .at_ms(11_000)
            .check(9)
            .check(1)
            .at_ms(12_000)
            .check(2)
            .check(1),
        Case::new("from log to parts and back", sliding_of(12, 10 * SECOND, 5))
            .at_ms(100)
            .check(4)
            .at_ms(3_100)
            .check(4)
            .at_ms(5_000)
            .check(4)
            .check(1)
            .at_ms(10_100)
            .check(1)
            .at_ms(12_000)
            .check(4)
            .at_ms(40_000)
            .check(3)
            .at_ms(50_000)
            .check(12),
        Case::new("one part", sliding_of(10, SECOND, 1))
            .at_ms(999)
            .check(10)
            .at_ms(1_999)
            .check(1)
            .at_ms(2_000)
            .check(10),
        Case::new("fifteen parts of uneven length", sliding_of(30, 100, 15))
            .at_ns(6)
            .check(15)
            .at_ns(7)
            .check(15)
            .check(1)
            .at_ns(106)
            .check(1)
            .at_ns(107)
            .check(15)
            .check(1)
            .at_ns(113)
            .check(1)
            .at_ns(114)
            .check(1),
        Case::new("cost above the maximum", parts).check(21).check(u64::MAX).check(20).check(0),
        Case::new("refund takes the oldest", log)
            .check(1)
            .at_ms(5_000)
            .check(2)
            .refund(1)
            .check(1)
            .at_ms(10_000)
            .check(1)
            .at_ms(15_000)
            .check(3)
            .refund(9)
            .peek(0),
        Case::new("refund from parts", parts)
            .at_ms(500)
            .check(12)
            .at_ms(5_500)
            .check(8)
            .refund(10)
            .peek(0)
            .at_ms(11_000)
            .peek(0)
            .refund(100)
            .peek(0),
        Case::new("held units do not leave", log)
            .hold(2)
            .check(2)
            .check(1)
            .at_ms(60_000)
            .check(2)
            .check(1)
            .commit(2, 2)
            .peek(1),
        Case::new("commit of less, of all, of more", parts)
            .hold(10)
            .commit(10, 4)
            .peek(0)
            .hold(6)
            .commit(6, 6)
            .peek(0)
            .hold(1)
            .commit(1, 50)
            .peek(0)
            .commit(4, 1),
        Case::new("hold and cancel is the identity", parts)
            .check(13)
            .hold(7)
            .check(1)
            .cancel(7)
            .peek(7)
            .peek(8)
            .hold(2)
            .at_ms(70_000)
            .cancel(2)
            .check(20),
        Case::new("clock steps back", log)
            .at_ms(60_000)
            .check(2)
            .at_ms(50_000)
            .check(1)
            .check(1)
            .at_ms(69_999)
            .check(1)
            .at_ms(70_000)
            .check(3),
        Case::new("clock steps back in parts", parts)
            .at_ms(60_500)
            .check(12)
            .at_ms(50_000)
            .check(8)
            .check(1)
            .at_ms(71_000)
            .check(20),
        Case::new("maximum lowered and raised again", parts)
            .check(12)
            .edit(sliding_of(5, 10 * SECOND, 10))
            .check(0)
            .check(1)
            .edit(parts)
            .peek(0)
            .check(8),
    ];
    cases.extend(sliding_edits_and_walks());
    cases
}

fn sliding_edits_and_walks() -> Vec<Case> {
    let log = sliding_of(3, 10 * SECOND, 10);
    let parts = sliding_of(20, 10 * SECOND, 10);
    vec![
        Case::new("log keeps its times on a new grid", log)
            .check(1)
            .at_ms(4_000)
            .check(2)
            .edit(sliding_of(3, 5 * SECOND, 2))
            .at_ms(5_000)
            .check(1)
            .check(1)
            .edit(log)
            .at_ms(13_999)
            .check(2)
            .at_ms(14_000)
            .check(2),
        Case::new("parts move to the last moment on a new grid", parts)
            .at_ms(500)
            .check(12)
            .at_ms(5_500)
            .check(8)
            .edit(sliding_of(20, 10 * SECOND, 4))
            .check(1)
            .at_ms(12_499)
            .check(1)
            .at_ms(12_500)
            .check(12)
            .check(1),
        Case::new("shortened and lengthened again", parts)
            .at_ms(500)
            .check(12)
            .at_ms(5_500)
            .check(6)
            .edit(sliding_of(20, SECOND, 10))
            .edit(parts)
            .peek(0)
            .at_ms(11_000)
            .peek(0)
            .at_ms(16_500)
            .peek(0),
        Case::new("longer than the clock is left", sliding_of(1, END, 15))
            .at_ns(1)
            .check(1)
            .check(1)
            .at_ns(END)
            .check(1),
        walk("walk in whole microseconds, log", sliding_of(8, SECOND, 10), 4, [300 * MS, US]),
        walk("walk in whole microseconds, parts", sliding_of(50, SECOND, 10), 20, [300 * MS, US]),
        walk("walk in nanoseconds, parts", sliding_of(97, 999_999_937, 7), 40, [400 * MS, 1]),
    ]
}

pub(crate) fn cooldown() -> Vec<Case> {
    let plain = cooldown_of(5 * SECOND);
    let extended = extended_of(5 * SECOND);
    vec![
        Case::new("gap between admissions", plain)
            .check(1)
            .check(1)
            .at_ms(4_999)
            .check(1)
            .at_ms(5_000)
            .check(1)
            .at_ms(5_001)
            .check(1),
        Case::new("cost does not matter", plain).check(u64::MAX).check(2).at_ms(5_000).check(1_000),
        Case::new("a look starts nothing", plain)
            .peek(1)
            .check(0)
            .peek(0)
            .check(1)
            .check(0)
            .at_ms(5_000)
            .check(0)
            .peek(1),
        Case::new("refusals do not extend", plain)
            .check(1)
            .at_ms(3_000)
            .check(1)
            .at_ms(4_000)
            .check(1)
            .at_ms(5_000)
            .check(1),
        Case::new("refusals extend", extended)
            .check(1)
            .at_ms(3_000)
            .check(1)
            .at_ms(5_000)
            .check(1)
            .at_ms(9_999)
            .check(1)
            .at_ms(14_999)
            .check(1),
        Case::new("a look extends nothing", extended)
            .check(1)
            .at_ms(3_000)
            .peek(1)
            .check(0)
            .at_ms(4_999)
            .peek(1)
            .at_ms(5_000)
            .check(1),
        Case::new("a refused hold extends", extended)
            .hold(1)
            .at_ms(3_000)
            .hold(1)
            .at_ms(5_000)
            .check(1)
            .at_ms(10_000)
            .check(1),
        Case::new("a hold is an act", plain).hold(1).check(1).at_ms(5_000).check(1),
        Case::new("a cancelled hold is not taken back", plain)
            .hold(1)
            .cancel(1)
            .check(1)
            .at_ms(5_000)
            .check(1),
        Case::new("commit charges what it says", plain)
            .hold(1)
            .commit(1, 7)
            .check(1)
            .commit(0, 0)
            .at_ms(5_000)
            .check(1),
        Case::new("refund gives nothing back", plain)
            .check(3)
            .refund(3)
            .check(1)
            .at_ms(5_000)
            .check(1),
        Case::new("gap edited", plain)
            .check(1)
            .edit(cooldown_of(2 * SECOND))
            .at_ms(1_999)
            .check(1)
            .edit(cooldown_of(10 * SECOND))
            .at_ms(9_999)
            .check(1)
            .at_ms(10_000)
            .check(1),
        Case::new("gap shortened and lengthened again", plain)
            .check(1)
            .edit(cooldown_of(1))
            .edit(plain)
            .at_ms(4_999)
            .check(1)
            .at_ms(5_000)
            .check(1),
        Case::new("clock steps back", plain)
            .at_ms(60_000)
            .check(1)
            .at_ms(0)
            .check(1)
            .at_ms(64_999)
            .check(1)
            .at_ms(65_000)
            .check(1),
        Case::new("clock steps back, refusals extend", extended)
            .at_ms(60_000)
            .check(1)
            .at_ms(0)
            .check(1)
            .at_ms(64_999)
            .check(1)
            .at_ms(69_999)
            .check(1),
        Case::new("gap of one nanosecond", cooldown_of(1)).check(1).check(1).at_ns(1).check(1),
        Case::new("longer than the clock is left", cooldown_of(END))
            .at_ns(1)
            .check(1)
            .check(1)
            .at_ns(END)
            .check(1),
        Case::new("ends with the clock", cooldown_of(END))
            .check(1)
            .check(1)
            .at_ns(END - 1)
            .check(1)
            .at_ns(END)
            .check(1),
        walk("walk in whole microseconds", plain, 3, [4 * SECOND, US]),
        walk("walk in whole microseconds, refusals extend", extended, 3, [6 * SECOND, US]),
    ]
}

pub(crate) fn quota() -> Vec<Case> {
    let lapses = Limit::Quota { max: 10, carry: Carry::Nothing };
    let up_to_5 = Limit::Quota { max: 10, carry: Carry::UpTo(5) };
    let all = Limit::Quota { max: 10, carry: Carry::All };
    let ends = |index: u64| Some((index + 1) * 1_000);
    let mut cases = vec![
        Case::new("unspent units lapse", lapses)
            .period(0, ends(0))
            .check(4)
            .check(7)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(11)
            .check(10)
            .check(1),
        Case::new("up to five are carried", up_to_5)
            .period(0, ends(0))
            .check(2)
            .at_ms(1_000)
            .period(1, ends(1))
            .peek(0)
            .check(16)
            .check(15)
            .check(1)
            .at_ms(2_000)
            .period(2, ends(2))
            .check(10)
            .check(1)
            .at_ms(5_000)
            .period(5, ends(5))
            .check(15),
        Case::new("less than the bound is carried", up_to_5)
            .period(0, ends(0))
            .check(7)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(14)
            .check(13)
            .check(1),
        Case::new("all are carried", all)
            .period(0, ends(0))
            .check(2)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(18)
            .at_ms(2_000)
            .period(2, ends(2))
            .check(10)
            .check(1)
            .at_ms(10_000)
            .period(10, ends(10))
            .peek(0)
            .check(80)
            .check(1),
        Case::new("wait for the next period", up_to_5)
            .period(0, ends(0))
            .at_ms(300)
            .check(10)
            .check(10)
            .check(11)
            .check(16)
            .at_ms(999)
            .check(1)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(10),
        Case::new("wait for more than the next period is unknown", all)
            .period(0, ends(0))
            .check(5)
            .check(15)
            .check(16)
            .check(u64::MAX),
        Case::new("rounds that the host closes", lapses)
            .period(7, None)
            .check(10)
            .check(1)
            .check(11)
            .at_ms(90_000)
            .check(1)
            .period(8, None)
            .check(1)
            .peek(0),
        Case::new("rounds that the host closes, up to five carried", up_to_5)
            .period(7, None)
            .check(8)
            .check(3)
            .period(8, None)
            .check(12)
            .check(1)
            .period(9, None)
            .peek(0),
        Case::new("rounds that the host closes, all carried", all)
            .period(1, None)
            .check(1)
            .period(3, None)
            .peek(0)
            .check(29)
            .check(1)
            .check(u64::MAX),
        Case::new("refund within the period", lapses)
            .period(0, ends(0))
            .check(8)
            .refund(3)
            .peek(0)
            .refund(100)
            .peek(0)
            .check(10)
            .at_ms(1_000)
            .period(1, ends(1))
            .refund(10)
            .peek(0),
        Case::new("refund of carried units", up_to_5)
            .period(0, ends(0))
            .at_ms(1_000)
            .period(1, ends(1))
            .check(15)
            .refund(15)
            .check(15)
            .check(1),
        Case::new("hold stays when the period closes", lapses)
            .period(0, ends(0))
            .hold(4)
            .check(6)
            .check(1)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(7)
            .check(6)
            .commit(4, 4)
            .check(1)
            .at_ms(2_000)
            .period(2, ends(2))
            .check(10),
    ];
    cases.extend(quota_holds_and_edges([lapses, up_to_5, all]));
    cases
}

fn quota_holds_and_edges([lapses, up_to_5, all]: [Limit; 3]) -> Vec<Case> {
    let ends = |index: u64| Some((index + 1) * 1_000);
    vec![
        Case::new("hold is carried with its units", all)
            .period(0, ends(0))
            .hold(4)
            .at_ms(1_000)
            .period(1, ends(1))
            .peek(0)
            .cancel(4)
            .peek(0)
            .check(20)
            .check(1),
        Case::new("hold in the way is unknown", lapses)
            .period(0, ends(0))
            .hold(8)
            .check(3)
            .check(2)
            .check(2)
            .cancel(8)
            .check(8),
        Case::new("hold and cancel is the identity", up_to_5)
            .period(0, ends(0))
            .check(3)
            .hold(7)
            .check(1)
            .cancel(7)
            .peek(7)
            .peek(8)
            .at_ms(1_000)
            .period(1, ends(1))
            .hold(2)
            .cancel(2)
            .peek(0),
        Case::new("commit of less, of all, of more", lapses)
            .period(0, ends(0))
            .hold(5)
            .commit(5, 2)
            .peek(0)
            .hold(3)
            .commit(3, 3)
            .peek(0)
            .hold(1)
            .commit(1, 9)
            .peek(0)
            .commit(4, 1),
        Case::new("a period read late changes nothing", lapses)
            .at_ms(1_000)
            .period(1, ends(1))
            .check(10)
            .at_ms(999)
            .period(0, ends(0))
            .check(1)
            .refund(2)
            .check(2)
            .at_ms(2_000)
            .period(2, ends(2))
            .check(10),
        Case::new("a period that is over tells no wait", lapses)
            .period(0, ends(0))
            .at_ms(1_000)
            .check(10)
            .check(1)
            .at_ms(1_500)
            .check(1)
            .period(1, ends(1))
            .check(1),
        Case::new("nothing spent yet", up_to_5)
            .period(3, ends(3))
            .at_ms(3_000)
            .peek(0)
            .check(0)
            .peek(15)
            .peek(16)
            .peek(10),
        Case::new("largest numbers", Limit::Quota { max: u64::MAX, carry: Carry::All })
            .period(0, None)
            .check(u64::MAX)
            .check(1)
            .period(1, None)
            .check(1)
            .period(u64::MAX, None)
            .peek(0)
            .check(u64::MAX)
            .check(1),
    ]
}
