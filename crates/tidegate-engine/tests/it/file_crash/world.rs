//! Engines with the same steps, so that one of them can be crashed and compared.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tidegate::durable::{Disk, FileOptions, Filter, OpenError};
use tidegate::policy::{Condition, Override, Policy, Rule, RuleId};
use tidegate::{
    CheckError, Edit, Outage, Report, Request, SettleError, StoreEngine, Timestamp, WhenFull,
    clock::ManualClock,
    edit::{Ban, Overlay},
    store::{MemoryStore, Store},
};

/// Everything at once: every kind of durable limit, in one decision.
fn policy(durability: &str) -> Policy {
    let text = RULES.replace("DURABILITY", durability);
    Policy::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Something that is done to an engine.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Check {
        user: &'static str,
        cost: u64,
        name: Option<u64>,
    },
    Together {
        cost: u64,
    },
    Reserve {
        user: &'static str,
        cost: u64,
        name: Option<u64>,
    },
    /// The first number is the step that made the reservation.
    Commit(usize, Option<u64>),
    Cancel(usize),
    Renew(usize),
    RefundHold(usize, u64),
    Refund {
        user: &'static str,
        cost: u64,
    },
    Forget {
        user: &'static str,
    },
    CloseRound,
    Note(u64),
    Ban(&'static str),
    Unban(&'static str),
    Override(&'static str, u64),
    DropOverride(&'static str),
    /// A rule gets another number, at once or from the next period on.
    Replace {
        max: u64,
        effective: &'static str,
    },
    Quota {
        max: u64,
        effective: &'static str,
    },
    DropOverlay,
    Snapshot,
}

/// What is done, and when.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at: Timestamp,
    pub(super) op: Op,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// As text that is the same for the same result.
    This(String),
    /// The store is unavailable.
    Outage,
}

/// An engine, with its acknowledged reservations.
pub(super) struct World {
    pub(super) engine: StoreEngine,
    clock: ManualClock,
    pub(super) holds: HashMap<usize, tidegate::hold::HoldId>,
    durability: &'static str,
}

/// A world that never restarts.
pub(super) type Twin = World;

impl Twin {
    /// A world in which all of this has happened.
    pub(super) fn after(durability: &'static str, history: &[Step]) -> Self {
        let store = MemoryStore::new(1_000, WhenFull::Deny).unwrap();
        let mut twin = Self::with_store(durability, store, START);
        for (number, step) in history.iter().enumerate() {
            twin.apply(number, step);
        }
        twin
    }
}

impl World {
    pub(super) fn open(
        durability: &'static str,
        options: FileOptions,
        disk: Arc<dyn Disk>,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let store = options.max_keys(1_000).when_full(WhenFull::Deny).open_on(disk)?;
        assert!(store.last_time() <= now, "something has happened that was never requested");
        Ok(Self::with_store(durability, store, now))
    }

    /// Applies one step, and returns its outcome.
    pub(super) fn try_apply(&mut self, number: usize, step: &Step) -> Outcome {
        let outcome = match step.op {
            Op::Note(number) => outcome(self.engine.note("default", &number.to_string()).block()),
            Op::Snapshot => {
                // It may fail; then there is none.
                let _ = self.engine.file_store().unwrap().take_snapshot();
                Outcome::This(String::from("Ok(())"))
            }
            _ => self.apply(number, step),
        };
        // An edit does not report whether it is durable.
        if self.engine.file_store().unwrap().failure().is_some() {
            Outcome::Outage
        } else {
            outcome
        }
    }

    /// Fails if the totals do not balance, or differ from what is known otherwise.
    pub(super) fn audit(&self) {
        let ledger = self.engine.ledger().unwrap();
        for rule in ["round", "minute", "burst", "sliding", "all"] {
            let totals = ledger.totals(&Filter::new().rule(rule)).unwrap();
            let sum = totals.committed + totals.refunded + totals.held + totals.expired;
            assert_eq!(totals.granted, sum, "{rule}: {totals:?}");
        }
    }
}

impl World {
    fn with_store(durability: &'static str, store: impl Into<Store>, now: Timestamp) -> Self {
        let clock = ManualClock::new(now);
        let engine = StoreEngine::builder(policy(durability))
            .store(store)
            .clock(clock.clone())
            .build()
            .unwrap();
        Self { engine, clock, holds: HashMap::new(), durability }
    }

    pub(super) fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    /// Everything that can be seen from outside.
    pub(super) fn look(&self) -> String {
        let mut seen = String::new();
        for user in USERS {
            let peeked = self.engine.peek(&Request::new("default", &[("user", user)])).block();
            writeln!(seen, "{user}: {}", words(&peeked.unwrap())).unwrap();
        }
        let rounds = self.engine.rounds("default");
        writeln!(seen, "{rounds} rounds\n{:?}", self.engine.overlay().to_toml()).unwrap();
        for change in self.engine.changes_since(0) {
            writeln!(seen, "{change:?}").unwrap();
        }
        seen
    }

    pub(super) fn apply(&mut self, number: usize, step: &Step) -> Outcome {
        self.clock.set(step.at);
        let engine = &self.engine;
        let hold = |made: &usize| self.holds.get(made).copied().expect("its id is known");
        let key = |name: &Option<u64>| name.map(|name| format!("request {name}"));
        match &step.op {
            Op::Check { user, cost, name } => {
                let (key, attributes) = (key(name), [("user", *user)]);
                let request = Request::new("default", &attributes).cost(*cost).note("a check");
                let named = key.as_ref().map_or(request, |key| request.idempotency_key(key));
                reported(engine.check(&named).block())
            }
            Op::Together { cost } => {
                let (ada, bob) = ([("user", "ada")], [("user", "bob")]);
                let all = [&ada, &bob].map(|user| Request::new("default", user).cost(*cost));
                reported(engine.check_together(&all).block())
            }
            Op::Reserve { user, cost, name } => {
                let (key, attributes) = (key(name), [("user", *user)]);
                let request = Request::new("default", &attributes).cost(*cost);
                let named = key.as_ref().map_or(request, |key| request.idempotency_key(key));
                let report = engine.hold(&named).block();
                if let Some(id) = report.as_ref().ok().and_then(Report::hold) {
                    self.holds.insert(number, id);
                }
                reported(report)
            }
            Op::Commit(made, actual) => settled(engine.commit(hold(made), *actual).block()),
            Op::Cancel(made) => settled(engine.cancel(hold(made), "never mind").block()),
            Op::Renew(made) => settled(engine.renew(hold(made)).block()),
            Op::RefundHold(made, units) => settled(engine.refund_hold(hold(made), *units).block()),
            Op::Refund { user, cost } => outcome(
                engine.refund(&Request::new("default", &[("user", user)]).cost(*cost)).block(),
            ),
            Op::Forget { user } => {
                outcome(engine.forget(&Request::new("default", &[("user", user)])).block())
            }
            Op::CloseRound => outcome(engine.close_round("default", None).block()),
            Op::Note(_) | Op::Snapshot => Outcome::This(String::from("Ok(())")),
            _ => Outcome::This(format!("{:?}", self.edit(&step.op))),
        }
    }

    fn edit(&self, op: &Op) -> Vec<tidegate::edit::Change> {
        let engine = &self.engine;
        let of_user = |user: &str| vec![Condition::new("user", [user]).unwrap()];
        match op {
            Op::Ban(user) => {
                engine.edit("root", Edit::ban(Ban::new("default", of_user(user)))).block().unwrap()
            }
            Op::Unban(user) => {
                engine.edit("root", Edit::unban("default", &of_user(user))).block().unwrap()
            }
            Op::Override(user, max) => {
                let given = self.override_of(user, *max);
                engine
                    .edit("root", Edit::set_override(&RuleId::named("round"), given))
                    .block()
                    .unwrap()
            }
            Op::DropOverride(user) => engine
                .edit("root", Edit::remove_override(&RuleId::named("round"), &of_user(user)))
                .block()
                .unwrap(),
            Op::Replace { max, effective } => {
                let limit = format!("window = {{ max = {max}, per = \"10s\" }}");
                engine
                    .edit("root", Edit::rule(self.rule("all", &limit, effective)))
                    .block()
                    .unwrap()
            }
            Op::Quota { max, effective } => {
                let limit = format!("quota = {{ max = {max}, per = \"round\", carry = 20 }}");
                engine
                    .edit("root", Edit::rule(self.rule("round", &limit, effective)))
                    .block()
                    .unwrap()
            }
            _ => engine.edit("root", Edit::overlay(Overlay::default())).block().unwrap(),
        }
    }

    /// A rule of the policy with another limit.
    fn rule(&self, name: &str, limit: &str, effective: &str) -> Rule {
        let key = if name == "all" { "" } else { "key = [\"user\"]\n" };
        let durability = self.durability;
        let text = format!(
            "[[rule]]\nname = \"{name}\"\n{key}{limit}\neffective = \"{effective}\"\n\
             durability = \"{durability}\"\nreserve_for = \"30s\""
        );
        Policy::from_toml(&text).unwrap().rules()[0].clone()
    }

    fn override_of(&self, user: &str, max: u64) -> Override {
        let limit = "quota = { max = 30, per = \"round\", carry = 20 }\n".to_owned()
            + &format!("override = [{{ key = {{ user = \"{user}\" }}, max = {max} }}]");
        self.rule("round", &limit, "now").overrides()[0].clone()
    }
}

fn words(report: &Report) -> String {
    let mut words = format!("allowed {} {:?}", report.is_allowed(), report.details().expires());
    write!(words, " {:?}", report.reason()).unwrap();
    for it in report.rules() {
        write!(words, "\n    {}: {:?}", it.rule, it.decision).unwrap();
    }
    words
}

fn reported(report: Result<Report, CheckError>) -> Outcome {
    match report {
        Ok(report) if report.is_outage() => Outcome::Outage,
        Ok(report) => Outcome::This(words(&report)),
        Err(error) => outcome::<(), _>(Err(error)),
    }
}

fn settled<T: std::fmt::Debug>(settled: Result<T, SettleError>) -> Outcome {
    match settled {
        Err(SettleError::Outage(_)) => Outcome::Outage,
        other => Outcome::This(format!("{other:?}")),
    }
}

fn outcome<T: std::fmt::Debug, E: Into<CheckError>>(result: Result<T, E>) -> Outcome {
    match result.map_err(Into::into) {
        Err(CheckError::Outage(_)) => Outcome::Outage,
        other => Outcome::This(format!("{other:?}")),
    }
}

const _: fn(Outage) -> CheckError = Into::into;

pub(super) const USERS: [&str; 3] = ["ada", "bob", "eve"];

/// When the story begins.
pub(super) const START: Timestamp = Timestamp::from_secs(1_000_000);

/// How long a moment is.
pub(super) const MOMENT: Duration = Duration::from_millis(100);

const RULES: &str = r#"
[[rule]]
name        = "round"
key         = ["user"]
quota       = { max = 30, per = "round", carry = 20 }
durability  = "DURABILITY"
reserve_for = "30s"

[[rule]]
name        = "minute"
key         = ["user"]
quota       = { max = 40, per = "minute" }
durability  = "DURABILITY"
effective   = "next"

[[rule]]
name        = "burst"
key         = ["user"]
bucket      = { rate = "1/s", burst = 30 }
durability  = "DURABILITY"

[[rule]]
name        = "sliding"
key         = ["user"]
sliding     = { max = 50, per = "20s" }
durability  = "DURABILITY"

[[rule]]
name        = "all"
window      = { max = 60, per = "10s" }
durability  = "DURABILITY"
"#;
