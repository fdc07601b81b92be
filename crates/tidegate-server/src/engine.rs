//! The engine of a daemon.

#[cfg(test)]
use tidegate::policy::Policy;
use tidegate::redis::ServerClock;
use tidegate::{AnyStore, Clock, Engine, SystemClock, Timestamp};

/// The engine of a daemon: a handle, which is cheap to clone.
pub(crate) type DaemonEngine = Engine<AnyStore, DaemonClock>;

/// The clock of a daemon: that of its own system, or of the server that it shares with others.
#[derive(Clone, Debug)]
pub(crate) enum DaemonClock {
    System(SystemClock),
    Server(ServerClock),
}

impl Clock for DaemonClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Server(clock) => clock.now(),
        }
    }

    fn wall(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.wall(),
            Self::Server(clock) => clock.wall(),
        }
    }

    fn latest(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.latest(),
            Self::Server(clock) => clock.latest(),
        }
    }
}

/// An engine in memory, for tests.
#[cfg(test)]
pub(crate) fn in_memory(policy: Policy) -> DaemonEngine {
    let clock = |last| DaemonClock::System(SystemClock::no_earlier_than(last));
    Engine::builder(policy).folder_or_memory(None).clock_after(clock).build().unwrap()
}
