//! Random policies and operations. Features can be switched off, see [`is_on`].

use std::fmt;

use proptest::prelude::*;
use proptest::strategy::Union;

use super::is_on;
use super::limits::{Carry, Debt, Limit, Periods};
use super::model::{ModelRequest, Verb};
use super::rules::{FileRule, OtherLimit, Target};

const SECOND_NS: u64 = 1_000_000_000;

/// An algorithm, with everything that edits of a rule do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All rates have units of as many ticks, so overrides round nothing.
    Bucket,
    /// With rates that do not divide evenly, and without overrides of the rate.
    UnevenBucket,
    Window,
    AlignedWindow,
    Sliding,
    Cooldown,
    Minute,
    MinuteCarry,
    Round,
    RoundCarry,
}

/// Numbers for whichever algorithm a rule has.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    max: u64,
    rate: usize,
    per: usize,
    debt: u64,
    bound: u64,
    is_hour: bool,
}

const EVEN_RATES: [(u64, u64); 4] = [(1, 1), (3, 1), (7, 1), (11, 1)];
const UNEVEN_RATES: [(u64, u64); 4] = [(2, 1), (1, 3), (7, 2), (5, 7)];
/// Below the ten seconds for which an idle key keeps its slot.
const PERS_MS: [u64; 4] = [700, 1_000, 3_000, 8_000];

impl Kind {
    pub(super) fn limit(self, numbers: Numbers, is_extended: bool) -> Limit {
        let Numbers { max, rate, per, debt, bound, is_hour } = numbers;
        let per_ns = PERS_MS[per] * 1_000_000;
        let carry = if bound > 4 { Carry::All } else { Carry::UpTo(bound) };
        let window = |is_aligned| {
            let per_ns = if is_on("window_lengths") { per_ns } else { 3 * SECOND_NS };
            Limit::Window { max, per_ns, is_aligned }
        };
        let debt_of_quota = match debt {
            _ if !is_on("quota_debt") => Debt::None,
            0 => Debt::None,
            1 => Debt::UpTo(2),
            _ => Debt::All,
        };
        let quota = |carry, periods| Limit::Quota { max, carry, periods, debt: debt_of_quota };
        let calendar = if is_hour { Periods::Hour } else { Periods::Minute };
        let bucket = |(count, per_s): (u64, u64)| Limit::Bucket {
            count,
            per_ns: per_s * SECOND_NS,
            burst: max,
            debt: if is_on("bucket_debt") { debt } else { 0 },
        };
        match self {
            Self::Bucket => bucket(EVEN_RATES[rate]),
            Self::UnevenBucket => bucket(UNEVEN_RATES[rate]),
            Self::Window => window(false),
            Self::AlignedWindow => window(true),
            // Nine units would be counted by parts, so units that come back have to fit as well.
            Self::Sliding => {
                let max = if is_on("left_units") { max } else { max.div_ceil(2) };
                Limit::Sliding { max, per_ns }
            }
            Self::Cooldown => Limit::Cooldown { gap_ns: per_ns, is_extended },
            Self::Minute => quota(Carry::Nothing, calendar),
            Self::MinuteCarry => quota(carry, calendar),
            Self::Round => quota(Carry::Nothing, Periods::Round),
            Self::RoundCarry => quota(carry, Periods::Round),
        }
    }
}

/// An override, for whichever algorithm its rule has.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherNumbers {
    pub(super) target: usize,
    /// `None`: unlimited.
    numbers: Option<Numbers>,
    /// Its end, in milliseconds from the edit on.
    until_ms: Option<u64>,
}

impl OtherNumbers {
    pub(super) fn of(&self, kind: Kind, is_extended: bool, now: u64) -> OtherLimit {
        let mut numbers = self.numbers.filter(|_| kind != Kind::UnevenBucket);
        if matches!(kind, Kind::Window | Kind::AlignedWindow) && !is_on("unlimited_windows") {
            let few = Numbers { max: 3, rate: 0, per: 1, debt: 0, bound: 1, is_hour: false };
            numbers = numbers.or(Some(few));
        }
        let carries = matches!(kind, Kind::MinuteCarry | Kind::RoundCarry);
        let until_ms = self.until_ms.filter(|_| !carries || is_on("until_with_carry"));
        OtherLimit {
            target: Target::ALL[self.target],
            limit: numbers.map(|numbers| kind.limit(numbers, is_extended)),
            until: until_ms.map(|until_ms| now + until_ms * 1_000_000),
        }
    }
}

