//! Crashes: whatever a loss of power leaves of a disk, acknowledged operations are there, and those
//! in progress are there wholly or not at all.

mod script;
mod world;

use std::collections::HashMap;
use std::sync::Arc;

use tidegate::durable::{FileOptions, LogError, OpenError};
use tidegate::hold::HoldId;
use tidegate::testing::{CrashDisk, Dice};

use script::Story;
use world::{START, Step, Twin, World};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerLoss,
    Kill,
}

/// What became of what was under way at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Kept,
    Lost,
    /// It changes nothing that can be seen.
    Unclear,
}

/// Several runs of one store, determined by a seed.
struct Run {
    durability: &'static str,
    options: FileOptions,
    story: Story,
    /// Acknowledged reservations, by the step that made them.
    acknowledged: HashMap<usize, HoldId>,
}

impl Run {
    fn new(seed: u64, durability: &'static str) -> Self {
        let mut dice = Dice::new(seed);
        let size = dice.one_of(&[1_500, 6_000, 1 << 40]);
        let fill = dice.one_of(&[0, 200, 5_000]);
        let options = FileOptions::default().snapshot_every(size).fill_ahead(fill);
        let twin = Twin::after(durability, &[]);
        let story = Story { history: Vec::new(), now: START, twin, dice };
        Self { durability, options, story, acknowledged: HashMap::new() }
    }

    fn open(&self, disk: &CrashDisk) -> Result<World, OpenError> {
        let disk = Arc::new(disk.clone());
        let mut world = World::open(self.durability, self.options, disk, self.story.now)?;
        world.holds = self.acknowledged.clone();
        Ok(world)
    }

    /// Works with a disk until it dies, and reports what was under way.
    fn live(&mut self, disk: &CrashDisk, steps: usize) -> Option<Step> {
        match self.open(disk) {
            Ok(mut world) => {
                let under_way = self.story.go_on(&mut world, steps);
                self.acknowledged = std::mem::take(&mut world.holds);
                under_way
            }
            Err(OpenError::Log(LogError::Disk { .. })) if disk.is_dead() => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Fails unless everything acknowledged is on a disk, and operations in progress wholly or not
    /// at all.
    fn verify(&mut self, disk: &CrashDisk, under_way: Option<Step>) -> UnderWay {
        let world = self.open(disk).unwrap_or_else(|error| panic!("{error}"));
        world.audit();
        let story = &mut self.story;
        story.twin.set_time(story.now);
        let (seen, expected) = (world.look(), story.twin.look());
        let wrong = || format!("{}\n{}", story.describe(), differ(&expected, &seen));
        let Some(step) = under_way else {
            assert!(seen == expected, "{}", wrong());
            return UnderWay::Lost;
        };
        let mut history = story.history.clone();
        history.push(step);
        let twin = Twin::after(self.durability, &history);
        twin.set_time(story.now);
        let with_it = twin.look();
        match (seen == expected, seen == with_it) {
            (true, true) => UnderWay::Unclear,
            (true, false) => UnderWay::Lost,
            (false, true) => {
                (story.twin, story.history) = (twin, history);
                UnderWay::Kept
            }
            (false, false) => panic!(
                "{}\nnor with what was under way: {:?}\n{}",
                wrong(),
                history.last(),
                differ(&with_it, &seen)
            ),
        }
    }
}

/// A disk as the end of a process leaves it.
fn after(disk: &CrashDisk, end: End, seed: u64) -> CrashDisk {
    match end {
        End::PowerLoss => disk.crash(seed),
        End::Kill => disk.kill(),
    }
}

fn differ(expected: &str, seen: &str) -> String {
    let lines = expected.lines().zip(seen.lines()).filter(|(expected, seen)| expected != seen);
    let lines = lines.map(|(expected, seen)| format!("expected {expected}\n    seen {seen}\n"));
    format!("what was answered is not what is there:\n{}", lines.collect::<String>())
}

/// Successive runs, the first of which ends at a given call of the disk.
fn lives(seed: u64, durability: &'static str, ends: (u64, &[End]), crash: u64) -> u64 {
    let (first_end, ends) = ends;
    let mut run = Run::new(seed, durability);
    let mut dice = Dice::new(seed ^ crash ^ (first_end << 32));
    let mut disk = CrashDisk::new();
    disk.die_at(first_end);
    let mut images = 0;
    for life in 0..3 {
        let under_way = run.live(&disk, 25);
        disk = after(&disk, dice.one_of(ends), dice.bits());
        let copy = disk.kill();
        images += 1;
        match run.verify(&copy, under_way) {
            // It has been seen, so it has to stay.
            UnderWay::Kept => disk = copy,
            UnderWay::Lost => {}
            UnderWay::Unclear => break,
        }
        if life < 2 {
            disk.die_at(1 + dice.below(60));
        }
    }
    images
}

/// How many calls there are in a first run.
fn calls(seed: u64, durability: &'static str) -> u64 {
    let (mut run, disk) = (Run::new(seed, durability), CrashDisk::new());
    assert!(run.live(&disk, 25).is_none());
    disk.calls()
}

fn at_every_call(durability: &'static str, ends: &[End], share: u64) {
    let wanted = std::env::var("TIDEGATE_CRASH_IMAGES").map_or(1_000, |it| it.parse().unwrap());
    let mut images = 0;
    for seed in 0.. {
        for first_end in 1..=calls(seed, durability) {
            for crash in 0..2 {
                let story = std::panic::AssertUnwindSafe(|| {
                    lives(seed, durability, (first_end, ends), crash)
                });
                images += std::panic::catch_unwind(story).unwrap_or_else(|_| {
                    panic!("seed {seed}, dies at call {first_end}, crash {crash}")
                });
                if images * 100 >= wanted * share {
                    return;
                }
            }
        }
    }
}

#[test]
fn acknowledged_operations_survive_a_loss_of_power_at_every_call_of_the_disk() {
    at_every_call("fsync", &[End::PowerLoss, End::PowerLoss, End::Kill], 75);
}

#[test]
fn flushed_operations_survive_the_end_of_the_process_at_every_call_of_the_disk() {
    at_every_call("flush", &[End::Kill], 25);
}

#[test]
fn a_restart_after_every_step_changes_nothing() {
    for seed in 0..60 {
        let (mut run, disk) = (Run::new(seed, "fsync"), CrashDisk::new());
        for life in 0..40 {
            assert!(run.live(&disk, 1).is_none());
            assert_eq!(run.verify(&disk, None), UnderWay::Lost, "seed {seed}, life {life}");
        }
    }
}
