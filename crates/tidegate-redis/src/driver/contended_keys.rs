//! Turns at keys that several nodes write at the same time.
//!
//! Of nodes that commit a key at the same time one succeeds, and what the others have decided is lost. A
//! node that has lost two commits of a key in a row therefore waits for its turn: the element of a list on
//! the server, which hands it to the node that waits longest (`BLPOP`). It is the value of the key, so its
//! holder needs no read; the holder's commit passes it on, in the same script, if it succeeds. The stamps
//! of such commits have a mark, so that a node that never lost before joins with its first loss.
//!
//! Nothing depends on turns but the speed: commits compare as ever. A turn that is lost is made again by
//! the next node that has waited too long, and of two turns one ends, because its holder loses twice. Keys
//! beyond a handful go on without.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Future;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tidegate_engine::shared::RecordKey;

use crate::batch::{Group, Pending};
use crate::commands::cell;
use crate::error::ConnectFailure;
use crate::frame::{Cell, TAKES_TURNS};
use crate::key_map::{KeyMap, KeySet};
use crate::route::Route;

/// The keys that this node takes turns at.
#[derive(Default)]
pub(super) struct ContendedKeys {
    keys: KeyMap<Turn>,
    /// Commits that were lost in a row, of other keys.
    losses: KeyMap<u32>,
    waits: FuturesUnordered<Wait>,
    /// Those that no wait has. Each wait has one of its own, because the server holds it up.
    connections: Vec<MultiplexedConnection>,
    is_connecting: bool,
    /// After a failure, the next attempt to connect begins then.
    connect_after_ns: u64,
    /// The server refuses the commands; so it is until the next connection.
    is_refused: bool,
    /// How often a key was added.
    entered: u64,
}

type Wait = Pin<Box<dyn Future<Output = WaitEnd> + Send>>;

/// How a wait has ended.
pub(super) enum WaitEnd {
    Connection(Result<MultiplexedConnection, ConnectFailure>),
    Turn {
        key: RecordKey,
        /// Which addition of the key it belongs to.
        number: u64,
        /// For the next wait.
        connection: Option<MultiplexedConnection>,
        /// The value of the key, if the turn came.
        result: Result<Option<Cell>, RedisError>,
    },
}

/// What has become of the wait.
pub(super) enum Came {
    /// The turn, and the value of its key.
    Turn(RecordKey, Cell),
    /// It took too long: the node goes on without.
    Nothing,
    Connection,
    /// The server refuses the command.
    Refused(String),
}

#[derive(Debug)]
struct Turn {
    state: TurnState,
    /// How long it waits for a turn at most.
    limit_ns: u64,
    /// When it last began to wait.
    since_ns: u64,
    /// The stamp of the value that it last passed on, and how often in a row that came back: no other
    /// node wrote meanwhile.
    passed: Option<u64>,
    alone: u32,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnState {
    /// Another node may have it.
    Away,
    Waiting,
    /// It may commit, and lose so often.
    Here(u32),
    /// Its commit is on its way.
    Sent(u32),
}

impl ContendedKeys {
    /// Whether there is no key that turns are taken at.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The next wait that ends; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<WaitEnd> {
        self.waits.next().await
    }

    /// A commit of a key was lost: another node came before, with this value. From the second in a row
    /// on, or if that node does, turns are taken; the first one is made.
    pub(super) fn lost(&mut self, key: RecordKey, found: &Cell, now_ns: u64) {
        if self.is_refused || !key.is_state() || self.keys.contains_key(&key) {
            return;
        }
        if self.losses.len() >= MOST_LOSSES {
            self.losses.clear();
        }
        let losses = self.losses.entry(key).or_default();
        *losses += 1;
        let takes_turns = found.stamp.is_some_and(|stamp| stamp & TAKES_TURNS != 0);
        if *losses < LOSSES_BEFORE_TURNS && !takes_turns {
            return;
        }
        if self.keys.len() >= MOST_KEYS {
            // Those that are not used any more make room.
            self.keys.retain(|_, turn| turn.is_used(now_ns));
        }
        if self.keys.len() < MOST_KEYS {
            self.losses.remove(&key);
            self.entered += 1;
            let turn = Turn {
                state: TurnState::Here(LOSSES_WITHOUT_TURN),
                limit_ns: FIRST_LIMIT_NS,
                since_ns: now_ns,
                passed: None,
                alone: 0,
                number: self.entered,
            };
            self.keys.insert(key, turn);
        }
    }

