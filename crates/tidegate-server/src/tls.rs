//! TLS of the listeners: its files, and their reloads.

use std::sync::Arc;

use tidegate_listen::tls::{Handshakes, PlainProtocol, TlsProtocol};
use tidegate_listen::{ListenSocket, Permits, Protocol, ShutdownSignal, accept};

use crate::listener::Listener;
use crate::settings::{Bounds, Settings};
use crate::tls_files::{TlsError, TlsPaths};
pub(crate) use watcher::WatchedTls;

mod plain_text;
mod watcher;

/// The TLS of all listeners that have it.
#[derive(Debug, Default)]
pub(crate) struct ListenersTls {
    listeners: Vec<Arc<WatchedTls>>,
    /// There if a listener has TLS.
    handshakes: Option<Handshakes>,
}

/// A socket that is bound, and what its connections need.
pub(crate) struct OpenListener {
    pub(crate) listener: Listener,
    pub(crate) socket: ListenSocket,
    pub(crate) permits: Permits,
    pub(crate) shutdown: ShutdownSignal,
}

impl ListenersTls {
    /// Loads the files of all listeners that are on.
    pub(crate) fn load(settings: &Settings) -> Result<Self, (Listener, TlsError)> {
        let mut listeners = Vec::new();
        for listener in Listener::ALL {
            let failed = |error| (listener, error);
            let paths = settings.tls(listener).map_err(failed)?;
            if let Some(paths) = paths.filter(|_| settings.address(listener).is_some()) {
                let watched = WatchedTls::load(listener, paths, settings.bounds.head_time);
                listeners.push(Arc::new(watched.map_err(failed)?));
            }
        }
        let handshakes = match listeners.first() {
            None => None,
            Some(first) => {
                let max = handshakes_max(&settings.bounds);
                let failed = |error| (first.listener, TlsError::Threads(error));
                Some(Handshakes::start(max).map_err(failed)?)
            }
        };
        Ok(Self { listeners, handshakes })
    }

    fn of(&self, listener: Listener) -> Option<&Arc<WatchedTls>> {
        self.listeners.iter().find(|it| it.listener == listener)
    }

    /// The files of a listener; `None` if it has no TLS.
    pub(crate) fn paths(&self, listener: Listener) -> Option<&TlsPaths> {
        self.of(listener).map(|it| &it.paths)
    }

    /// The TLS of each listener that has it.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &WatchedTls> {
        self.listeners.iter().map(|it| &**it)
    }

    /// The number of handshakes that have begun and not ended.
    pub(crate) fn handshakes_in_progress(&self) -> usize {
        self.handshakes.as_ref().map_or(0, Handshakes::in_progress)
    }

    /// Accepts the connections of a listener in the background, with TLS if it has it.
    pub(crate) fn open(&self, open: OpenListener, protocol: impl Protocol, bounds: &Bounds) {
        let OpenListener { listener, socket, permits, shutdown } = open;
        match (self.of(listener), &self.handshakes) {
            (Some(watched), Some(handshakes)) => {
                let tls = TlsProtocol::new(protocol, Arc::clone(&watched.tls), handshakes.clone());
                let tls = tls.plain_text(plain_text::response(listener));
                tokio::spawn(accept(socket, permits, tls, shutdown));
            }
            _ => {
                // As long as the protocol itself would wait.
                let silence = match listener {
                    Listener::Resp => bounds.idle_time,
                    _ => bounds.head_time,
                };
                let plain = PlainProtocol::new(protocol, listener.name(), silence);
                tokio::spawn(accept(socket, permits, plain, shutdown));
            }
        }
    }

    /// Starts to watch the files.
    pub(crate) fn start_watching(&self, shutdown: ShutdownSignal) {
        if !self.listeners.is_empty() {
            tokio::spawn(watcher::watch(self.listeners.clone(), shutdown));
        }
    }

    /// What is wrong with the files, or with certificates in force.
    pub(crate) fn problem(&self) -> Option<String> {
        let problems: Vec<_> = self.listeners.iter().filter_map(|it| it.problem()).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// The most handshakes at a time: they may hold half of the bytes that are being received.
fn handshakes_max(bounds: &Bounds) -> usize {
    (bounds.received_bytes / 2 / HANDSHAKE_BYTES).clamp(1, HANDSHAKES_MAX)
}

/// What a handshake usually holds.
const HANDSHAKE_BYTES: usize = 16 << 10;
const HANDSHAKES_MAX: usize = 2_048;
