use super::{Denial, DeniedKeys};

fn denial(key: u64, second: u64) -> Denial {
    Denial { rule: 0, key, time_ns: second * 1_000_000_000, width_s: 10 }
}

#[test]
fn keys_with_many_denials_survive_those_with_few() {
    let mut keys = DeniedKeys::new(100);
    for round in 0..1_000 {
        for heavy in 0..10 {
            keys.add(denial(heavy, round), || [Some(format!("heavy {heavy}").into())].into());
        }
        keys.add(denial(1_000 + round, round), || [Some("light".into())].into());
    }
    assert!(keys.is_pruned());
    let top = keys.top(10);
    assert!(top.iter().all(|it| it.denied == 1_000 && it.key < 10), "{top:#?}");
    assert_eq!((top[0].first_ns, top[0].last_ns), (0, 999_000_000_000));
    let row = top[0].row(60);
    assert_eq!(row.iter().map(|(_, count)| u64::from(*count)).sum::<u64>(), 1_000);
    assert!(row.iter().all(|(start, _)| start % 60 == 0) && row.len() == 17, "{row:?}");
    assert!(keys.iter().count() <= 100);
}

#[test]
fn keys_that_fit_are_all_kept() {
    let mut keys = DeniedKeys::new(100);
    for key in 0..100 {
        keys.add(denial(key, key), || [None].into());
    }
    assert!(!keys.is_pruned());
    assert_eq!(keys.iter().count(), 100);
}
