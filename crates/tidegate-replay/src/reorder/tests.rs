use proptest::prelude::*;

use super::Reorder;
use crate::record::{Draft, Position, Record};

/// What is released: the time, and the number of the line.
fn released(times: &[u64], window_ns: u64, most_bytes: usize) -> (Vec<(u64, u64)>, u64, u64) {
    let mut reorder = Reorder::new(window_ns, most_bytes);
    let mut found = Vec::new();
    let mut draft = Draft::default();
    let mut then = |record: Record<'_>| {
        let value = record.values().next().flatten().map(str::to_owned);
        assert_eq!(value, Some(format!("line {}", record.position.line)));
        found.push((record.time_ns, record.position.line));
    };
    for (line, &time_ns) in (0..).zip(times) {
        draft.clear();
        draft.push(Some(&format!("line {line}")));
        draft.push(None);
        reorder.push(draft.record(time_ns, Position { input: 0, line }), &mut then);
        assert!(reorder.bytes <= most_bytes, "{} bytes", reorder.bytes);
    }
    reorder.finish(&mut then);
    assert_eq!(reorder.bytes, 0);
    (found, reorder.late(), reorder.released_early())
}

/// The rule, written down plainly: late lines get the newest time, then all are sorted.
fn naive(times: &[u64], window_ns: u64) -> (Vec<(u64, u64)>, u64) {
    let (mut newest, mut late, mut all) = (0, 0, Vec::new());
    for (line, &time_ns) in (0..).zip(times) {
        let is_late = newest > time_ns && newest - time_ns > window_ns;
        late += u64::from(is_late);
        all.push((if is_late { newest } else { time_ns }, line));
        newest = newest.max(time_ns);
    }
    all.sort_by_key(|(time_ns, _)| *time_ns);
    (all, late)
}

#[test]
fn a_line_out_of_order_by_the_window_is_in_time_and_one_more_is_late() {
    assert_eq!(released(&[100, 90], 10, 10_000), (vec![(90, 1), (100, 0)], 0, 0));
    assert_eq!(released(&[100, 89], 10, 10_000), (vec![(100, 0), (100, 1)], 1, 0));
    assert_eq!(released(&[100, 99, 99, 100], 0, 10_000).1, 2);
}

proptest! {
    #[test]
    fn lines_are_released_as_a_sort_would(
        times in prop::collection::vec(0_u64..200, 0..300), window_ns in 0_u64..80
    ) {
        let (found, late, early) = released(&times, window_ns, usize::MAX);
        prop_assert_eq!((found, late), naive(&times, window_ns));
        prop_assert_eq!(early, 0);
    }

    #[test]
    fn nearly_sorted_lines_are_released_as_a_sort_would(
        steps in prop::collection::vec((0_u64..4, 0_u64..30), 0..2_000), window_ns in 0_u64..20
    ) {
        let mut now = 1_000;
        let times: Vec<_> = steps.iter().map(|(step, back)| { now += step; now - back }).collect();
        let (found, late, _) = released(&times, window_ns, usize::MAX);
        prop_assert_eq!((found, late), naive(&times, window_ns));
    }

    #[test]
    fn with_little_memory_times_do_not_go_back_and_no_line_is_lost(
        times in prop::collection::vec(0_u64..200, 0..300), window_ns in 0_u64..80, most in 100_usize..2_000
    ) {
        let (found, late, _) = released(&times, window_ns, most);
        prop_assert!(found.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let mut lines: Vec<_> = found.iter().map(|(_, line)| *line).collect();
        lines.sort_unstable();
        prop_assert_eq!(lines, (0..times.len() as u64).collect::<Vec<_>>());
        let at = |line: u64| times[usize::try_from(line).unwrap()];
        let changed = found.iter().filter(|(time, line)| at(*line) != *time).count();
        prop_assert!(changed as u64 <= late);
        prop_assert!(late >= naive(&times, window_ns).1);
    }
}
