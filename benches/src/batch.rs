//! The loops that only tidegate supports: full decisions, one by one and sixteen at once.

use crate::contenders::tidegate::Tidegate;
use crate::contenders::{Contender, Who};
use crate::field::Field;
use crate::measure::Driver;
use crate::workload::{KeyList, Texts};
use std::hint::black_box;
use std::ops::Range;

/// Keys per call.
const SIZE: usize = 16;

/// `check` with each key.
struct Decisions(Tidegate<String>);

impl Driver<Texts> for Decisions {
    fn drive(&self, keys: &Texts, calls: Range<usize>) -> u64 {
        let mut allowed = 0;
        for index in calls {
            allowed += u64::from(self.0.check(keys.at(index)).is_allowed());
        }
        black_box(allowed)
    }
}

/// `check_many` with sixteen keys at a time.
struct Batches(Tidegate<String>);

impl Driver<Texts> for Batches {
    fn drive(&self, keys: &Texts, calls: Range<usize>) -> u64 {
        let mut allowed = 0;
        let mut decisions = Vec::with_capacity(SIZE);
        let whole = calls.len() / SIZE;
        for start in (0..whole).map(|nth| calls.start + nth * SIZE) {
            let batch: [&str; SIZE] = std::array::from_fn(|nth| keys.at(start + nth));
            self.0.check_many(&batch, &mut decisions);
            allowed += decisions.iter().filter(|decision| decision.is_allowed()).count() as u64;
        }
        for index in calls.start + whole * SIZE..calls.end {
            allowed += u64::from(self.0.check(keys.at(index)).is_allowed());
        }
        black_box(allowed)
    }
}

impl<'a> Field<'a> {
    /// Adds the single calls and the batches, growing and with a hint.
    pub fn batches(&mut self, texts: &'a Texts) -> Result<(), String> {
        let hint = self.plan().hint();
        self.steady::<Tidegate<String>, _>(Who::Growing, 0, texts)?;
        self.steady::<Tidegate<String>, _>(Who::Hinted, hint, texts)?;
        let driver = Decisions(self.filled(0)?);
        self.driven(Who::Decision, true, driver, texts);
        let driver = Batches(self.filled(0)?);
        self.driven(Who::Batch, true, driver, texts);
        let driver = Batches(self.filled(hint)?);
        self.driven(Who::HintedBatch, true, driver, texts);
        Ok(())
    }

    /// A limiter that knows the plan's keys.
    fn filled(&self, hint: usize) -> Result<Tidegate<String>, String> {
        let limiter = Tidegate::<String>::build(self.plan().limit, hint)?;
        Texts::visit(self.plan().keys, |key| {
            limiter.allow(key);
        });
        Ok(limiter)
    }
}
