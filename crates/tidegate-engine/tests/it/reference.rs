//! The engine against a second model, which shares no arithmetic with it.
//!
//! The model is eager: every edit, every end of an override, every expiry and every closed period
//! is applied to all keys at its own instant, before the next operation. The engine does the same
//! lazily, so the two agree only if looking or not looking changes nothing.
//!
//! `PROPTEST_CASES` sets how many sequences run, `PROPTEST_RNG_SEED` which ones (`random`, or a
//! number).
//! `TIDEGATE_REFERENCE_OFF=late,until` switches features off, to find which one a disagreement
//! needs; `TIDEGATE_REFERENCE_ON=all` switches on what [`OFF`] lists.

mod generate;
mod limits;
mod model;
mod rules;
mod run;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use generate::Sequence;
use run::{Backend, Run};

/// Sequences in memory and on disk, where the environment does not say otherwise.
const CASES: u32 = 4_000;
const DISK_CASES: u32 = 1_000;
const LONG_CASES: u32 = 1_000_000;

/// More than all keys of a sequence.
const MAX_KEYS: usize = 4_000;

/// Features that are not generated or compared: those in which the engine differs. `generate.rs`
/// has the names of all others.
const OFF: &[&str] = &[
    // An override that makes a key unlimited counts at once under a window, also where edits wait:
    // `crates/tidegate-engine/DESIGN.md` says why.
    "unlimited_windows",
];

fn is_on(feature: &str) -> bool {
    static LISTS: std::sync::OnceLock<[String; 2]> = std::sync::OnceLock::new();
    let read = |name| std::env::var(name).unwrap_or_default();
    let names = ["TIDEGATE_REFERENCE_ON", "TIDEGATE_REFERENCE_OFF"];
    let [on, off] = LISTS.get_or_init(|| names.map(read));
    let is_in = |list: &str| list.split(',').any(|it| it == feature || it == "all");
    !is_in(off) && (is_in(on) || !OFF.contains(&feature))
}

pub(crate) fn cases(default: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: given.unwrap_or(default),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        // The same sequences every time, unless the environment says which.
        rng_seed: match std::env::var_os("PROPTEST_RNG_SEED") {
            Some(_) => ProptestConfig::default().rng_seed,
            None => RngSeed::Fixed(1),
        },
        ..ProptestConfig::default()
    }
}

fn agree(sequence: &Sequence, backend: Backend) -> Result<(), TestCaseError> {
    let mut run = Run::new(&sequence.begin, backend);
    for (index, op) in sequence.ops.iter().enumerate() {
        run.step(op)
            .map_err(|error| TestCaseError::fail(format!("operation {index}: {op:?}: {error}")))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn agrees_in_memory(sequence in generate::sequence()) {
        agree(&sequence, Backend::Memory)?;
    }
}

proptest! {
    #![proptest_config(cases(DISK_CASES))]

    #[test]
    fn agrees_on_disk(sequence in generate::sequence()) {
        agree(&sequence, Backend::Disk)?;
    }
}

proptest! {
    #![proptest_config(cases(LONG_CASES))]

    #[test]
    #[ignore = "takes twenty minutes"]
    fn agrees_in_long_sequences(sequence in generate::sequence()) {
        agree(&sequence, Backend::Memory)?;
    }
}
