//! A relay in this process, on its own port.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::{Bucket, Rate, Timestamp, clock::ManualClock};
use tidegate_listen::{ListenSocket, PermitLimits};
use tidegate_relay::{Relay, RelayBuilder, serve};
use tokio::task::JoinHandle;

use crate::client::TestClient;

pub(crate) const HOST: &str = "relay.example";

/// A relay with a stopped clock, and its address.
pub(crate) struct Server {
    pub(crate) relay: Relay<ManualClock>,
    pub(crate) clock: ManualClock,
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// A relay with one message per second and this burst.
    pub(crate) async fn with_burst(burst: u64) -> Self {
        Self::with_limit(Some(bucket(burst))).await
    }

    pub(crate) async fn with_limit(limit: Option<Bucket>) -> Self {
        Self::start(|builder| builder.limit(limit)).await
    }

    pub(crate) async fn start(
        set: impl FnOnce(RelayBuilder<ManualClock>) -> RelayBuilder<ManualClock>,
    ) -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        let relay = set(Relay::builder(HOST).clock(clock.clone())).build().unwrap();
        let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let task = tokio::spawn(serve(socket, limits(), relay.router(), std::future::pending()));
        Self { relay, clock, address, task }
    }

    /// An authenticated client; the same number is the same key.
    pub(crate) async fn join(&self, number: u64) -> TestClient {
        TestClient::join(self.address, number).await
    }

    pub(crate) fn advance_ms(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Waits until this many clients are connected.
    pub(crate) async fn until_connections(&self, count: usize) {
        until(|| self.relay.connections() == count).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All clients of a test have the same address.
pub(crate) fn limits() -> PermitLimits {
    PermitLimits::new(4_096).per_peer(Some(4_096))
}

/// One per second, and this many at once.
pub(crate) fn bucket(burst: u64) -> Bucket {
    Bucket::try_new(Rate::per_second(1), burst).unwrap()
}

/// Yields to other tasks until a condition holds.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    let poll = async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.expect("the condition should hold by now");
}

/// Long enough for any machine, and shorter than the relay's ping interval.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
