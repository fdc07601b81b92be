use super::Sorter;
use crate::record::{Draft, Position};

#[test]
fn lines_are_sorted_and_equal_times_stay_as_they_came() {
    for (most_bytes, count) in [(usize::MAX, 1_000_u64), (20_000, 30_000), (3_000, 20_000)] {
        let mut sorter = Sorter::new(most_bytes);
        let (mut draft, mut random) = (Draft::default(), 1_u64);
        let mut expected = Vec::new();
        for line in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time_ns = (random >> 33) % 500;
            draft.clear();
            draft.push(Some(&format!("ä{line}")));
            draft.push(None);
            draft.push(Some(""));
            sorter.push(draft.record(time_ns, Position { input: 7, line })).unwrap();
            expected.push((time_ns, line));
        }
        expected.sort_by_key(|(time_ns, _)| *time_ns);
        assert_eq!(sorter.spilled() > 0, most_bytes < usize::MAX);
        let mut found = Vec::new();
        sorter
            .finish(&mut |record| {
                let values: Vec<_> = record.values().collect();
                let line = record.position.line;
                assert_eq!(values, [Some(&*format!("ä{line}")), None, Some("")]);
                assert_eq!(record.position.input, 7);
                found.push((record.time_ns, line));
            })
            .unwrap();
        assert!(found == expected, "{most_bytes} bytes");
    }
}
