//! Runs one path of a decision a number of times, for counting its instructions.
//!
//! `paths PATH CALLS` makes that many calls. Everything before them is the same for any number, so
//! the difference between two numbers is the price of the calls alone. `scripts/instructions` runs
//! this under valgrind and compares the counts with the expected ones.

use std::hint::black_box;
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{clock::{Clock, MonotonicClock}, hash::KeyedHash, Bucket, Limiter, Rate, Request, StoreEngine, Timestamp};

/// A clock that stands still: how the time is read depends on the processor and the kernel.
#[derive(Clone, Copy)]
struct Still(Timestamp);

impl Clock for Still {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        self.0
    }
}

const STILL: Still = Still(Timestamp::from_secs(1));

/// The paths, by name; what ends in `-clock` reads the default clock.
const PATHS: &[(&str, fn(usize))] = &[
    ("allow", |calls| repeat(known(STILL, 1), allow, calls)),
    ("denied", |calls| repeat(drained(STILL), deny, calls)),
    ("check", |calls| repeat(known(STILL, 1), check, calls)),
    ("new", |calls| each_once(STILL, calls)),
    ("allow-clock", |calls| repeat(known(calibrated(), 1), allow, calls)),
    ("denied-clock", |calls| repeat(drained(calibrated()), deny, calls)),
    ("check-clock", |calls| repeat(known(calibrated(), 1), check, calls)),
    ("allow-1k-clock", |calls| repeat(known(calibrated(), 1_000), allow, calls)),
    ("check-1k-clock", |calls| repeat(known(calibrated(), 1_000), check, calls)),
    ("allow-1m-clock", |calls| repeat(known(calibrated(), 1_000_000), allow, calls)),
    ("check-1m-clock", |calls| repeat(known(calibrated(), 1_000_000), check, calls)),
    ("engine", |calls| decide(ONE_RULE, 1, allowed, calls)),
    ("engine-denied", |calls| decide(ONE_UNIT, 1, denied, calls)),
    ("engine-new", |calls| decide_each_once(ONE_RULE, calls)),
    ("engine-three", |calls| decide(THREE_RULES, 1, allowed, calls)),
    ("engine-commit", |calls| decide(ONE_RULE, 1, committed, calls)),
    ("loop", |calls| repeat(known(STILL, 1), nothing, calls)),
];

fn main() -> Result<(), String> {
    let usage = || {
        let names: Vec<&str> = PATHS.iter().map(|(name, _)| *name).collect();
        format!("usage: paths PATH CALLS, with PATH one of {}", names.join(", "))
    };
    let mut args = std::env::args().skip(1);
    let (path, calls) = args.next().zip(args.next()).ok_or_else(usage)?;
    let calls = calls.parse().map_err(|_| usage())?;
    let (_, run) = PATHS.iter().find(|(name, _)| *name == path).ok_or_else(usage)?;
    run(calls);
    Ok(())
}

/// A limiter that knows some keys, and the keys.
struct Known<C: Clock> {
    limiter: Limiter<String, Bucket, C>,
    keys: Vec<[u8; 12]>,
}

fn limiter<C: Clock>(clock: C, burst: u64) -> Limiter<String, Bucket, C> {
    let rate = Rate::per_day(1);
    let limit = Bucket::try_new(rate, burst).expect("the burst is small enough");
    let builder = Limiter::builder(limit).clock(clock).hasher(hash());
    builder.build().expect("an empty limiter is small")
}

/// The default hash, with the same seed in every run: a table grows in the same way then.
fn hash() -> KeyedHash {
    let mut state = 1_u128;
    let mut words = KeyedHash::new().to_words();
    for word in &mut words {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(7);
        *word = state ^ (state >> 61);
    }
    KeyedHash::from_words(&words).expect("there are as many words as before")
}

fn known<C: Clock>(clock: C, keys: usize) -> Known<C> {
    // More than any run charges.
    let limiter = limiter(clock, 1 << 30);
    let keys: Vec<_> = (0..keys).map(|number| key(number * STEP % keys)).collect();
    for key in &keys {
        assert!(limiter.allow(text(key)), "a first call is allowed");
    }
    Known { limiter, keys }
}

fn drained<C: Clock>(clock: C) -> Known<C> {
    let known = Known { limiter: limiter(clock, 1), keys: vec![key(0)] };
    assert!(known.limiter.allow(text(&known.keys[0])), "a first call is allowed");
    known
}

/// The default clock, after the time that it measures the counter for.
fn calibrated() -> MonotonicClock {
    for _ in 0..3 {
        black_box(MonotonicClock.now());
        std::thread::sleep(Duration::from_millis(20));
    }
    MonotonicClock
}

/// A key of 12 bytes.
fn key(number: usize) -> [u8; 12] {
    let text = format!("user:{number:07}");
    text.as_bytes().try_into().expect("five letters and seven digits")
}

