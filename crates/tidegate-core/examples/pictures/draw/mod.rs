//! The pictures.

mod chart;
mod svg;
mod trace;

use std::time::Duration;

use tidegate_core::{Bucket, Carry, Cooldown, LimitError, Quota, Sliding, Window, WindowState};

use chart::{Bracket, Chart, Comparison, Row};
use trace::{Script, Trace};

/// The name and the text of every file.
pub(crate) fn files() -> Vec<(&'static str, String)> {
    pictures().expect("the limits are valid")
}

fn pictures() -> Result<Vec<(&'static str, String)>, LimitError> {
    Ok(vec![
        ("bucket.svg", bucket()?),
        ("window.svg", window()?),
        ("window-aligned.svg", window_aligned()?),
        ("sliding-log.svg", sliding_log()?),
        ("sliding-parts.svg", sliding_parts()?),
        ("cooldown.svg", cooldown()?),
        ("quota.svg", quota()?),
        ("comparison.svg", comparison()?),
    ])
}

/// One request, a long burst around 5 s, a steady trickle, a short burst.
fn spiky() -> Script {
    Script::seconds(20)
        .at(1_000)
        .every(200, 4_200..=6_800)
        .every(800, 9_400..=13_400)
        .every(200, 15_400..=16_800)
}

fn bucket() -> Result<String, LimitError> {
    let limit = Bucket::per_second(1).burst(5);
    let trace = Trace::of(&spiky(), &limit, 1, |_| None);
    let bracket = busiest(&trace, 5_000, "5 s", "burst 5 + 1 per s: never above 10");
    Ok(chart("Token bucket: 1 per s, burst 5", 5).draw(&trace, &[bracket]))
}

fn window() -> Result<String, LimitError> {
    let limit = Window::new(5, FIVE_S);
    let trace = Trace::of(&spiky(), &limit, 1, opened);
    let bracket = busiest(&trace, 5_000, "5 s", "5 per window: never above 10");
    Ok(chart("Fixed window: 5 per 5 s", 5).dashes("window edge").draw(&trace, &[bracket]))
}

fn window_aligned() -> Result<String, LimitError> {
    let limit = Window::new(5, FIVE_S).aligned();
    let trace = Trace::of(&spiky(), &limit, 1, |_| None).with_grid(5_000);
    let bracket = busiest(&trace, 5_000, "5 s", "5 per window: never above 10");
    Ok(chart("Fixed window, aligned: 5 per 5 s", 5).dashes("window edge").draw(&trace, &[bracket]))
}

fn sliding_log() -> Result<String, LimitError> {
    let limit = Sliding::new(5, FIVE_S, Sliding::DEFAULT_PARTS);
    let trace = Trace::of(&spiky(), &limit, 1, |_| None);
    let bracket = busiest(&trace, 5_000, "5 s", "never above 5");
    Ok(chart("Sliding window: 5 per 5 s", 5).draw(&trace, &[bracket]))
}

fn sliding_parts() -> Result<String, LimitError> {
    let limit = Sliding::new(10, FIVE_S, 5);
    let script = Script::seconds(20).every(200, 400..=19_800);
    let trace = Trace::of(&script, &limit, 1, |_| None).with_grid(1_000);
    let text = format!("{} admitted in (1 + 1/5) · 5 s", trace.admitted_in(12_000..18_000));
    let brackets = [
        busiest(&trace, 5_000, "5 s", "never above 10"),
        Bracket { from_milli: 12_000, to_milli: 18_000, text },
    ];
    let chart = chart("Sliding window: 10 per 5 s, 5 parts", 10).dashes("sub-window edge");
    Ok(chart.draw(&trace, &brackets))
}

fn cooldown() -> Result<String, LimitError> {
    let limit = Cooldown::new(Duration::from_secs(2));
    let trace = Trace::of(&spiky(), &limit, 1, |_| None);
    let bracket = busiest(&trace, 2_000, "2 s", "never above 1");
    Ok(chart("Cooldown: 2 s", 1).draw(&trace, &[bracket]))
}

fn quota() -> Result<String, LimitError> {
    let limit = Quota::new(6, Carry::UpTo(4));
    let script = Script::hours(96)
        .every(4_000, 8_000..=16_000)
        .every(1_200, 31_000..=43_000)
        .every(1_000, 78_000..=91_000);
    let trace = Trace::of_quota(&script, &limit, 24_000);
    let brackets: Vec<Bracket> = (0..4)
        .map(|day| {
            let (from, to) = (day * 24_000, (day + 1) * 24_000);
            let text = format!("{} of {}", trace.admitted_in(from..to), trace.left_at(from));
            Bracket { from_milli: from, to_milli: to, text }
        })
        .collect();
    let chart = chart("Quota: 6 per day, carries up to 4", 10).dashes("midnight");
    Ok(chart.draw(&trace, &brackets))
}

fn comparison() -> Result<String, LimitError> {
    let script = spiky();
    let bucket = Bucket::per_second(1).burst(5);
    let window = Window::new(5, FIVE_S);
    let sliding = Sliding::new(5, FIVE_S, Sliding::DEFAULT_PARTS);
    let counted = Sliding::new(15, FIVE_S, 5);
    let cooldown = Cooldown::new(Duration::from_secs(1));
    let quota = Quota::new(10, Carry::Nothing);
    let row = |name, detail, trace| Row { name, detail, trace };
    let rows = [
        row("bucket", "1 per s, burst 5", Trace::of(&script, &bucket, 1, |_| None)),
        row("window", "5 per 5 s", Trace::of(&script, &window, 1, opened)),
        row(
            "window, aligned",
            "5 per 5 s",
            Trace::of(&script, &window.aligned(), 1, |_| None).with_grid(5_000),
        ),
        row("sliding", "5 per 5 s, logged", Trace::of(&script, &sliding, 1, |_| None)),
        row("sliding, 5 parts", "15 per 5 s, cost 3", Trace::of(&script, &counted, 3, |_| None)),
        row("cooldown", "1 s", Trace::of(&script, &cooldown, 1, |_| None)),
        row("quota", "10 per round of 10 s", Trace::of_quota(&script, &quota, 10_000)),
    ];
    Ok(Comparison { title: "The same traffic through every limit", span_milli: 5_000 }.draw(&rows))
}

/// Where the window of a state begins and ends, if one is open.
fn opened(state: &WindowState) -> Option<[u64; 2]> {
    (state.used > 0).then(|| [state.ends_ns - PER_NS, state.ends_ns])
}

fn chart(title: &'static str, level_max: u64) -> Chart {
    Chart { title, level_max, dashes: None }
}

/// The stretch of this length with the most admissions, and its bound.
fn busiest(trace: &Trace, span_milli: u64, span: &str, bound: &str) -> Bracket {
    let (from_milli, count) = trace.busiest(span_milli);
    let text = format!("busiest {span}: {count} admitted ({bound})");
    Bracket { from_milli, to_milli: from_milli + span_milli, text }
}

const PER_NS: u64 = 5_000_000_000;
const FIVE_S: Duration = Duration::from_nanos(PER_NS);
