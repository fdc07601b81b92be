use super::{Anchor, MAX_SPAN_NS, Sample};

/// A counter of 2.5 GHz.
fn ticks(nanos: u64) -> u64 {
    1_000_000 + nanos * 5 / 2
}

fn sample(nanos: u64) -> Sample {
    Sample { nanos, ticks: ticks(nanos) }
}

const NONE: Anchor = Anchor::NONE;

#[test]
fn nothing_is_interpolated_before_ten_milliseconds_have_been_seen() {
    assert_eq!(NONE.at(ticks(5)), None);
    assert_eq!(NONE.next(sample(0), sample(9_999_999)), None);
    let line = NONE.next(sample(0), sample(10_000_000)).unwrap();
    assert_eq!(line.at(ticks(10_000_000)), Some(10_000_000));
    let later = line.at(ticks(50_000_000)).unwrap();
    assert!(later.abs_diff(50_000_000) <= 1, "{later}");
}

#[test]
fn a_line_holds_for_its_span_and_not_before_its_anchor() {
    let line = NONE.next(sample(0), sample(10_000_000)).unwrap();
    assert_eq!(line.at(line.ticks - 1), None);
    assert!(line.at(line.ticks + line.span_ticks - 1).is_some());
    assert_eq!(line.at(line.ticks + line.span_ticks), None);
    let long = NONE.next(sample(0), sample(60_000_000_000)).unwrap();
    assert!(long.end() - long.nanos <= MAX_SPAN_NS);
}

#[test]
fn the_next_line_never_begins_before_the_last_one_ended() {
    let mut line = NONE.next(sample(0), sample(10_000_000)).unwrap();
    let mut from = sample(10_000_000);
    for step in 1..1_000_u64 {
        // The system's clock is slewed a little to and fro.
        let nanos = from.nanos + 1_000_000_000 + step % 2 * 40_000 - step % 3 * 40_000;
        let to = Sample { nanos, ticks: from.ticks + 2_500_000_000 };
        let next = line.next(from, to).unwrap();
        assert!(next.nanos >= line.end(), "step {step}");
        assert!(next.nanos - to.nanos < 1_000_000, "step {step}: ahead of the system's clock");
        (line, from) = (next, to);
    }
}

#[test]
fn a_counter_that_ran_on_during_a_sleep_is_noticed() {
    let line = NONE.next(sample(0), sample(1_000_000_000)).unwrap();
    // One second by the system's clock, an hour by the counter.
    let to = Sample { nanos: 2_000_000_000, ticks: ticks(3_600_000_000_000) };
    assert_eq!(line.next(sample(1_000_000_000), to), None);
    // A counter that starts again at zero.
    assert_eq!(line.next(sample(1_000_000_000), Sample { nanos: 2_000_000_000, ticks: 5 }), None);
}