/// What a rule is made of, and edited to.
#[derive(Clone, Debug)]
pub(super) struct RuleNumbers {
    numbers: Numbers,
    is_next: bool,
    overrides: Vec<OtherNumbers>,
}

/// A rule to begin with.
#[derive(Clone, Debug)]
pub(super) struct Begin {
    pub(super) kind: Kind,
    domain: usize,
    is_by_user: bool,
    is_shadow: bool,
    charges_refused: bool,
    is_postpaid: bool,
    reserve_s: u64,
    numbers: RuleNumbers,
}

impl Begin {
    /// The rule with these numbers, as of an edit at `now`.
    pub(super) fn rule(&self, number: usize, numbers: &RuleNumbers, now: u64) -> FileRule {
        let RuleNumbers { numbers, is_next, overrides } = numbers;
        let is_extended = self.charges_refused && self.kind == Kind::Cooldown;
        let limit = self.kind.limit(*numbers, is_extended);
        let mut given: Vec<OtherLimit> = Vec::new();
        for it in overrides.iter().filter(|_| self.is_by_user) {
            let it = it.of(self.kind, is_extended, now).in_periods(limit.periods());
            if given.iter().all(|other| other.target != it.target) {
                given.push(it);
            }
        }
        FileRule {
            number,
            domain: self.domain,
            is_by_user: self.is_by_user,
            // A denied reservation under both would restart a cooldown, or not.
            is_shadow: self.is_shadow && !is_extended,
            charges_refused: self.charges_refused && !self.is_postpaid(),
            is_postpaid: self.is_postpaid(),
            is_next: *is_next,
            reserve_s: self.reserve_s,
            limit,
            overrides: given,
        }
    }

    /// Whether costs are booked whatever is left. A sliding window that has booked many is not exact.
    fn is_postpaid(&self) -> bool {
        self.is_postpaid && !matches!(self.kind, Kind::Cooldown | Kind::Sliding)
    }

    pub(super) fn first(&self, number: usize, now: u64) -> FileRule {
        self.rule(number, &self.numbers, now)
    }

    pub(super) fn is_by_user(&self) -> bool {
        self.is_by_user
    }

    pub(super) fn override_of(&self, given: &OtherNumbers, now: u64) -> OtherLimit {
        let is_extended = self.charges_refused && self.kind == Kind::Cooldown;
        let mut given = given.of(self.kind, is_extended, now);
        if let (true, Some(Limit::Bucket { debt, .. })) = (self.is_postpaid(), &mut given.limit) {
            // An override of a postpaid rule cannot take the debt away.
            *debt = (*debt).max(1);
        }
        given
    }
}

/// How the time moves before an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Stay,
    ByNanos(u64),
    ByMs(u64),
    /// So many milliseconds before the present; for checks and peeks only.
    LateMs(u64),
    /// To the end of the minute, or a nanosecond before it.
    ToMinute(bool),
    ByMinutes(u64),
    ToHour,
    ByHours(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Decide(ModelRequest),
    /// Looks at all keys.
    LookAtAll(u64),
    /// Looks at all keys as of so many milliseconds later.
    LookAhead(u64, u64),
    /// On disk: all states are written, and the log before is not needed any more.
    Snapshot,
    /// To extend a hold.
    Renew(usize),
    /// Under an idempotency key.
    DecideOnce(ModelRequest, u8),
    Commit(usize, Option<u64>),
    Cancel(usize),
    RefundHold(usize, u64),
    Refund(usize, usize, u64),
    Forget(usize, usize),
    CloseRound(usize),
    EditFile(usize, RuleNumbers),
    PutOver(usize, RuleNumbers),
    Remove(usize),
    SetOverride(usize, OtherNumbers),
    DropOverride(usize, OtherNumbers),
    DropOverlay,
    /// From a snapshot in memory, or from the disk.
    Restart,
    /// Other keys come and go.
    Others(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) step: Step,
    pub(super) act: Act,
}

/// A policy to begin with, and what happens to it.
#[derive(Clone)]
pub(super) struct Sequence {
    pub(super) begin: Vec<Begin>,
    pub(super) ops: Vec<Op>,
}

