//! A store that several engines share, for example those of many processes: on a database server, or
//! on records of any kind.

pub use crate::store::shared::{
    Listing, RecordKey, RecordKeyText, RecordStore, Records, SharedStore, Step, Transaction, Write,
};
