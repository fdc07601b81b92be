//! The engine against a second model, which shares no arithmetic with it.
//!
//! The model is eager: every edit, every end of an override, every expiry and every closed period
//! is applied to all keys at its own instant, before the next operation. The engine does the same
//! lazily, so the two agree only if looking or not looking changes nothing.
//!
//! `PROPTEST_CASES` sets how many sequences run. `TIDEGATE_REFERENCE_OFF=late,until` switches
//! features off, to find which one a disagreement needs.

mod generate;
mod limits;
mod model;
mod rules;
mod run;

use proptest::prelude::*;

use generate::Sequence;
use run::{Place, Run};

/// Sequences in memory and on disk, where the environment does not say otherwise.
const CASES: u32 = 10_000;
const DISK_CASES: u32 = 1_000;
const LONG_CASES: u32 = 1_000_000;

/// More than all keys of a sequence.
const MAX_KEYS: usize = 4_000;

/// Features that are not generated; see `generate.rs` for their names.
const OFF: &[&str] = &[];

fn is_on(feature: &str) -> bool {
    static BY_ENVIRONMENT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let off =
        BY_ENVIRONMENT.get_or_init(|| std::env::var("TIDEGATE_REFERENCE_OFF").unwrap_or_default());
    !OFF.contains(&feature) && off.split(',').all(|it| it != feature)
}

fn cases(default: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: given.unwrap_or(default),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

fn agree(sequence: &Sequence, place: Place) -> Result<(), TestCaseError> {
    let mut run = Run::new(&sequence.begin, place);
    for (index, op) in sequence.ops.iter().enumerate() {
        run.step(op)
            .map_err(|error| TestCaseError::fail(format!("operation {index}: {op:?}: {error}")))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn engine_reference_agrees_in_memory(sequence in generate::sequence()) {
        agree(&sequence, Place::Memory)?;
    }
}

proptest! {
    #![proptest_config(cases(DISK_CASES))]

    #[test]
    fn engine_reference_agrees_on_disk(sequence in generate::sequence()) {
        agree(&sequence, Place::Disk)?;
    }
}

proptest! {
    #![proptest_config(cases(LONG_CASES))]

    #[test]
    #[ignore = "takes an hour"]
    fn engine_reference_long(sequence in generate::sequence()) {
        agree(&sequence, Place::Memory)?;
    }
}
