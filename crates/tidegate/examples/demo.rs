//! A limiter at work, in a few seconds: decisions, waits, a live change, a flood, and its speed.

#![allow(clippy::print_stdout, reason = "this is what a demo is for")]
#![allow(clippy::float_arithmetic, reason = "for printing only, nothing is decided with it")]

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use tidegate::{
    Bucket, Decision, Limiter, Rate, Sliding, Verdict, Wait,
    clock::{Clock, ManualClock, MonotonicClock},
};

fn main() -> Result<(), Box<dyn Error>> {
    decisions()?;
    sliding()?;
    live_change()?;
    flood()?;
    speed()
}

fn decisions() -> Result<(), Box<dyn Error>> {
    title("A bucket per client: 2 per second, 3 at once");
    let clock = ManualClock::default();
    let limit = Bucket::per_second(2).burst(3);
    let limiter = Limiter::<String>::builder(limit).clock(clock.clone()).build()?;
    for step_ms in [0, 0, 0, 0, 200, 300, 0] {
        clock.advance(Duration::from_millis(step_ms));
        println!("  {}  alice  {}", clock.now(), describe(&limiter.check("alice")));
    }
    println!("  {}  bob    {}", clock.now(), describe(&limiter.check("bob")));
    println!("  alice refunds one unit: {} returned", limiter.refund("alice", 1));
    println!("  {}  alice  {}", clock.now(), describe(&limiter.check("alice")));
    Ok(())
}

fn sliding() -> Result<(), Box<dyn Error>> {
    title("A sliding window: 5 in every 10 seconds, no double burst at an edge");
    let clock = ManualClock::default();
    let limit = Sliding::new(5, Duration::from_secs(10), 10);
    let limiter = Limiter::<str, _>::builder(limit).clock(clock.clone()).build()?;
    for step_secs in [8, 1, 2, 3, 4] {
        clock.advance(Duration::from_secs(step_secs));
        let allowed = (0..3).filter(|_| limiter.allow("carol")).count();
        let last = limiter.peek("carol");
        println!("  {}  3 attempts, {allowed} allowed; then {}", clock.now(), describe(&last));
    }
    Ok(())
}

fn live_change() -> Result<(), Box<dyn Error>> {
    title("A limit changed while running: charges stay");
    let per_minute = |burst| Bucket::try_new(Rate::per_minute(1), burst);
    let limiter: Limiter<u64> = Limiter::new(per_minute(100)?);
    let left = |limiter: &Limiter<u64>| limiter.peek(&7).remaining();
    let _ = limiter.check_n(&7, 90);
    print!("  90 of 100 charged, {} left", left(&limiter));
    limiter.set_limit(per_minute(5)?);
    print!(" | lowered to 5: {} left", left(&limiter));
    limiter.set_limit(per_minute(100)?);
    print!(" | raised again: {} left", left(&limiter));
    limiter.set_override(&7, per_minute(1_000)?)?;
    println!(" | override of 1000: {} left", left(&limiter));
    Ok(())
}

fn flood() -> Result<(), Box<dyn Error>> {
    title("Two million one-time keys against a capacity of 100 000");
    let limit = Bucket::per_hour(1).burst(10);
    let limiter = Limiter::<u64>::builder(limit).max_keys(100_000).build()?;
    let known = u64::MAX;
    let _ = limiter.check_n(&known, 4);
    let allowed = (0..2_000_000).filter(|key| limiter.allow(key)).count();
    let keys = limiter.len();
    println!("  {allowed} allowed, {keys} keys stored");
    println!("  a key from before: {} of 6 left", limiter.peek(&known).remaining());
    Ok(())
}

fn speed() -> Result<(), Box<dyn Error>> {
    title("Speed, on this machine, one thread");
    let limiter: Limiter<String> = Limiter::new(Bucket::per_minute(1).burst(1_000));
    let keys: Vec<String> = (0..1_000_000).map(|number| format!("user:{number:07}")).collect();
    let per_call = |calls: usize, call: &dyn Fn(usize)| {
        let start = MonotonicClock.now();
        (0..calls).for_each(call);
        (MonotonicClock.now().as_nanos() - start.as_nanos()) as f64 / calls as f64
    };
    let new = per_call(keys.len(), &|number| {
        black_box(limiter.allow(&keys[number]));
    });
    let known = per_call(keys.len(), &|number| {
        black_box(limiter.allow(&keys[number]));
    });
    let hot = per_call(5_000_000, &|_| {
        black_box(limiter.allow("user:0000000"));
    });
    println!(
        "  one key again and again {hot:.0} ns, a million keys {known:.0} ns, new keys {new:.0} ns"
    );
    Ok(())
}

fn describe(decision: &Decision) -> String {
    match decision.verdict() {
        Verdict::Allow { remaining } => format!("allowed, {remaining} left"),
        Verdict::Deny { wait: Wait::After(wait) } => format!("denied, retry in {wait:?}"),
        Verdict::Deny { wait: Wait::Never } => "denied for ever".to_owned(),
        Verdict::Deny { wait: Wait::Unknown } => "denied, wait unknown".to_owned(),
    }
}

fn title(title: &str) {
    println!("\n{title}");
}
