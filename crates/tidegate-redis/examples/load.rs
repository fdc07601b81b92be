//! Load on a server, by this store and by a script, from the same loader.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::float_arithmetic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::policy::Policy;
use tidegate::{Engine, Request};
use tidegate_redis::Redis;

const GCRA: &str = "local now = redis.call('TIME') local t = now[1] * 1000000 + now[2] \
local emission = tonumber(ARGV[1]) local burst = tonumber(ARGV[2]) \
local tat = redis.call('GET', KEYS[1]) if not tat then tat = t else tat = tonumber(tat) end \
if tat < t then tat = t end local new = tat + emission \
if new - t > burst * emission then return {0, new - burst * emission - t} end \
redis.call('SET', KEYS[1], string.format('%d', new), 'PX', math.ceil((new - t) / 1000) + 1) return {1, 0}";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (mode, url) = (args[1].as_str(), args[2].as_str());
    let in_flight: usize = args[3].parse().unwrap();
    let keys: usize = args[4].parse().unwrap();
    let secs: u64 = args.get(5).map_or(3, |it| it.parse().unwrap());
    let rules: usize = args.get(6).map_or(1, |it| it.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (done, allowed, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let latencies = Arc::new(std::sync::Mutex::new(Vec::new()));
    let local = tokio::task::LocalSet::new();
    let begun = Instant::now();
    local.block_on(&runtime, async {
        let mut tasks = Vec::new();
        if mode == "script" {
            let client = redis::Client::open(url).unwrap();
            let connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut loader = connection.clone();
            let sha: String =
                redis::cmd("SCRIPT").arg("LOAD").arg(GCRA).query_async(&mut loader).await.unwrap();
            for task in 0..in_flight {
                let (mut connection, sha) = (connection.clone(), sha.clone());
                let (done, allowed, stop) = (done.clone(), allowed.clone(), stop.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let mut number = task * 7919;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let key = format!("gcra:{}", number % keys);
                        let mut command = redis::cmd("EVALSHA");
                        command.arg(&sha).arg(1).arg(&key).arg(1).arg(1_000_000);
                        let (yes, _): (u64, i64) = command.query_async(&mut connection).await.unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                        allowed.fetch_add(yes, Ordering::Relaxed);
                    }
                }));
            }
        } else {
            let redis = Redis::builder(url).secret("x").deadline(Duration::from_secs(2)).build().unwrap();
            let one = |n: usize| format!("[[rule]]\nname = \"r{n}\"\nkey = [\"user\"]\nbucket = {{ rate = \"1000000/s\", burst = 1000000 }}\n");
            let policy: String = (0..rules).map(one).collect();
            let policy = Policy::from_toml(&policy).unwrap();
            let Ok(engine) = Engine::builder(policy).store(redis.store()).clock(redis.clock()).build();
            for task in 0..in_flight {
                let engine = engine.clone();
                let latencies = latencies.clone();
                let (done, allowed, stop) = (done.clone(), allowed.clone(), stop.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let mut number = task * 7919;
                    let mut own = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let key = (number % keys).to_string();
                        let attributes = [("user", &*key)];
                        let began = Instant::now();
                        let report = engine.check(&Request::new("default", &attributes)).await.unwrap();
                        own.push(began.elapsed());
                        done.fetch_add(1, Ordering::Relaxed);
                        allowed.fetch_add(u64::from(report.is_allowed() && !report.is_outage()), Ordering::Relaxed);
                    }
                    latencies.lock().unwrap().extend(own);
                }));
            }
            let stop = stop.clone();
            tasks.push(tokio::task::spawn_local(async move {
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                println!("{:?}", redis.stats());
            }));
        }
        tokio::time::sleep(Duration::from_secs(secs)).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
    });
    let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    let mut all = latencies.lock().unwrap();
    all.sort_unstable();
    let at = |part: f64| all.get((all.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "{mode}: {rate:.0}/s, allowed {}; p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        allowed.load(Ordering::Relaxed),
        at(0.5),
        at(0.99),
        at(0.999),
        all.last()
    );
}
