use tidegate_core::Cooldown;

use super::{Event, Picture, Summary, nanos, reset_at, wait_until};

/// A cooldown as the latest act that its gap counts from.
#[derive(Clone, Debug)]
pub(crate) struct CooldownPicture {
    limit: Cooldown,
    latest: Option<u64>,
}

impl CooldownPicture {
    fn over_at(&self) -> u128 {
        self.latest.map_or(0, |at| u128::from(at) + u128::from(nanos(self.limit.gap())))
    }

    fn is_over(&self, now: u64) -> bool {
        self.over_at() <= u128::from(now)
    }
}

impl Picture for CooldownPicture {
    type Limit = Cooldown;

    fn fresh(limit: &Cooldown) -> Self {
        Self { limit: *limit, latest: None }
    }

    fn apply(&mut self, event: &Event<Cooldown>, at: u64) {
        let extends = self.limit == self.limit.extended_by_refusals();
        match *event {
            Event::Charge(_) | Event::Hold(_) => self.latest = self.latest.max(Some(at)),
            Event::Refusal if extends => self.latest = self.latest.max(Some(at)),
            Event::Edit(limit) => self.limit = limit,
            Event::Refusal | Event::Refund(_) | Event::Commit { .. } => {}
        }
    }

    fn decide(&self, cost: u64, now: u64) -> Summary {
        let allowed = self.is_over(now);
        let mut after = self.clone();
        if allowed && cost > 0 {
            after.apply(&Event::Charge(cost), now);
        }
        Summary {
            allowed,
            remaining: after.is_over(now).into(),
            wait: (!allowed).then(|| wait_until(self.over_at(), now)),
            reset: reset_at(after.over_at(), now),
        }
    }

    fn outstanding(&self, _now: u64) -> u64 {
        0
    }

    fn chargeable(&self, _units: u64, actual: u64, _now: u64) -> u64 {
        actual
    }
}
