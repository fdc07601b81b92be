use std::time::Duration;

use tidegate_core::{
    Algorithm, Bucket, BucketState, Carry, Committed, Cooldown, CooldownState, Debt, Decision,
    HeldUnits, LimitError, Period, Quota, QuotaState, Rate, Sliding, SlidingState, Timestamp, Wait,
    Window, WindowState,
};

use super::json::Object;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Bucket { count: u64, period_ns: u64, burst: u64, debt: Debt },
    Window { max: u64, per_ns: u64, aligned: bool },
    Sliding { max: u64, per_ns: u64, parts: u32 },
    Cooldown { gap_ns: u64, extended_by_refusals: bool },
    Quota { max: u64, carry: Carry, debt: Debt },
}

/// The operation of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Check { cost: u64 },
    CheckPostpaid { cost: u64 },
    Peek { cost: u64 },
    Refund { units: u64 },
    Hold { units: u64 },
    Commit { units: u64, actual: u64 },
    Cancel { units: u64 },
    Edit { limit: Limit },
}

/// Its result.
pub(crate) enum Expect {
    Decided(Decision),
    Given(u64),
    Charged(u64),
    /// Of a quota: what a hold that was made in this period came to.
    Committed(Committed, u64),
    /// Of a quota: released a hold that was made in this period.
    Released(u64),
    Nothing,
}

/// One key under its limit.
pub(crate) enum Key {
    Bucket(Bucket, BucketState),
    Window(Window, WindowState),
    Sliding(Sliding, SlidingState),
    Cooldown(Cooldown, CooldownState),
    Quota(Quota, QuotaState, Vec<HeldUnits>),
}

impl Key {
    pub(crate) fn new(limit: &Limit, period: Option<(u64, Option<u64>)>) -> Self {
        Self::built(limit, period).expect("the limits of the cases are valid")
    }

    fn built(limit: &Limit, period: Option<(u64, Option<u64>)>) -> Result<Self, LimitError> {
        let nanos = Duration::from_nanos;
        Ok(match *limit {
            Limit::Bucket { count, period_ns, burst, debt } => {
                let rate = Rate::try_new(count, nanos(period_ns))?;
                let limit = Bucket::try_new(rate, burst)?.with_debt(debt)?;
                Self::Bucket(limit, limit.fresh())
            }
            Limit::Window { max, per_ns, aligned } => {
                let limit = Window::try_new(max, nanos(per_ns))?;
                let limit = if aligned { limit.aligned() } else { limit };
                Self::Window(limit, limit.fresh())
            }
            Limit::Sliding { max, per_ns, parts } => {
                let limit = Sliding::try_new(max, nanos(per_ns), parts)?;
                Self::Sliding(limit, limit.fresh())
            }
            Limit::Cooldown { gap_ns, extended_by_refusals } => {
                let limit = Cooldown::try_new(nanos(gap_ns))?;
                let limit = if extended_by_refusals { limit.extended_by_refusals() } else { limit };
                Self::Cooldown(limit, limit.fresh())
            }
            Limit::Quota { max, carry, debt } => {
                let limit = Quota::try_new(max, carry)?.with_debt(debt)?;
                Self::Quota(limit, limit.fresh(opened(period)), Vec::new())
            }
        })
    }

    pub(crate) fn step(
        &mut self,
        op: &Op,
        at_ns: u64,
        period: Option<(u64, Option<u64>)>,
    ) -> Expect {
        let now = Timestamp::from_nanos(at_ns);
        if let Op::Edit { limit } = op {
            self.edit(limit, now);
            return Expect::Nothing;
        }
        match self {
            Self::Bucket(limit, state) => stepped(limit, state, op, now),
            Self::Window(limit, state) => stepped(limit, state, op, now),
            Self::Sliding(limit, state) => stepped(limit, state, op, now),
            Self::Cooldown(limit, state) => stepped(limit, state, op, now),
            Self::Quota(limit, state, holds) => {
                quota_stepped(limit, (state, holds), op, opened(period), now)
            }
        }
    }

