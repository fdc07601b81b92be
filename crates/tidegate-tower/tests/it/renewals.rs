//! Reservations that are renewed while a body is sent, over a store that is away for a while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate::policy::Policy;
use tidegate::store::{Listing, RecordKey, RecordStore, Records, SharedStore, Step, Transaction};
use tidegate::{Outage, Request as EngineRequest, StoreEngine, clock::ManualClock};
use tidegate_tower::{Header, PolicyLayer, Settle};
use tower::ServiceExt;

use crate::settle::streaming;
use crate::support::get;

/// Records in a map, which fails while it is away.
#[derive(Debug, Default)]
struct Map {
    records: Mutex<HashMap<RecordKey, Arc<[u8]>>>,
    is_away: AtomicBool,
}

impl RecordStore for Map {
    fn run(&self, mut transaction: Transaction) {
        if self.is_away.load(Ordering::SeqCst) {
            return transaction.fail(Outage::Unavailable);
        }
        let mut map = self.records.lock().unwrap();
        let mut records = Records::default();
        let mut keys = transaction.first_reads().to_vec();
        loop {
            for key in keys {
                records.insert(key, map.get(&key).cloned());
            }
            match transaction.step(&records) {
                Step::Read(more) => keys = more,
                Step::Write(writes) => {
                    for write in writes {
                        match write.value {
                            Some(value) => map.insert(write.key, value),
                            None => map.remove(&write.key),
                        };
                    }
                    return transaction.complete();
                }
                Step::Done => return transaction.complete(),
            }
        }
    }

    fn states(&self, _from: u64) -> Listing {
        Box::pin(async { Ok((Vec::new(), 0)) })
    }

    fn len(&self) -> usize {
        self.records.lock().unwrap().len()
    }
}

const TOKENS: &str = r#"
    [[rule]]
    name        = "tokens"
    key         = ["team"]
    quota       = { max = 1000, per = "day" }
    reserve_for = "1m"
"#;

#[tokio::test]
async fn a_renewal_that_fails_is_repeated_before_the_reservation_expires() {
    let (map, clock) = (Arc::new(Map::default()), ManualClock::default());
    let store = SharedStore::new(Arc::clone(&map), b"a secret");
    let builder = StoreEngine::builder(Policy::from_toml(TOKENS).unwrap()).store(store);
    let engine = builder.clock(clock.clone()).build().unwrap();
    let layer = PolicyLayer::new(engine.clone(), "default")
        .unwrap()
        .attribute("team", Header::new("x-team"))
        .cost(|_| 400)
        .settle(|_| Settle::AtEnd);
    let (sender, app) = streaming();
    let mut body =
        app.layer(layer).oneshot(get("/", &[("x-team", "red")])).await.unwrap().into_body();
    for (after_s, is_away) in [(35, true), (10, false), (45, false), (55, false)] {
        clock.advance(Duration::from_secs(after_s));
        map.is_away.store(is_away, Ordering::SeqCst);
        sender.send(Bytes::from_static(b"0123456789")).unwrap();
        body.frame().await.unwrap().unwrap();
    }
    drop(sender);
    assert!(body.frame().await.is_none());
    let request = EngineRequest::new("default", &[("team", "red")]);
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(960));
}
