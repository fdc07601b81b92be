//! Decisions while the server is away, and the first one after it is back.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate::Request;
use tidegate_redis_servers::{Program, until};

use crate::contenders::Ours;
use crate::load::percentile;
use crate::servers;

/// What an outage costs.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// The 99th percentile of decisions with the breaker open.
    pub p99_us: f64,
    pub recovery_ms: f64,
}

pub fn run() -> Outage {
    let server = servers::start(Program::Valkey9);
    let ours = Ours::with_deadline(&server.url(), 1, Duration::from_millis(50));
    until("it decides", || ours.decides());
    server.kill();
    until("the breaker opens", || {
        ours.decides();
        !ours.redis.is_available()
    });
    let request = Request::new("default", &[("user", "0")]);
    let decide = |_| {
        let began = Instant::now();
        let report = black_box(ours.engine.check(&request).block()).expect("a valid request");
        let took = began.elapsed();
        assert!(report.is_outage(), "the server is away");
        u32::try_from(took.as_nanos()).unwrap_or(u32::MAX)
    };
    let mut took_ns: Vec<u32> = (0..200_000).map(decide).collect();
    took_ns.sort_unstable();
    server.restart();
    let back = Instant::now();
    servers::pin_server(&server);
    until("it decides again", || ours.decides());
    let recovery_ms = back.elapsed().as_secs_f64() * 1e3;
    Outage { p99_us: percentile(&took_ns, 0.99), recovery_ms }
}