    fn edit(&mut self, limit: &Limit, now: Timestamp) {
        match (self, Self::new(limit, None)) {
            (Self::Bucket(old, state), Self::Bucket(new, _)) => carry_over(old, state, new, now),
            (Self::Window(old, state), Self::Window(new, _)) => carry_over(old, state, new, now),
            (Self::Sliding(old, state), Self::Sliding(new, _)) => carry_over(old, state, new, now),
            (Self::Cooldown(old, state), Self::Cooldown(new, _)) => {
                carry_over(old, state, new, now);
            }
            _ => unreachable!("no case edits a limit into one of another kind"),
        }
    }
}

fn opened(period: Option<(u64, Option<u64>)>) -> Period {
    let (index, ends_ns) = period.unwrap_or((0, None));
    Period { index, ends: ends_ns.map(Timestamp::from_nanos) }
}

fn carry_over<L: Algorithm>(old: &mut L, state: &mut L::State, new: L, now: Timestamp) {
    let new = new.succeeding(old);
    *state = new.carry_over(old, state, now);
    *old = new;
}

fn stepped<L: Algorithm>(limit: &L, state: &mut L::State, op: &Op, now: Timestamp) -> Expect {
    match *op {
        Op::Check { cost } => Expect::Decided(limit.check(state, cost, now)),
        Op::CheckPostpaid { cost } => Expect::Decided(limit.check_postpaid(state, cost, now)),
        Op::Peek { cost } => Expect::Decided(limit.peek(state, cost, now)),
        Op::Hold { units } => Expect::Decided(limit.hold(state, units, now)),
        Op::Refund { units } => Expect::Given(limit.refund(state, units, now)),
        Op::Commit { units, actual } => Expect::Charged(limit.commit(state, units, actual, now)),
        Op::Cancel { units } => {
            limit.cancel(state, units, now);
            Expect::Nothing
        }
        Op::Edit { .. } => Expect::Nothing,
    }
}

fn quota_stepped(
    limit: &Quota,
    (state, holds): (&mut QuotaState, &mut Vec<HeldUnits>),
    op: &Op,
    period: Period,
    now: Timestamp,
) -> Expect {
    match *op {
        Op::Check { cost } => Expect::Decided(limit.check(state, cost, period, now)),
        Op::CheckPostpaid { cost } => {
            Expect::Decided(limit.check_postpaid(state, cost, period, now))
        }
        Op::Peek { cost } => Expect::Decided(limit.peek(state, cost, period, now)),
        Op::Hold { units } => {
            let decision = limit.hold(state, units, period, now);
            let held = HeldUnits { units, period: state.period };
            holds.extend(decision.is_allowed().then_some(held));
            Expect::Decided(decision)
        }
        Op::Refund { units } => Expect::Given(limit.refund(state, units, period)),
        Op::Commit { units, actual } => {
            let held = taken(holds, units, state.period);
            Expect::Committed(limit.commit(state, held, actual, period), held.period)
        }
        Op::Cancel { units } => {
            let held = taken(holds, units, state.period);
            limit.cancel(state, held, period);
            Expect::Released(held.period)
        }
        Op::Edit { .. } => Expect::Nothing,
    }
}

/// The oldest hold of so many units, or one that was never made.
fn taken(holds: &mut Vec<HeldUnits>, units: u64, period: u64) -> HeldUnits {
    match holds.iter().position(|held| held.units == units) {
        Some(index) => holds.remove(index),
        None => HeldUnits { units, period },
    }
}

