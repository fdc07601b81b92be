//! What is measured: this store, and a script on the same server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidegate::policy::Policy;
use tidegate::redis::Redis;
use tidegate::{Request, StoreEngine};
use tokio::runtime::Runtime;

use crate::load::{Amount, Measured, Shape, run};

/// GCRA over any number of keys, all or none: whole microseconds of the server's clock, one read and
/// one write of each key, which expires when it is as good as none.
const GCRA: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local each, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local new, wait = {}, 0
for i = 1, #KEYS do
  local at = tonumber(redis.call('GET', KEYS[i]) or now)
  if at < now then at = now end
  new[i] = at + each
  if new[i] - now - room > wait then wait = new[i] - now - room end
end
if wait > 0 then return {0, wait} end
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], string.format('%d', new[i]), 'PX', math.ceil((new[i] - now) / 1000))
end
return {1, 0}
";

/// One unit each microsecond, and as many at once as in a second.
const RATE: &str = "1000000/s";
const EACH_US: u32 = 1;
const ROOM_US: u32 = 1_000_000;

/// The script, over one connection that all decisions share.
#[derive(Clone)]
pub struct Script {
    connection: MultiplexedConnection,
    sha: String,
    limits: usize,
}

impl Script {
    pub fn connect(runtime: &Runtime, url: &str, limits: usize) -> Self {
        runtime.block_on(async {
            let client = redis::Client::open(url).expect("an address");
            let mut connection =
                client.get_multiplexed_async_connection().await.expect("the server accepts it");
            let mut load = redis::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(GCRA).query_async(&mut connection);
            let sha = load.await.expect("a script");
            Self { connection, sha, limits }
        })
    }

    pub fn load(&self, runtime: &Runtime, shape: Shape, amount: Amount) -> Measured {
        let script = self.clone();
        run(runtime, shape, amount, async move |key| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(&script.sha).arg(script.limits);
            for limit in 0..script.limits {
                command.arg(format!("gcra:{limit}:{key}"));
            }
            command.arg(EACH_US).arg(ROOM_US);
            let mut connection = script.connection.clone();
            let response = command.query_async::<(u64, u64)>(&mut connection).await;
            response.is_ok_and(|(is_allowed, _)| is_allowed == 1)
        })
    }
}

/// This store, with an engine as in a process of its own.
#[derive(Clone)]
pub struct Ours {
    pub redis: Redis,
    pub engine: StoreEngine,
}

impl Ours {
    pub fn connect(url: &str, limits: usize) -> Self {
        Self::with_deadline(url, limits, Duration::from_secs(5))
    }

    pub fn with_deadline(url: &str, limits: usize, deadline: Duration) -> Self {
        let redis = Redis::builder(url).secret("bench").deadline(deadline).build();
        let redis = redis.expect("valid settings");
        let rule = |number: usize| {
            format!(
                "[[rule]]\nname = \"r{number}\"\nkey = [\"user\"]\n\
                 bucket = {{ rate = \"{RATE}\", burst = {ROOM_US} }}\n"
            )
        };
        let policy = Policy::from_toml(&(0..limits).map(rule).collect::<String>());
        let policy = policy.expect("a valid policy");
        let engine = StoreEngine::builder(policy)
            .store(redis.store())
            .clock(redis.clock())
            .build()
            .expect("an engine on Redis needs no memory for keys");
        Self { redis, engine }
    }

    pub fn load(&self, runtime: &Runtime, shape: Shape, amount: Amount) -> Measured {
        let engine = self.engine.clone();
        run(runtime, shape, amount, async move |key| {
            let key = key.to_string();
            let attributes = [("user", &*key)];
            let report = engine.check(&Request::new("default", &attributes)).await;
            report.is_ok_and(|report| report.is_allowed() && !report.is_outage())
        })
    }

    /// Decides once, and blocks; false in an outage.
    pub fn decides(&self) -> bool {
        let report = self.engine.check(&Request::new("default", &[("user", "0")])).block();
        report.is_ok_and(|report| !report.is_outage())
    }
}