/// One line for each rule and each operation.
impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, begin) in self.begin.iter().enumerate() {
            write!(f, "\n  {:?}", begin.first(number, 0))?;
        }
        self.ops.iter().try_for_each(|op| write!(f, "\n  {:?} {:?}", op.step, op.act))
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max, rate, per, debt, bound, is_hour } = self;
        let (even, uneven, per_ms) = (EVEN_RATES[*rate], UNEVEN_RATES[*rate], PERS_MS[*per]);
        write!(f, "[max {max} rate {even:?}|{uneven:?} {per_ms}ms debt {debt} bound {bound}")?;
        f.write_str(if *is_hour { " hour]" } else { "]" })
    }
}

type Choices<T> = Vec<(u32, BoxedStrategy<T>)>;

fn one_of<T: std::fmt::Debug>(choices: Choices<T>) -> impl Strategy<Value = T> {
    Union::new_weighted(choices.into_iter().filter(|(weight, _)| *weight > 0).collect())
}

fn weight(feature: &str, weight: u32) -> u32 {
    if is_on(feature) { weight } else { 0 }
}

fn kind() -> impl Strategy<Value = Kind> {
    let kinds = [
        ("bucket", Kind::Bucket),
        ("uneven", Kind::UnevenBucket),
        ("window", Kind::Window),
        ("aligned", Kind::AlignedWindow),
        ("sliding", Kind::Sliding),
        ("cooldown", Kind::Cooldown),
        ("minute", Kind::Minute),
        ("minute_carry", Kind::MinuteCarry),
        ("round", Kind::Round),
        ("round_carry", Kind::RoundCarry),
    ];
    one_of(kinds.map(|(name, kind)| (weight(name, 1), Just(kind).boxed())).into())
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let is_hour = prop::bool::weighted(if is_on("calendars") { 0.2 } else { 0.0 });
    (1_u64..9, 0..4_usize, 0..4_usize, 0_u64..3, 1_u64..8, is_hour).prop_map(
        |(max, rate, per, debt, bound, is_hour)| Numbers { max, rate, per, debt, bound, is_hour },
    )
}

fn other() -> impl Strategy<Value = OtherNumbers> {
    let targets = if is_on("patterns") { 3 } else { 2_usize };
    let grant = one_of(vec![
        (5, numbers().prop_map(Some).boxed()),
        (weight("unlimited", 1), Just(None).boxed()),
    ]);
    let until = one_of(vec![
        (2, Just(None).boxed()),
        (weight("until", 2), (1_u64..9_000).prop_map(Some).boxed()),
        (weight("until", 1), (9_000_u64..150_000).prop_map(Some).boxed()),
    ]);
    (0..targets, grant, until).prop_map(|(target, numbers, until_ms)| OtherNumbers {
        target,
        numbers,
        until_ms,
    })
}

fn rule_numbers() -> impl Strategy<Value = RuleNumbers> {
    let most = if is_on("file_overrides") { 3 } else { 1 };
    let is_next = if is_on("next") { 0.5 } else { 0.0 };
    (numbers(), prop::bool::weighted(is_next), prop::collection::vec(other(), 0..most))
        .prop_map(|(numbers, is_next, overrides)| RuleNumbers { numbers, is_next, overrides })
}

fn begin() -> impl Strategy<Value = Vec<Begin>> {
    let share =
        |feature: &str, share: f64| prop::bool::weighted(if is_on(feature) { share } else { 0.0 });
    let flags = (
        share("shadow", 0.15),
        share("charge_refused", 0.2),
        share("postpaid", 0.25),
        share("no_key", 0.2),
    );
    let domains = if is_on("two_domains") { 2 } else { 1_usize };
    let rule = (
        kind(),
        0..domains,
        flags,
        prop_oneof![9 => 1_u64..90, 1 => Just(48 * 3_600)],
        rule_numbers(),
    )
        .prop_map(|(kind, domain, flags, reserve_s, numbers)| Begin {
            kind,
            domain,
            is_by_user: !flags.3,
            is_shadow: flags.0,
            charges_refused: flags.1,
            is_postpaid: flags.2,
            reserve_s,
            numbers,
        });
    prop::collection::vec(rule, 1..if is_on("several_rules") { 4 } else { 2 })
}