fn text(key: &[u8; 12]) -> &str {
    std::str::from_utf8(key).expect("a key is text")
}

#[inline(never)]
fn allow<C: Clock>(limiter: &Limiter<String, Bucket, C>, key: &str) -> bool {
    limiter.allow(key)
}

#[inline(never)]
fn deny<C: Clock>(limiter: &Limiter<String, Bucket, C>, key: &str) -> bool {
    !limiter.allow(key)
}

#[inline(never)]
fn check<C: Clock>(limiter: &Limiter<String, Bucket, C>, key: &str) -> bool {
    black_box(&limiter.check(key)).is_allowed()
}

/// What a call costs that does nothing.
#[inline(never)]
fn nothing<C: Clock>(_: &Limiter<String, Bucket, C>, key: &str) -> bool {
    black_box(key.len()) > 0
}

/// Calls with known keys, in an order that jumps in the table.
fn repeat<C: Clock>(
    Known { limiter, keys }: Known<C>,
    call: fn(&Limiter<String, Bucket, C>, &str) -> bool,
    calls: usize,
) {
    // Checked here, not in the loop.
    let keys: Vec<&str> = keys.iter().map(text).collect();
    for key in keys.iter().cycle().take(calls) {
        assert!(call(&limiter, key), "every call is decided alike");
    }
}

/// Calls with a new key each, in a table that has many.
fn each_once<C: Clock>(clock: C, calls: usize) {
    let Known { limiter, .. } = known(clock, NEW_BEFORE);
    assert!(calls <= NEW_MAX, "there are {NEW_MAX} new keys");
    let keys: Vec<_> = (NEW_BEFORE..NEW_BEFORE + NEW_MAX).map(key).collect();
    let keys: Vec<&str> = keys.iter().map(text).collect();
    for key in &keys[..calls] {
        assert!(allow(&limiter, key), "a first call is allowed");
    }
}

const ONE_RULE: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    bucket = { rate = "1/d", burst = 1000000000 }
"#;

const ONE_UNIT: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    bucket = { rate = "1/d", burst = 1 }
"#;

const THREE_RULES: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    bucket = { rate = "1/d", burst = 1000000000 }

    [[rule]]
    name   = "per-user-window"
    key    = ["user"]
    window = { max = 1000000000, per = "1d" }

    [[rule]]
    name   = "everyone"
    bucket = { rate = "1/d", burst = 1000000000 }
"#;

type StillEngine = StoreEngine;

fn engine(policy: &str) -> StillEngine {
    let policy = Policy::from_toml(policy).expect("the policy is valid");
    let Ok(engine) = StoreEngine::builder(policy).clock(STILL).build() else {
        panic!("an empty store is small");
    };
    engine
}

#[inline(never)]
fn allowed(engine: &StillEngine, request: &Request<'_>) -> bool {
    engine.check(request).block().is_ok_and(|report| black_box(&report).is_allowed())
}

#[inline(never)]
fn denied(engine: &StillEngine, request: &Request<'_>) -> bool {
    engine.check(request).block().is_ok_and(|report| !black_box(&report).is_allowed())
}

#[inline(never)]
fn committed(engine: &StillEngine, request: &Request<'_>) -> bool {
    let held = engine.hold(request).block().ok().and_then(|report| report.hold());
    held.is_some_and(|id| engine.commit(id, None).block().is_ok())
}

/// Decisions of an engine about keys that it knows.
fn decide(policy: &str, keys: usize, call: fn(&StillEngine, &Request<'_>) -> bool, calls: usize) {
    let engine = engine(policy);
    let keys: Vec<_> = (0..keys).map(key).collect();
    let attributes: Vec<_> = keys.iter().map(|key| [("user", text(key))]).collect();
    let requests: Vec<_> = attributes.iter().map(|it| Request::new("default", it)).collect();
    for request in &requests {
        assert!(allowed(&engine, request), "a first request is allowed");
    }
    for request in requests.iter().cycle().take(calls) {
        assert!(call(&engine, request), "every request is decided alike");
    }
}

/// Decisions about a new key each, in a table that has many.
fn decide_each_once(policy: &str, calls: usize) {
    let engine = engine(policy);
    assert!(calls <= NEW_MAX, "there are {NEW_MAX} new keys");
    let keys: Vec<_> = (0..NEW_BEFORE + NEW_MAX).map(key).collect();
    let attributes: Vec<_> = keys.iter().map(|key| [("user", text(key))]).collect();
    for attributes in &attributes[..NEW_BEFORE + calls] {
        let request = Request::new("default", attributes);
        assert!(allowed(&engine, &request), "a first request is allowed");
    }
}

/// A prime: its multiples visit all keys.
const STEP: usize = 611_953;

/// Keys that are there before the new ones come: more than the small first segments hold.
const NEW_BEFORE: usize = 20_000;
const NEW_MAX: usize = 400_000;
