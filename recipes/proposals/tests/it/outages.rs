//! A disk that refuses writes for a while: whatever step it hits, the audit adds up to the balances.

use std::sync::Arc;
use std::time::Duration;

use tidegate::durable::FileOptions;
use tidegate::testing::{CrashDisk, Dice};
use tidegate::{Timestamp, clock::ManualClock};
use tidegate_proposals::audit::Page;
use tidegate_proposals::{Desk, DeskError, Draft, NewGovernor, Settings, Status, Vote};
use tokio::time::timeout;

use crate::ai::Ai;
use crate::support::{Scratch, TIMEOUT, easy, settings};

/// A desk on a disk in memory.
struct OnDisk {
    desk: Desk,
    disk: CrashDisk,
    clock: ManualClock,
    settings: Settings,
}

impl OnDisk {
    fn open(settings: Settings, disk: CrashDisk, clock: ManualClock) -> Self {
        // Every record makes the file grow, so a full disk refuses the next one.
        let options = FileOptions::default().fill_ahead(1);
        let store = options.open_on(Arc::new(disk.clone())).unwrap();
        let desk = Desk::open_on(&settings, store, Arc::new(clock.clone())).unwrap();
        Self { desk, disk, clock, settings }
    }

    async fn new() -> Self {
        let settings = settings(&Scratch::new(), Ai::quick().await, easy());
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        Self::open(settings, CrashDisk::new(), clock)
    }

    /// The same desk after a kill of its process.
    fn killed(self) -> Self {
        let disk = self.disk.kill();
        Self::open(self.settings, disk, self.clock)
    }

    /// The same desk after a loss of power.
    fn crashed(self, seed: u64) -> Self {
        let disk = self.disk.crash(seed);
        Self::open(self.settings, disk, self.clock)
    }

    /// The disk has room again, and the desk has noticed.
    async fn recovered(&self) {
        self.disk.set_full(false);
        let healthy = async {
            while !self.desk.is_healthy() {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, healthy).await.expect("the disk in time");
    }

    async fn propose(&self, who: &str, tier: u64) -> Result<String, DeskError> {
        let draft = Draft { tier, text: "a change".into() };
        self.desk.propose(who, draft).await.map(|it| it.id.to_string())
    }

    /// The events of a governor: tokens, and reasons.
    async fn events(&self, who: &str) -> Vec<(i64, String)> {
        let page = Page { governor: Some(who.into()), limit: 10_000, ..Page::default() };
        let audit = self.desk.audit(page).await.unwrap();
        assert_eq!(audit.next, None);
        let events = audit.events.into_iter();
        events.filter_map(|it| Some((it.tokens?, it.reason.unwrap_or_default()))).collect()
    }

    /// Checks that every balance is the sum of its events.
    async fn check(&self) {
        for balance in self.desk.balances().unwrap() {
            let events = self.events(&balance.governor).await;
            let sum: i64 = events.iter().map(|it| it.0).sum();
            let tokens = i64::try_from(balance.tokens).unwrap();
            assert_eq!(tokens, sum, "{}: {events:?}", balance.governor);
        }
    }
}

#[tokio::test]
async fn undone_submission_is_in_the_audit_with_its_reason() {
    let on = OnDisk::new().await;
    on.disk.set_full(true);
    assert_eq!(on.propose("ada", 5).await, Err(DeskError::Outage));
    on.recovered().await;
    let undone = "undone: the disk write failed".to_owned();
    let expected =
        [(2, "enrolled".to_owned()), (-2, "proposed at tier 5".to_owned()), (2, undone.clone())];
    assert_eq!(on.events("ada").await, expected);
    on.check().await;
    let on = on.killed();
    assert_eq!(on.events("ada").await, expected);
    on.check().await;
    let [proposal] = &on.desk.proposals(Some(Status::Cancelled), None)[..] else {
        panic!("one proposal was undone");
    };
    assert_eq!(proposal.reason, Some(undone));
}

#[tokio::test]
async fn enrolment_that_is_repeated_after_an_outage_adds_tokens_once() {
    let on = OnDisk::new().await;
    let new = NewGovernor { governor: "dee".into(), secret: "a-secret-of-dee-herself".into() };
    on.disk.set_full(true);
    assert_eq!(on.desk.enrol(new.clone()).await, Err(DeskError::Outage));
    on.recovered().await;
    // The first one is in the ledger, with its secret.
    let other = NewGovernor { secret: "another-secret-of-dee".into(), ..new.clone() };
    let why = "`dee` is enrolled with another secret.".into();
    assert_eq!(on.desk.enrol(other).await, Err(DeskError::Conflict(why)));
    on.desk.enrol(new).await.unwrap();
    assert_eq!(on.events("dee").await, [(2, "enrolled".to_owned())]);
    on.check().await;
    let on = on.killed();
    on.check().await;
    assert!(on.desk.caller("a-secret-of-dee-herself").is_some());
}

/// One random operation; in an outage it may fail.
async fn step(on: &OnDisk, dice: &mut Dice) -> Result<(), DeskError> {
    let who = ["ada", "bob", "cy"][usize::try_from(dice.below(3)).unwrap()];
    let one_that_is = |status| on.desk.proposals(Some(status), None).pop();
    match dice.below(9) {
        0..=2 => {
            let _ = on.propose(who, 1 + dice.below(7)).await?;
        }
        3 | 4 => {
            if let Some(known) = one_that_is(Status::Interpreted) {
                on.desk.confirm(&known.governor, known.id).await?;
            }
        }
        5 => {
            if let Some(known) = one_that_is(Status::Interpreted) {
                on.desk.cancel(&known.governor, known.id).await?;
            }
        }
        6 => {
            if let Some(known) = one_that_is(Status::Voting) {
                on.desk.vote(who, known.id, Vote::Yes).await?;
            }
        }
        7 => {
            let last = on.desk.window()?.rounds.last;
            on.desk.round(last + 1).await?;
            on.desk.tally().await?;
        }
        _ => on.clock.advance(Duration::from_secs(60 * dice.below(11))),
    }
    Ok(())
}

#[tokio::test]
async fn audit_adds_up_to_the_balances_after_outages_in_any_step() {
    for seed in 0..3 {
        let mut dice = Dice::new(seed);
        let (mut on, mut outages) = (OnDisk::new().await, 0);
        for _ in 0..12 {
            for _ in 0..dice.below(8) {
                // Some are denied.
                let _ = step(&on, &mut dice).await;
            }
            on.disk.set_full(true);
            for _ in 0..1 + dice.below(4) {
                outages += u64::from(step(&on, &mut dice).await == Err(DeskError::Outage));
            }
            match dice.below(4) {
                0 => on = on.killed(),
                1 => on = on.crashed(dice.bits()),
                _ => on.recovered().await,
            }
            on.check().await;
        }
        assert!(outages > 5, "seed {seed}: {outages}");
        on.killed().check().await;
    }
}
