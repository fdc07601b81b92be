//! Logs outages of the store, their ends, and idempotency keys that were dropped before their time.

use std::time::Duration;

use tidegate::durable::FileStore;
use tidegate::policy::Policy;
use tidegate::{
    StoreEngine, Timestamp,
    clock::{Clock, SystemClock},
};

use tidegate::redis::{DurabilityError, Redis};
use tidegate_listen::ShutdownSignal;

/// Watches the store until the daemon stops.
pub(crate) async fn store_health(engine: StoreEngine, mut shutdown: ShutdownSignal) {
    let Some(store) = engine.file_store() else { return };
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let (mut is_failing, mut outages) = (false, 0);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        let before = std::mem::replace(&mut outages, store.counts().outages);
        match store.failure() {
            Some(error) if !is_failing => {
                tracing::error!(%error, "store unavailable; on_error applies");
                is_failing = true;
            }
            None if is_failing => {
                tracing::info!("store available again");
                is_failing = false;
            }
            None if outages > before => {
                let (outages, error) = (outages - before, store.last_failure());
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                tracing::error!(%error, outages, "store was unavailable for a moment; on_error applied");
            }
            _ => {}
        }
    }
}

/// Whether a shared store provides the durability that the rules of a policy set. Waits for the first
/// attempt to connect, but not for a store that is away.
pub(crate) async fn check_durability(
    redis: &Redis,
    policy: &Policy,
) -> Result<(), DurabilityError> {
    if policy.rules().iter().all(|rule| rule.durability().is_none()) {
        return Ok(());
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let is_known = async {
        while redis.server().is_none() && redis.failure().is_none() {
            ticks.tick().await;
        }
    };
    let _ = tokio::time::timeout(FIRST_CONNECTION, is_known).await;
    redis.check_durability(policy)
}

/// Logs when a shared store does not provide the durability that the rules in force set, and when it
/// does again, until the daemon stops.
pub(crate) async fn shared_store(redis: Redis, engine: StoreEngine, mut shutdown: ShutdownSignal) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let mut last: Option<String> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        let lacking = redis.check_durability(&engine.policy()).err().map(|it| it.to_string());
        match (&last, &lacking) {
            (before, Some(error)) if before.as_ref() != Some(error) => {
                tracing::error!(%error, "store not durable enough; on_error applies to its rules");
            }
            (Some(_), None) => tracing::info!("store durable enough again"),
            _ => {}
        }
        last = lacking;
    }
}

/// Takes over the rules that other daemons put into force in a shared store, also while there are no
/// requests, and warns if they are not those of this daemon's policy file.
pub(crate) async fn shared_policy(engine: StoreEngine, file: Policy, mut shutdown: ShutdownSignal) {
    if !engine.is_shared() {
        return;
    }
    let file = file.with_request_limits();
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let mut is_first = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        if engine.synchronize().await.is_ok()
            && std::mem::take(&mut is_first)
            && *engine.policy() != file
        {
            tracing::warn!(
                "a newer policy is in force in the store, not this file: raise its `revision`, or reload \
                 it to put it into force"
            );
        }
    }
}

/// Warns about idempotency keys that are dropped before their time, until the daemon stops.
pub(crate) async fn idempotency_keys(engine: StoreEngine, mut shutdown: ShutdownSignal) {
    let mut ticks = tokio::time::interval(WARN_EVERY);
    let mut before = engine.evicted_idempotency_keys();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        let evicted = engine.evicted_idempotency_keys();
        if evicted > before {
            tracing::warn!(
                evicted = evicted - before,
                max_idempotency_keys = engine.policy().settings().max_idempotency_keys(),
                "idempotency keys dropped before their time: repeated requests may be charged \
                 again; raise max_idempotency_keys"
            );
        }
        before = evicted;
    }
}

/// Warns if the clock does not fit the times in the ledger.
pub(crate) fn warn_of_clock(store: &FileStore) {
    let (last, now) = (store.last_time(), SystemClock::new().now());
    let ledger_is_ahead_s = last.as_nanos().saturating_sub(now.as_nanos()) / NANOS_PER_SEC;
    let clock_is_ahead_s = now.as_nanos().saturating_sub(last.as_nanos()) / NANOS_PER_SEC;
    if ledger_is_ahead_s > MOST_BEHIND.as_secs() {
        tracing::warn!(
            ledger_is_ahead_s,
            "the last entry of the ledger is in the future: it was written while the clock was wrong, \
             or the clock is wrong now. Quotas that were charged then are denied until that time. Set \
             the clock and start again; or, if it is right, restore a backup from before, or reset \
             the keys that are denied (`tidegate admin reset`)"
        );
    } else if last > Timestamp::ZERO && clock_is_ahead_s > MOST_AHEAD.as_secs() {
        tracing::warn!(
            clock_is_ahead_s,
            "the clock is far ahead of the last entry of the ledger. If it is wrong, stop now and set \
             it before anything is charged: entries in the future stay"
        );
    }
}

/// How far the ledger may be ahead of the clock.
const MOST_BEHIND: Duration = Duration::from_secs(60);

/// How far the clock may be ahead of the ledger: a daemon may be stopped for weeks.
const MOST_AHEAD: Duration = Duration::from_secs(60 * 24 * 60 * 60);

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// How long a start waits for the first attempt to connect to a shared store.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);

const CHECK_EVERY: Duration = Duration::from_secs(1);

const WARN_EVERY: Duration = Duration::from_secs(10);
