//! What can be seen of a store from outside.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($help:literal $name:ident,)*) => {
        /// Counters of a store, since it was created.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct RedisStats {
            $(#[doc = $help] pub $name: u64,)*
        }

        impl RedisStats {
            /// Every counter: its name, what it counts, and its value.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), $help, self.$name),)*].into_iter()
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn get(&self) -> RedisStats {
                RedisStats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    "Batches of commands sent to the server."
    round_trips,
    "Transactions that were committed."
    commits,
    "Commits that another node came before; their transactions were decided again."
    conflicts,
    "Turns that came, at keys that other nodes write at the same time."
    turns,
    "Turns that did not come in time."
    turns_missed,
    "Commits that were sent again, because the connection was lost."
    resends,
    "Transactions whose outcome is not known: they may have happened."
    unknown,
    "Transactions that failed, because the server could not be reached in time."
    unavailable,
    "Times that the breaker opened."
    breaker_opened,
    "Times that the server's clock stepped forward by more than 5 s."
    clock_forward,
    "Times that the server's clock stepped back by more than 5 s."
    clock_back,
    "Times that all records were gone."
    flushed,
    "Connections made."
    connects,
    "Waits for replicas, or for the log to be synced; many transactions share one."
    barriers,
    "Transactions that were committed, but were not as durable in time as their rules want."
    not_durable,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
