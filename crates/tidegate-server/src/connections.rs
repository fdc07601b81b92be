//! The open connections of all listeners.

use tidegate_listen::{ByteBudgets, Connections, PermitLimits, Permits};

use crate::listener::Listener;
use crate::settings::Bounds;

/// The open connections of all listeners, each with its own permits.
#[derive(Debug)]
pub(crate) struct ListenerConnections {
    all: Connections,
    permits: [Permits; Listener::ALL.len()],
}

impl ListenerConnections {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let Bounds { received_bytes, unsent_bytes, .. } = *bounds;
        let all = Connections::new(ByteBudgets { received_bytes, unsent_bytes });
        let permits = Listener::ALL.map(|listener| {
            let (max, max_per_peer) = bounds.permits(listener);
            // Refused connections are closed, whatever the protocol is.
            let limits = PermitLimits::new(max).per_peer(Some(max_per_peer)).reserve(0);
            all.listener(listener.name(), limits)
        });
        Self { all, permits }
    }

    /// The connections of all listeners.
    pub(crate) fn all(&self) -> &Connections {
        &self.all
    }

    /// The permits of a listener.
    pub(crate) fn of(&self, listener: Listener) -> &Permits {
        &self.permits[listener as usize]
    }
}

#[cfg(test)]
mod tests;
