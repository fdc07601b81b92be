use super::*;

fn key(user: &str) -> TopKey {
    TopKey { domain: "d".into(), rule: "r".into(), key: vec![("user".into(), Some(user.into()))] }
}

#[test]
fn a_frequent_key_is_found_among_ever_new_ones_and_memory_is_bounded() {
    let mut sketch = SpaceSaving::default();
    for round in 0..20_000 {
        sketch.add(&key(&format!("passer-by {round}")), 1);
        if round % 10 == 0 {
            sketch.add(&key("regular"), 1);
        }
    }
    assert_eq!((sketch.counts.len(), sketch.indexes.len()), (MOST_KEYS, MOST_KEYS));
    let first = &sketch.first(1)[0];
    assert_eq!(first.key, key("regular"));
    assert!(first.count >= 2_000 && first.count - first.error <= 2_000, "{first:?}");
}

#[test]
fn a_new_key_replaces_a_rarest_one_and_counts_are_bounds() {
    let mut sketch = SpaceSaving::default();
    let mut exact: HashMap<TopKey, u64> = HashMap::new();
    let mut random = 1_u64;
    for round in 0..30_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Small numbers are frequent.
        let user = (random >> 40) % (1 << (1 + (random >> 33) % 13));
        let (key, weight) = (key(&format!("{user}")), 1 + round % 3);
        let is_new = !sketch.indexes.contains_key(&key);
        let least = sketch.counts.iter().map(|it| it.count).min().unwrap_or(0);
        let is_full = sketch.counts.len() == MOST_KEYS;
        sketch.add(&key, weight);
        *exact.entry(key.clone()).or_default() += weight;
        let count = &sketch.counts[sketch.indexes[&key]];
        if is_new {
            assert_eq!(count.error, if is_full { least } else { 0 }, "round {round}");
        }
        assert!(count.count >= exact[&key] && count.count - count.error <= exact[&key]);
    }
    assert!(sketch.keys().zip(0..).all(|(key, index)| sketch.indexes[key] == index));
}

#[test]
fn halving_forgets_keys_and_the_rest_is_still_found() {
    let mut sketch = SpaceSaving::default();
    for user in 0..MOST_KEYS as u64 {
        sketch.add(&key(&format!("{user}")), 1 + user % 4);
    }
    sketch.add(&key("new"), 1);
    sketch.halve(1);
    let kept = MOST_KEYS / 4 * 3 + 1;
    assert_eq!((sketch.counts.len(), sketch.indexes.len()), (kept, kept));
    sketch.add(&key("3"), 5);
    assert_eq!(sketch.first(1)[0].count, 7);
    // First they fill up, then they replace those with a count of 1, then those with 2.
    for user in 0..MOST_KEYS as u64 {
        sketch.add(&key(&format!("later {user}")), 9);
    }
    assert_eq!(sketch.counts.len(), MOST_KEYS);
    let error = |user| sketch.counts[sketch.indexes[&key(user)]].error;
    assert_eq!(["later 100", "later 200", "later 500"].map(error), [0, 1, 2]);
}
