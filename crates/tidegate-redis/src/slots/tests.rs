//! Slots by the examples of the cluster's specification.

use redis::Value;

use super::{SlotMap, crc16, moved, slot_of};

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[test]
fn the_slot_is_that_of_the_tag_or_else_of_the_name() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    assert_eq!(slot_of("foo"), 12_182);
    assert_eq!(slot_of("{foo}bar"), 12_182);
    assert_eq!(slot_of("a{foo}{bar}"), 12_182);
    assert_eq!(slot_of("foo{}{bar}"), usize::from(crc16(b"foo{}{bar}")) % 16_384);
    assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
}

#[test]
fn a_map_has_the_primaries_of_all_ranges() {
    let node = |host: Value, port: i64| Value::Array(vec![host, Value::Int(port), text("id")]);
    let range = |first: i64, last: i64, primary: Value| {
        let replica = node(text("10.0.0.9"), 1);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    };
    let from = ("seed".to_owned(), 7_000);
    let response = Value::Array(vec![
        range(0, 5, node(text("10.0.0.1"), 7_001)),
        range(6, 6, node(text(""), 7_002)),
        range(7, 7, node(text("?"), 7_003)),
        range(8, 16_383, node(text("10.0.0.1"), 7_001)),
    ]);
    let map = SlotMap::read(&response, &from).unwrap();
    assert_eq!(map.hosts, [("10.0.0.1".to_owned(), 7_001), ("seed".to_owned(), 7_002)]);
    let owners = [0, 5, 6, 7, 8, 16_383].map(|slot: usize| map.owners[slot]);
    assert_eq!(owners, [Some(0), Some(0), Some(1), None, Some(0), Some(0)]);
    for wrong in [range(0, 16_384, node(text("a"), 1)), range(5, -1, node(text("a"), 1))] {
        assert_eq!(SlotMap::read(&Value::Array(vec![wrong]), &from), None);
    }
    assert_eq!(SlotMap::read(&Value::Array(Vec::new()), &from), None);
}

#[test]
fn a_redirection_names_a_slot_and_a_node() {
    let from = ("seed".to_owned(), 7_000);
    let to = |host: &str, port| Some((3_999, (host.to_owned(), port)));
    assert_eq!(moved("MOVED 3999 127.0.0.1:6381", &from), to("127.0.0.1", 6_381));
    assert_eq!(moved("MOVED 3999 [::1]:6381", &from), to("::1", 6_381));
    assert_eq!(moved("MOVED 3999 :6381", &from), to("seed", 6_381));
    for error in ["ASK 3999 127.0.0.1:6381", "MOVED 16384 a:1", "MOVED x a:1", "MOVED 1", "MOVED"] {
        assert_eq!(moved(error, &from), None, "{error}");
    }
}
