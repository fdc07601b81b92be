use std::collections::HashMap;
use std::time::Duration;

use tidegate::policy::Policy;

use super::{Replay, ReplayOptions};
use crate::{AttributePlan, LineOrder, LogOptions, LogReader, ReadSummary, Source};

struct Run {
    replay: Replay,
    summary: ReadSummary,
}

fn run(policy: &str, log: &str) -> Run {
    run_with(policy, log, 1_000)
}

fn run_with(policy: &str, log: &str, max_keys: usize) -> Run {
    let policy = Policy::from_toml(policy).unwrap_or_else(|error| panic!("{error}"));
    let plan = AttributePlan::new(&[(&policy, "default")], &[]);
    let options = ReplayOptions { max_keys, explained: 3, cost_index: None };
    let mut replay = Replay::new(policy, "default", &plan, options).unwrap();
    let options = LogOptions {
        format: None,
        time_field: None,
        order: LineOrder::Window(Duration::from_secs(10)),
        memory_bytes: 1 << 20,
    };
    let source = Source { name: "log".into(), bytes: Box::new(log.as_bytes()) };
    let summary = LogReader::new(&plan, options)
        .read(vec![source], &mut |record| replay.decide(record), &mut |_| ())
        .unwrap();
    Run { replay, summary }
}

/// Requests at random times of random users: second, user.
fn requests(count: u64, users: u64) -> Vec<(u64, u64)> {
    let (mut random, mut second) = (1_u64, 1_700_000_000);
    let mut next = move |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    (0..count)
        .map(|_| {
            second += next(3);
            (second, next(users) * next(2))
        })
        .collect()
}

fn log(requests: &[(u64, u64)]) -> String {
    let line =
        |(second, user): &(u64, u64)| format!("{{\"time\":{second},\"user\":\"u{user}\"}}\n");
    requests.iter().map(line).collect()
}

const BUCKET: &str = "[[rule]]\nname = 'a'\nkey = ['user']\nbucket = { rate = '7/m', burst = 3 }";
const WINDOW: &str = "[[rule]]\nname = 'a'\nkey = ['user']\nwindow = { max = 4, per = '20s' }";

#[test]
fn a_bucket_denies_what_a_plain_calculation_denies() {
    let requests = requests(5_000, 40);
    // Tokens in sixtieths, which seven per minute makes whole.
    let mut buckets: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut denied: HashMap<u64, u64> = HashMap::new();
    for &(second, user) in &requests {
        let (tokens, last) = buckets.get(&user).copied().unwrap_or((180, second));
        let tokens = 180.min(tokens + 7 * (second - last));
        if tokens >= 60 {
            buckets.insert(user, (tokens - 60, second));
        } else {
            *denied.entry(user).or_default() += 1;
        }
    }
    check(BUCKET, &requests, &denied);
}

#[test]
fn a_window_denies_what_a_plain_calculation_denies() {
    let requests = requests(5_000, 40);
    let mut windows: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut denied: HashMap<u64, u64> = HashMap::new();
    for &(second, user) in &requests {
        let (end, used) = windows.entry(user).or_insert((0, 0));
        if second >= *end {
            (*end, *used) = (second + 20, 0);
        }
        if *used < 4 { *used += 1 } else { *denied.entry(user).or_default() += 1 }
    }
    check(WINDOW, &requests, &denied);
}