fn step() -> impl Strategy<Value = Step> {
    one_of(vec![
        (6, Just(Step::Stay).boxed()),
        (2, (1_u64..2_000_000_000).prop_map(Step::ByNanos).boxed()),
        (8, (1_u64..2_000).prop_map(Step::ByMs).boxed()),
        (3, (1_u64..9).prop_map(|s| Step::ByMs(s * 1_000)).boxed()),
        (weight("late", 2), (1_u64..3_000).prop_map(Step::LateMs).boxed()),
        (2, any::<bool>().prop_map(Step::ToMinute).boxed()),
        (1, (1_u64..4).prop_map(Step::ByMinutes).boxed()),
        (weight("calendars", 1), Just(Step::ToHour).boxed()),
        (weight("days", 1), (23_u64..26).prop_map(Step::ByHours).boxed()),
    ])
}

fn request() -> impl Strategy<Value = ModelRequest> {
    let verb = one_of(vec![
        (6, Just(Verb::Check).boxed()),
        (2, Just(Verb::Peek).boxed()),
        (weight("holds", 3), Just(Verb::Reserve).boxed()),
    ]);
    (verb, 0..2_usize, 0..3_usize, 0_u64..6).prop_map(|(verb, domain, user, cost)| {
        let cost = if verb == Verb::Reserve { cost.max(1) } else { cost };
        ModelRequest { verb, domain, user, cost }
    })
}

fn act() -> impl Strategy<Value = Act> {
    let any_hold = || any::<usize>();
    let rule = || 0..3_usize;
    let who = || (0..2_usize, 0..3_usize);
    one_of(vec![
        (30, request().prop_map(Act::Decide).boxed()),
        (weight("looks", 2), (0_u64..6).prop_map(Act::LookAtAll).boxed()),
        (
            weight("looks_ahead", 2),
            (0_u64..6, prop_oneof![1_u64..9_000, 9_000_u64..200_000])
                .prop_map(|(cost, ms)| Act::LookAhead(cost, ms))
                .boxed(),
        ),
        (weight("snapshot", 2), Just(Act::Snapshot).boxed()),
        (weight("renew", 2), any_hold().prop_map(Act::Renew).boxed()),
        (
            weight("idempotency", 2),
            (request(), 0..3_u8).prop_map(|(request, name)| Act::DecideOnce(request, name)).boxed(),
        ),
        (
            weight("holds", 6),
            (any_hold(), prop::option::of(0_u64..9))
                .prop_map(|(hold, actual)| Act::Commit(hold, actual))
                .boxed(),
        ),
        (weight("holds", 2), any_hold().prop_map(Act::Cancel).boxed()),
        (
            weight("refund_hold", 4),
            (any_hold(), 0_u64..5).prop_map(|(hold, units)| Act::RefundHold(hold, units)).boxed(),
        ),
        (
            weight("refund", 2),
            (who(), 0_u64..5).prop_map(|((d, u), units)| Act::Refund(d, u, units)).boxed(),
        ),
        (weight("forget", 1), who().prop_map(|(d, u)| Act::Forget(d, u)).boxed()),
        (weight("close_round", 3), (0..2_usize).prop_map(Act::CloseRound).boxed()),
        (
            weight("edit", 4),
            (rule(), rule_numbers()).prop_map(|(rule, to)| Act::EditFile(rule, to)).boxed(),
        ),
        (
            weight("put_over", 1),
            (rule(), rule_numbers()).prop_map(|(rule, to)| Act::PutOver(rule, to)).boxed(),
        ),
        (weight("remove", 2), rule().prop_map(Act::Remove).boxed()),
        (
            weight("overrides", 5),
            (rule(), other()).prop_map(|(rule, to)| Act::SetOverride(rule, to)).boxed(),
        ),
        (
            weight("overrides", 2),
            (rule(), other()).prop_map(|(rule, to)| Act::DropOverride(rule, to)).boxed(),
        ),
        (weight("overrides", 1), Just(Act::DropOverlay).boxed()),
        (weight("restart", 2), Just(Act::Restart).boxed()),
        (weight("others", 1), (1_u64..400).prop_map(Act::Others).boxed()),
    ])
}

pub(super) fn sequence() -> impl Strategy<Value = Sequence> {
    let op = (step(), act()).prop_map(|(step, act)| Op { step, act });
    (begin(), prop::collection::vec(op, 1..60)).prop_map(|(begin, ops)| Sequence { begin, ops })
}