    /// A group was committed, or another node came before.
    pub(super) fn committed(
        &mut self,
        group: &Group,
        pending: &KeyMap<Pending>,
        is_committed: bool,
    ) {
        if self.keys.is_empty() && self.losses.is_empty() {
            return;
        }
        for key in &group.keys {
            if is_committed {
                self.losses.remove(key);
            }
            let Some(turn) = self.keys.get_mut(key) else { continue };
            let TurnState::Sent(losses) = turn.state else { continue };
            turn.state = match (is_committed, losses) {
                (true, _) | (false, 0..=1) => TurnState::Away,
                (false, more) => TurnState::Here(more - 1),
            };
            turn.passed = match pending.get(key) {
                Some(pending) if !pending.writes() => pending.expected.stamp,
                _ => Some(group.stamp),
            };
        }
    }

    /// Whether a transaction has to wait for a turn, and for which. Without a connection it has not.
    pub(super) fn missing(&self, needs: &[RecordKey]) -> Option<RecordKey> {
        if self.keys.is_empty() {
            return None;
        }
        let is_missing = |key: &&RecordKey| match self.keys.get(key).map(|turn| turn.state) {
            Some(TurnState::Waiting) => true,
            Some(TurnState::Away) => !self.connections.is_empty(),
            _ => false,
        };
        needs.iter().find(is_missing).copied()
    }

    /// Connects, if a key may need a connection. All are to the node of one name.
    pub(super) fn connect(&mut self, route: &Arc<Route>, name: &str, now_ns: u64) {
        let needs = self.keys.values().any(|turn| turn.state != TurnState::Waiting);
        let is_time = !self.is_connecting && now_ns >= self.connect_after_ns;
        if needs && is_time && self.connections.is_empty() {
            let (route, name) = (Arc::clone(route), name.to_owned());
            self.is_connecting = true;
            self.waits.push(Box::pin(async move {
                WaitEnd::Connection(route.connect(&name, CONNECT_TIMEOUT).await)
            }));
        }
    }

    /// Begins to wait for a turn, if it does not yet.
    pub(super) fn wait(&mut self, key: RecordKey, name: String, now_ns: u64) {
        let turn = self.keys.get_mut(&key).filter(|turn| turn.state == TurnState::Away);
        let (Some(turn), Some(mut connection)) = (turn, self.connections.pop()) else { return };
        (turn.state, turn.since_ns) = (TurnState::Waiting, now_ns);
        let (limit, number) = (Duration::from_nanos(turn.limit_ns), turn.number);
        self.waits.push(Box::pin(async move {
            let waiting = wait_for(&mut connection, &name, limit);
            // A server that does not respond must not hold up the node.
            match tokio::time::timeout(limit * 2, waiting).await {
                Ok(result) => {
                    let connection = result.is_ok().then_some(connection);
                    WaitEnd::Turn { key, number, connection, result }
                }
                Err(_) => WaitEnd::Turn { key, number, connection: None, result: Ok(None) },
            }
        }));
    }

