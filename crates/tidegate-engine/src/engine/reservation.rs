//! Reservations as guards, and what they have in common with leases.

use std::fmt;
use std::sync::{Arc, Mutex};

use tidegate_core::Timestamp;
use tidegate_table::locks::lock;

use super::settle::CommitReport;
use super::{Commit, NotGranted, Note, Report, SettleError, StoreEngine};
use crate::request::Request;
use crate::store::{Answer, HoldId};

/// What a guard holds: units of the rules that its report names.
pub(super) struct Held {
    pub(super) engine: StoreEngine,
    pub(super) report: Report,
    id: HoldId,
    /// Its end, once it was renewed.
    renewed: Arc<Mutex<Option<Timestamp>>>,
    /// Whether it is settled, or by somebody else.
    is_kept: bool,
}

impl Held {
    pub(super) fn new(engine: StoreEngine, report: Report, id: HoldId) -> Self {
        Self { engine, report, id, renewed: Arc::default(), is_kept: false }
    }

    pub(super) const fn id(&self) -> HoldId {
        self.id
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        lock(&self.renewed).or_else(|| self.report.details().expires())
    }

    pub(super) fn renew(&self) -> Answer<Result<Timestamp, SettleError>> {
        let renewed = Arc::clone(&self.renewed);
        self.engine.renew(self.id).map(move |expires| {
            let expires = expires?;
            *lock(&renewed) = Some(expires);
            Ok(expires)
        })
    }

    /// The engine that settles it, unless it was kept before; from now on it is.
    pub(super) fn keep(&mut self) -> Option<StoreEngine> {
        (!std::mem::replace(&mut self.is_kept, true)).then(|| self.engine.clone())
    }
}

/// Units that are set aside until they are committed or cancelled, or expire.
///
/// Dropped, it charges what [was used](Self::add_used), and releases the rest; if nothing was said to be
/// used, it releases all. No runtime is needed for that, and nothing waits for it.
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, Request};
///
/// let engine = Engine::new(Policy::from_toml(r#"
///     [[rule]]
///     name  = "tokens"
///     key   = ["team"]
///     quota = { max = 100000, per = "day" }
/// "#)?);
/// let request = Request::new("default", &[("team", "search")]).cost(4_000);
/// let mut held = engine.reserve(&request)?;
/// // … the call takes 1 234 tokens …
/// held.add_used(1_234);
/// assert_eq!(held.commit().block()?.charged, 1_234);
/// assert_eq!(engine.peek(&request)?.remaining(), Some(98_766));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a reservation settles it"]
pub struct Reservation {
    held: Held,
    used: Option<u64>,
}

impl StoreEngine {
    /// Reserves the cost of a request at every rule that applies, or at none.
    ///
    /// Unless it is [renewed](Reservation::renew) it expires after the shortest `reserve_for` of the
    /// rules.
    pub fn reserve(&self, request: &Request<'_>) -> Answer<Result<Reservation, NotGranted>> {
        let engine = self.clone();
        self.hold(request).map(move |report| {
            let report = report?;
            match report.hold() {
                Some(id) if report.is_allowed() => {
                    let mut held = Held::new(engine, report, id);
                    // The guard of the first request settles it.
                    held.is_kept = held.report.is_repeat();
                    Ok(Reservation { held, used: None })
                }
                // Nothing can be held in an outage, and the rules allow the request then.
                None if report.is_allowed() => {
                    let mut held = Held::new(engine, report, HoldId::unlimited(0, Timestamp::ZERO));
                    held.is_kept = true;
                    Ok(Reservation { held, used: None })
                }
                _ => Err(NotGranted::Denied(report)),
            }
        })
    }
}

impl Reservation {
    /// Its id, by which the engine settles it, too; `None` if the store was unavailable, and the rules
    /// allowed the request all the same.
    #[must_use]
    pub fn id(&self) -> Option<HoldId> {
        self.held.report.hold()
    }

    /// The decision that granted it.
    pub fn report(&self) -> &Report {
        &self.held.report
    }

    /// When it expires, unless it is renewed.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.held.expires()
    }

    /// Adds units to those that were used, which may become more than are reserved.
    pub fn add_used(&mut self, units: u64) {
        self.used = Some(self.used.unwrap_or(0).saturating_add(units));
    }

    /// Extends it by its full length, from now; an error if it has expired.
    pub fn renew(&mut self) -> Answer<Result<Timestamp, SettleError>> {
        match self.id() {
            Some(_) => self.held.renew(),
            None => Answer::Ready(Err(SettleError::Gone)),
        }
    }

    /// Charges what [was used](Self::add_used), or all that is reserved if nothing was said.
    pub fn commit(self) -> Answer<Result<CommitReport, SettleError>> {
        let used = self.used;
        self.commit_as(used)
    }

    /// Charges [other units](Commit::actual), which may be fewer or more than are reserved, or writes a
    /// note with them.
    pub fn commit_as<'c>(
        mut self,
        commit: impl Into<Commit<'c>>,
    ) -> Answer<Result<CommitReport, SettleError>> {
        let id = self.id();
        self.held.keep();
        match id {
            Some(id) => self.held.engine.commit(id, commit),
            None => Answer::Ready(Ok(CommitReport::NOTHING)),
        }
    }

    /// Releases all that is reserved, and returns how much.
    pub fn cancel<'n>(mut self, note: impl Into<Note<'n>>) -> Answer<Result<u64, SettleError>> {
        let id = self.id();
        self.held.keep();
        id.map_or(Answer::Ready(Ok(0)), |id| self.held.engine.cancel(id, note))
    }

    /// Keeps it beyond this value's life, until it is settled by its id or expires.
    pub fn into_report(mut self) -> Report {
        self.held.keep();
        let rules = &self.held.engine.shared.rules;
        std::mem::replace(&mut self.held.report, Report::new(rules))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (id, used) = (self.held.id, self.used);
        if let Some(engine) = self.held.keep() {
            match used {
                Some(used) => drop(engine.commit(id, Some(used))),
                None => drop(engine.cancel(id, None)),
            }
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("id", &self.id())
            .field("used", &self.used)
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}
