use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn announcement(name: &str, at_ms: u64) -> Announcement {
    let (name, version) = (name.to_owned(), "1.2.3".to_owned());
    Announcement { name, version, address: Some("10.0.0.7:8080".to_owned()), at_ms }
}

fn bytes(text: impl AsRef<[u8]>) -> Value {
    Value::BulkString(text.as_ref().to_vec())
}

/// The responses to an announcement, with these fields in the record.
fn responses(entries: &[(u64, Announcement)]) -> Vec<Value> {
    let read = entries.iter().flat_map(|(id, it)| [bytes(field(*id)), bytes(it.encode())]);
    vec![Value::Int(1), Value::Int(1), Value::Array(read.collect())]
}

fn names(list: &NodeList) -> Vec<&str> {
    list.nodes.iter().map(|node| &*node.name).collect()
}

#[test]
fn an_announcement_is_read_as_it_was_written_and_nothing_else_is_one() {
    let longest = "x".repeat(LONGEST_TEXT);
    for (name, address) in [("a:1", None), ("ä-host:77", Some("[::1]:80")), (&*longest, None)] {
        let address = address.map(str::to_owned);
        let written = Announcement { address, ..announcement(name, 1_790_000_000_123) };
        assert_eq!(Announcement::decode(&written.encode()), Some(written));
    }
    let good = announcement("a:1", 7).encode();
    for end in 0..good.len() {
        assert_eq!(Announcement::decode(&good[..end]), None, "{end} bytes");
    }
    let mut wrong = vec![b"tgn2".to_vec(), b"\xff".repeat(40), [&*good, b"x"].concat()];
    wrong.push(announcement("", 7).encode());
    wrong.push(announcement("a\x1b[2J", 7).encode());
    wrong.push(announcement(&"x".repeat(LONGEST_TEXT + 1), 7).encode());
    let mut no_text = good.clone();
    no_text[13] = 0xff;
    wrong.push(no_text);
    for value in wrong {
        assert_eq!(Announcement::decode(&value), None, "{value:?}");
    }
}

#[test]
fn fields_that_are_no_ids_are_left_out() {
    let value = bytes(announcement("a", 0).encode());
    let good = (bytes(field(0xab)), value.clone());
    for wrong in ["", "ab", "00000000000000AB", "+0000000000000ab", "00000000000000ab0", "\u{fe}"] {
        let parts = vec![bytes(wrong), value.clone(), good.0.clone(), good.1.clone()];
        let read = entries(&Value::Array(parts));
        assert_eq!(read.iter().map(|it| it.0).collect::<Vec<_>>(), [0xab], "{wrong}");
    }
    let nested = Value::Array(vec![Value::Array(vec![good.0.clone(), good.1.clone()])]);
    assert_eq!(entries(&nested).len(), 1, "as RESP 3 has it");
    for foreign in [Value::Nil, Value::Int(1), Value::Array(vec![good.0, Value::Int(3)])] {
        assert_eq!(entries(&foreign), []);
    }
}

#[test]
fn no_more_than_the_bound_are_taken() {
    let many: Vec<_> = (0..2_000).map(|id| (id, announcement("a", 0))).collect();
    let list = Registry::new("t").take(&responses(&many), 0, 0).unwrap();
    assert_eq!(list.nodes.len(), MOST_NODES);
}

#[test]
fn a_node_is_present_for_10_s_and_removed_after_60_s() {
    let mut registry = Registry::new("t");
    for (age_ms, is_present, is_gone) in [
        (0, true, false),
        (10_000, true, false),
        (10_001, false, false),
        (60_000, false, false),
        (60_001, false, true),
    ] {
        registry.gone.clear();
        let read = responses(&[(1, announcement("a", 100_000))]);
        let list = registry.take(&read, 100_000 + age_ms, 5).unwrap();
        assert_eq!(!list.nodes.is_empty(), is_present, "{age_ms}");
        assert_eq!(registry.gone == [1], is_gone, "{age_ms}");
    }
}

