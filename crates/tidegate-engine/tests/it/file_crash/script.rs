//! What happens, as the dice fall.

use std::time::Duration;

use tidegate::Timestamp;
use tidegate::testing::Dice;

use super::world::{MOMENT, Op, Outcome, Step, Twin, USERS, World};

/// A store on disk that is worked with, and everything that is known to have happened.
pub(super) struct Story {
    pub(super) history: Vec<Step>,
    pub(super) now: Timestamp,
    /// A store with the same steps that never crashes.
    pub(super) twin: Twin,
    pub(super) dice: Dice,
}

impl Story {
    /// Continues for this many steps, or until the outcome of one is unknown. Returns that one.
    pub(super) fn go_on(&mut self, world: &mut World, steps: usize) -> Option<Step> {
        for _ in 0..steps {
            let step = self.next(world);
            let number = self.history.len();
            self.now = step.at;
            let outcome = world.try_apply(number, &step);
            if outcome == Outcome::Outage {
                return Some(step);
            }
            let expected = self.twin.apply(number, &step);
            assert!(
                outcome == expected,
                "step {number}: {step:?}\n{expected:?}\n{outcome:?}\n{}",
                self.describe()
            );
            self.history.push(step);
        }
        None
    }

    /// The steps so far, as text.
    pub(super) fn describe(&self) -> String {
        let step =
            |(number, step): (usize, &Step)| format!("{number}: {:?} {:?}\n", step.at, step.op);
        self.history.iter().enumerate().map(step).collect()
    }

    fn next(&mut self, world: &World) -> Step {
        let dice = &mut self.dice;
        let pause = match dice.below(40) {
            0 => Duration::from_secs(70),
            1 if dice.once_in(4) => Duration::from_secs(3_600),
            2..8 => Duration::from_secs(dice.below(12)),
            _ => MOMENT * u32::try_from(dice.below(5)).unwrap(),
        };
        let op = self.op(world);
        Step { at: self.now.saturating_add(pause), op }
    }

    fn op(&mut self, world: &World) -> Op {
        let mut known: Vec<usize> =
            world.holds.keys().copied().filter(|made| self.twin.holds.contains_key(made)).collect();
        known.sort_unstable();
        // A restart does not know an override that still waits for the next period from one in
        // force.
        let overlay = self.twin.engine.overlay().to_toml();
        let has_override = overlay.contains("[[override]]");
        let is_waiting = overlay.contains("\"next\"");
        let dice = &mut self.dice;
        let user = dice.one_of(&USERS);
        let cost = 1 + dice.below(9);
        // So few idempotency keys that they repeat, for the same request or for another one.
        let name = dice.once_in(2).then(|| dice.below(6));
        let (cost, user) = if name.is_some() { (3, "ada") } else { (cost, user) };
        if !known.is_empty() && dice.once_in(3) {
            let made = dice.one_of(&known);
            return match dice.below(8) {
                0 => Op::Cancel(made),
                1 => Op::Renew(made),
                2 | 3 => Op::RefundHold(made, 1 + dice.below(5)),
                4 => Op::Commit(made, None),
                _ => Op::Commit(made, Some(dice.below(12))),
            };
        }
        match dice.below(40) {
            0..14 => Op::Check { user, cost, name },
            14..22 => Op::Reserve { user, cost, name },
            22 => Op::Together { cost },
            23 | 24 => Op::Refund { user, cost },
            25 => Op::Forget { user },
            26..29 => Op::CloseRound,
            29 => Op::Note(cost),
            30 => Op::Ban(user),
            31 => Op::Unban(user),
            32 if !is_waiting => Op::Override(user, 20 + cost),
            33 => Op::DropOverride(user),
            34 => Op::Replace { max: 50 + cost, effective: "now" },
            35 if !has_override => Op::Quota { max: 20 + cost, effective: "next" },
            36 => Op::Quota { max: 20 + cost, effective: "now" },
            37 => Op::DropOverlay,
            _ => Op::Snapshot,
        }
    }
}