impl Limit {
    pub(crate) fn write(&self, object: &mut Object) {
        match *self {
            Self::Bucket { count, period_ns, burst, debt } => object
                .text("kind", "bucket")
                .number("count", count)
                .number("period_ns", period_ns)
                .number("burst", burst)
                .text(
                    "debt",
                    &match debt {
                        Debt::Nothing => "0".to_owned(),
                        Debt::UpTo(units) => units.to_string(),
                        Debt::All => "all".to_owned(),
                    },
                ),
            Self::Window { max, per_ns, aligned } => object
                .text("kind", "window")
                .number("max", max)
                .number("per_ns", per_ns)
                .bool("aligned", aligned),
            Self::Sliding { max, per_ns, parts } => object
                .text("kind", "sliding")
                .number("max", max)
                .number("per_ns", per_ns)
                .number("parts", parts.into()),
            Self::Cooldown { gap_ns, extended_by_refusals } => object
                .text("kind", "cooldown")
                .number("gap_ns", gap_ns)
                .bool("extended_by_refusals", extended_by_refusals),
            Self::Quota { max, carry, debt } => {
                object.text("kind", "quota").number("max", max);
                match carry {
                    Carry::Nothing => object.text("carry", "nothing"),
                    Carry::UpTo(bound) => object.text("carry", "up_to").number("bound", bound),
                    Carry::All => object.text("carry", "all"),
                };
                match debt {
                    Debt::Nothing => object.text("debt", "nothing"),
                    Debt::UpTo(bound) => object.text("debt", "up_to").number("debt_bound", bound),
                    Debt::All => object.text("debt", "all"),
                }
            }
        };
    }
}

impl Op {
    pub(crate) fn write(&self, line: &mut Object) {
        match self {
            Self::Check { cost } => line.text("op", "check").number("cost", *cost),
            Self::CheckPostpaid { cost } => line.text("op", "check_postpaid").number("cost", *cost),
            Self::Peek { cost } => line.text("op", "peek").number("cost", *cost),
            Self::Refund { units } => line.text("op", "refund").number("units", *units),
            Self::Hold { units } => line.text("op", "hold").number("units", *units),
            Self::Commit { units, actual } => {
                line.text("op", "commit").number("units", *units).number("actual", *actual)
            }
            Self::Cancel { units } => line.text("op", "cancel").number("units", *units),
            Self::Edit { limit } => {
                let mut object = Object::new();
                limit.write(&mut object);
                line.text("op", "edit").object("limit", &object)
            }
        };
    }
}

impl Expect {
    pub(crate) fn object(&self) -> Object {
        let mut object = Object::new();
        match self {
            Self::Decided(decision) => {
                let wait = decision.retry_after().map(|wait| match wait {
                    Wait::After(wait) => format!("{}ns", wait.as_nanos()),
                    Wait::Never => "never".to_owned(),
                    Wait::Unknown => "unknown".to_owned(),
                });
                object
                    .bool("allowed", decision.is_allowed())
                    .number("remaining", decision.remaining())
                    .text_or_null("wait", wait.as_deref())
                    .number_or_null(
                        "reset_ns",
                        decision.reset().and_then(|it| u64::try_from(it.as_nanos()).ok()),
                    );
            }
            Self::Given(units) => {
                object.number("given", *units);
            }
            Self::Charged(units) => {
                object.number("charged", *units);
            }
            Self::Committed(committed, _) => {
                let Committed { charged, debt, closed, forgiven } = *committed;
                object
                    .number("charged", charged)
                    .number("debt", debt)
                    .number("closed", closed)
                    .number("forgiven", forgiven);
            }
            Self::Released(_) | Self::Nothing => {}
        }
        object
    }

    /// The period of the hold that was settled; quotas only.
    pub(crate) fn held_in(&self) -> Option<u64> {
        match self {
            Self::Committed(_, period) | Self::Released(period) => Some(*period),
            _ => None,
        }
    }

    /// Whether every time in it is a whole number of microseconds.
    pub(crate) fn is_whole_us(&self) -> bool {
        let is_whole = |duration: Duration| duration.subsec_nanos() % 1_000 == 0;
        match self {
            Self::Decided(decision) => {
                let is_whole_wait = match decision.retry_after() {
                    Some(Wait::After(wait)) => is_whole(wait),
                    _ => true,
                };
                is_whole_wait && decision.reset().is_none_or(is_whole)
            }
            _ => true,
        }
    }
}