#[test]
fn an_announcement_from_later_than_now_counts_for_as_long_as_any_other() {
    let mut registry = Registry::new("t");
    let read = responses(&[(1, announcement("dead", 3_600_000))]);
    let alive = |at_ms: u64| responses(&[(1, announcement("alive", 3_600_000 + at_ms))]);
    for (at_s, is_present) in [(0, true), (10, true), (11, false), (60, false)] {
        let list = registry.take(&read, 1_000 * at_s, SECOND_NS * at_s).unwrap();
        assert_eq!(!list.nodes.is_empty(), is_present, "{at_s}");
        assert!(registry.gone.is_empty());
    }
    assert!(registry.take(&read, 61_000, SECOND_NS * 61).unwrap().nodes.is_empty());
    assert_eq!(registry.gone, [1]);
    let list = registry.take(&alive(2), 62_000, SECOND_NS * 62).unwrap();
    assert_eq!(names(&list), ["alive"], "it has announced itself again");
}

#[test]
fn nodes_are_listed_with_itself_first_and_for_as_long_as_the_list_is_fresh() {
    let mut registry = Registry::new("t");
    let read = responses(&[
        (1, announcement("c", 9_000)),
        (2, announcement("a", 2_000)),
        (registry.id, announcement("b", 10_000)),
    ]);
    let list = registry.take(&read, 10_000, SECOND_NS).unwrap();
    assert_eq!(names(&list), ["b", "a", "c"]);
    assert_eq!(list.nodes.iter().map(|it| it.is_self).collect::<Vec<_>>(), [true, false, false]);
    let at = |second: u64| {
        let nodes = list.at(SECOND_NS * (1 + second))?;
        Some(nodes.iter().map(|it| (it.name.clone(), it.seen_ago.as_secs())).collect::<Vec<_>>())
    };
    let node = |name: &str, ago: u64| (name.to_owned(), ago);
    assert_eq!(at(0), Some(vec![node("b", 0), node("a", 8), node("c", 1)]));
    assert_eq!(at(2), Some(vec![node("b", 2), node("a", 10), node("c", 3)]));
    assert_eq!(at(3), Some(vec![node("b", 3), node("c", 4)]));
    assert_eq!(at(10), Some(vec![node("b", 10)]));
    assert_eq!(at(11), None, "what it was read from is too old");
}

#[test]
fn a_refusal_by_rights_is_for_good_and_others_are_not() {
    let mut registry = Registry::new("t");
    for at in 0..3 {
        let mut refused = |text: &str| {
            let mut responses = responses(&[]);
            responses[at] = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            registry.take(&responses, 0, 0).unwrap_err()
        };
        assert_eq!(refused("NOPERM not yours"), Refused::ForGood);
        assert_eq!(refused("OOM full"), Refused::Now("OOM full".to_owned()));
    }
    assert!(registry.take(&responses(&[]), 0, 0).unwrap().nodes.is_empty());
}

#[test]
fn it_announces_itself_every_two_seconds_and_removes_what_is_gone() {
    let mut registry = Registry::new("shop");
    let own = announcement("a", 0);
    assert!(registry.is_due(0) && !registry.is_announced());
    let old = responses(&[(7, announcement("old", 0))]);
    registry.take(&old, 100_000, 0).unwrap();
    let mut pipeline = redis::pipe();
    registry.announce(&mut pipeline, &own, SECOND_NS);
    let text = String::from_utf8_lossy(&pipeline.get_packed_pipeline()).into_owned();
    assert!(text.contains("HDEL\r\n$10\r\nshop:nodes\r\n$16\r\n0000000000000007\r\n"), "{text}");
    assert!(registry.is_announced());
    assert!(!registry.is_due(SECOND_NS * 2) && registry.is_due(SECOND_NS * 3));
    let mut pipeline = redis::pipe();
    registry.announce(&mut pipeline, &own, SECOND_NS * 3);
    assert_eq!(pipeline.len(), 3, "it is removed once");
    registry.announce_soon();
    assert!(registry.is_due(SECOND_NS * 3) && registry.is_announced());
}

#[test]
fn the_default_name_is_the_host_and_the_process() {
    let name = default_name();
    let (host, pid) = name.rsplit_once(':').unwrap();
    assert!(!host.is_empty() && is_text(&name));
    assert_eq!(pid, std::process::id().to_string());
}
