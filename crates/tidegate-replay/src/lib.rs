//! Access logs run through a policy of [tidegate](https://github.com/tidegate-rs/tidegate), on the
//! clock of the log: whom would a limit hit?
//!
//! [`LogReader`] makes [records](record::Record) of lines, in the order of their times;
//! [`Replay`] decides them with a real engine and counts. Memory is bounded whatever the log is.

#![forbid(unsafe_code)]

mod attributes;
mod counts;
mod decide;
mod denied;
mod estimate;
mod formats;
mod input;
mod keys;
mod lines;
mod minutes;
mod reader;
pub mod record;
mod reorder;
mod series;
mod sort;
mod times;

pub use attributes::{AttributePlan, FieldName, STANDARD_FIELDS};
pub use counts::{Counts, DeniedKey, RuleCount, Totals};
pub use decide::{FirstDenial, Replay, ReplayOptions};
pub use formats::{LogFormat, UnknownField};
pub use input::Source;
pub use minutes::WorstMinute;
pub use reader::{
    FormatGuess, InputReport, LineOrder, LogOptions, LogReader, Progress, ReadError, ReadSummary,
    UnreadableLine,
};
pub use series::{Bucket, Series};
pub use times::time_from_text;