    /// Takes a turn that came, or goes on without.
    pub(super) fn came(&mut self, end: WaitEnd, now_ns: u64, deadline_ns: u64) -> Came {
        let most_ns = (deadline_ns / 2).clamp(FIRST_LIMIT_NS, MOST_LIMIT_NS);
        let (key, number, connection, result) = match end {
            WaitEnd::Turn { key, number, connection, result } => (key, number, connection, result),
            WaitEnd::Connection(connection) => {
                self.is_connecting = false;
                if connection.is_err() {
                    self.connect_after_ns = now_ns.saturating_add(RECONNECT_AFTER_NS);
                }
                self.connections.extend(connection.ok());
                return Came::Connection;
            }
        };
        if self.connections.len() < MOST_KEYS {
            self.connections.extend(connection);
        }
        if let Err(error) = &result
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
        {
            *self = Self { is_refused: true, ..Self::default() };
            return Came::Refused(error.to_string());
        }
        let is_its = |turn: &&mut Turn| turn.number == number && turn.state == TurnState::Waiting;
        let Some(turn) = self.keys.get_mut(&key).filter(is_its) else { return Came::Nothing };
        let waited_ns = now_ns.saturating_sub(turn.since_ns);
        match result {
            Ok(Some(cell)) => {
                turn.state = TurnState::Here(LOSSES_WITH_TURN);
                turn.limit_ns = waited_ns.saturating_mul(4).clamp(FIRST_LIMIT_NS, most_ns);
                turn.alone = if cell.stamp == turn.passed { turn.alone + 1 } else { 0 };
                if turn.alone >= ALONE_BEFORE_END {
                    self.keys.remove(&key);
                }
                Came::Turn(key, cell)
            }
            Ok(None) | Err(_) => {
                turn.state = TurnState::Here(LOSSES_WITHOUT_TURN);
                turn.limit_ns = (turn.limit_ns * 2).min(most_ns);
                Came::Nothing
            }
        }
    }

    /// The keys of a batch whose turn is here: it passes them on, and its stamps say so.
    pub(super) fn send(&mut self, groups: &mut [Group]) -> KeySet {
        let mut sent = KeySet::default();
        if self.keys.is_empty() {
            return sent;
        }
        for group in groups.iter_mut() {
            for key in &group.keys {
                if let Some(turn) = self.keys.get_mut(key)
                    && let TurnState::Here(losses) = turn.state
                {
                    turn.state = TurnState::Sent(losses);
                    group.stamp |= TAKES_TURNS;
                    sent.insert(*key);
                }
            }
        }
        sent
    }

    /// Forgets all of it: the connection was lost.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Turn {
    fn is_used(&self, now_ns: u64) -> bool {
        matches!(self.state, TurnState::Waiting | TurnState::Sent(_))
            || now_ns.saturating_sub(self.since_ns) < UNUSED_AFTER_NS
    }
}

/// Waits for an element of a list; `None` if none comes in time.
async fn wait_for(
    connection: &mut MultiplexedConnection,
    name: &str,
    limit: Duration,
) -> Result<Option<Cell>, RedisError> {
    connection.set_response_timeout(limit * 4);
    let limit_ms = limit.as_millis().max(1);
    let limit_secs = format!("{}.{:03}", limit_ms / 1_000, limit_ms % 1_000);
    let mut command = redis::cmd("BLPOP");
    command.arg(name).arg(limit_secs);
    match command.query_async(connection).await? {
        Value::Array(parts) => Ok(parts.get(1).and_then(|value| cell(value).ok())),
        _ => Ok(None),
    }
}

/// From so many lost commits in a row on, turns are taken.
const LOSSES_BEFORE_TURNS: u32 = 2;

/// After so many lost commits with it, a turn ends: there is another one.
const LOSSES_WITH_TURN: u32 = 2;

/// After so many lost commits without a turn, one is waited for again. What was last seen is old after a
/// wait, so the first is lost mostly.
const LOSSES_WITHOUT_TURN: u32 = 3;

/// When a turn came back so often without another node's commit, no more are taken.
const ALONE_BEFORE_END: u32 = 8;

/// At how many keys turns are taken at most, each with a connection of its own.
const MOST_KEYS: usize = 4;

/// Of how many keys lost commits are counted at most.
const MOST_LOSSES: usize = 1_024;

/// How long connecting, and each command on the way to it, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long after a failure the next attempt to connect begins.
const RECONNECT_AFTER_NS: u64 = 1_000_000_000;

/// How long the first turn is waited for.
const FIRST_LIMIT_NS: u64 = 2_000_000;

/// How long a turn is waited for at most, whatever the deadline is: it may be lost.
const MOST_LIMIT_NS: u64 = 100_000_000;

/// After that time a key that is not used makes room for another.
const UNUSED_AFTER_NS: u64 = 1_000_000_000;