#[track_caller]
fn check(policy: &str, requests: &[(u64, u64)], denied: &HashMap<u64, u64>) {
    let Run { replay, summary } = run(policy, &log(requests));
    let counts = replay.counts();
    let users: std::collections::HashSet<_> = requests.iter().map(|(_, user)| user).collect();
    let sum: u64 = denied.values().sum();
    assert!(sum > 100, "a test without denials shows nothing");
    assert_eq!((summary.requests, summary.unreadable, summary.late), (5_000, 0, 0));
    assert_eq!((counts.totals().requests, counts.totals().denied), (5_000, sum));
    assert_eq!((counts.keys(), counts.keys_denied()), (users.len() as u64, denied.len() as u64));
    for key in counts.denied_keys() {
        let user: u64 = key.key[0].1.as_deref().unwrap()[1..].parse().unwrap();
        assert_eq!(Some(&key.denied), denied.get(&user));
        let count = requests.iter().filter(|it| it.1 == user).count() as u64;
        assert_eq!(key.requests, Some(count));
        assert_eq!(key.over_time.iter().map(|it| u64::from(it.1)).sum::<u64>(), key.denied);
    }
    let buckets = counts.series().buckets();
    assert_eq!(buckets.iter().map(|it| it.denied).sum::<u64>(), sum);
    assert_eq!(buckets.iter().map(|it| it.allowed + it.denied).sum::<u64>(), 5_000);
    assert_eq!(replay.first_denials().len(), 3);
    assert!(!replay.first_denials()[0].explanation.report.is_allowed());
}

#[test]
fn rules_share_keys_and_shadow_mode_denies_nothing() {
    let policy = "[[rule]]\nname = 'a'\nkey = ['user']\ncooldown = '1s'\n\
                  [[rule]]\nname = 'b'\nkey = ['user']\nmode = 'shadow'\nwindow = { max = 1, per = '1h' }\n\
                  [[rule]]\nname = 'all'\nwindow = { max = 1000, per = '1h' }\n";
    // The second of each is denied: by both rules, and in shadow mode only.
    let log = log(&[(1_000, 1), (1_000, 1), (1_002, 2), (1_004, 2)]);
    let Run { replay, .. } = run(policy, &log);
    let counts = replay.counts();
    assert_eq!((counts.totals().denied, counts.totals().shadow_denied), (1, 2));
    assert_eq!((counts.keys(), counts.keys_denied()), (3, 1));
    let rules: Vec<_> = counts.rules().map(|it| (it.denied, it.keys, it.keys_denied)).collect();
    assert_eq!(rules, [(1, 2, 1), (2, 2, 2), (0, 1, 0)]);
}

#[test]
fn slots_are_left_out_and_missing_attributes_and_costs_are_counted() {
    let slots = "[[rule]]\nname = 's'\nkey = ['user']\nslots = { max = 1 }\n\
                 [[rule]]\nname = 'a'\nkey = ['user']\ncooldown = '1h'\n";
    let Run { replay, .. } = run(slots, &log(&[(1, 1), (2, 1)]));
    assert_eq!(replay.counts().totals().denied, 1);
    let rules: Vec<_> = replay.counts().rules().map(|it| (it.is_left_out, it.keys)).collect();
    assert_eq!(rules, [(true, 0), (false, 1)]);

    let Run { replay, .. } = run(WINDOW, "{\"time\":1}\n{\"time\":2,\"user\":\"-\"}\n");
    assert_eq!((replay.counts().totals().denied, replay.counts().keys()), (2, 0));
    assert_eq!(replay.counts().rules().next().map(|it| it.denied), Some(2));

    let cost = format!("{WINDOW}\ncost = {{ by = 'bytes', '..=10' = 1, '11..' = 4 }}");
    let line = |second: u64, bytes: &str| {
        format!("{{\"time\":{second},\"user\":\"a\",\"bytes\":{bytes}}}\n")
    };
    let log = [line(1, "50"), line(2, "5"), line(21, "5"), line(22, "null")].concat();
    let Run { replay, .. } = run(&cost, &log);
    let totals = replay.counts().totals();
    assert_eq!((totals.requests, totals.denied, totals.undecided), (4, 1, 1));
    assert_eq!(replay.first_errors()[0].0.line, 4);
}

#[test]
fn more_keys_than_the_bound_are_estimated_and_memory_stays_bounded() {
    let requests: Vec<_> = (0..5_000).map(|number| (1_000, number)).collect();
    let Run { replay, .. } = run_with(WINDOW, &log(&requests), 500);
    assert!(replay.counts().is_estimate() && replay.is_table_full());
    let keys = replay.counts().keys();
    assert!(keys.abs_diff(5_000) < 400, "{keys}");
    assert_eq!(replay.counts().totals().requests, 5_000);
}
