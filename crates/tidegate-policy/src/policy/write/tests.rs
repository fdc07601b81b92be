use super::values::{conditions_in_tables, list, table, text, time};
use crate::calendar::Calendar;
use crate::policy::Condition;
use crate::policy::text::{duration, format_duration, format_rate, rate};

#[test]
fn every_character_survives() {
    for c in ('\0'..=char::MAX).filter(|c| u32::from(*c) < 0x3000 || c.is_control()) {
        let written = format!("a = {}", text(&format!("{c}x{c}")));
        let read = toml::de::DeTable::parse(&written).unwrap();
        let value = read.get_ref().get("a").unwrap().get_ref().as_str().unwrap().to_owned();
        assert_eq!(value, format!("{c}x{c}"), "{written}");
    }
}

#[test]
fn names_are_in_quotes_where_they_need_them() {
    let entries = ["a-B_9", "", "a.b", "a b", "ä", "\""].map(|name| (name, "1".to_owned()));
    assert_eq!(table(entries), r#"{ a-B_9 = 1, "" = 1, "a.b" = 1, "a b" = 1, "ä" = 1, "\"" = 1 }"#);
    assert_eq!((table::<&str>([]), list([])), ("{}".into(), "[]".into()));
}

#[test]
fn times_are_exact() {
    for (ns, expected) in [
        (0, "\"1970-01-01T00:00:00Z\""),
        (1, "\"1970-01-01T00:00:00.000000001Z\""),
        (u64::MAX, "\"2554-07-21T23:34:33.709551615Z\""),
    ] {
        assert_eq!(time(ns), expected);
    }
}

#[test]
fn rates_round_trip() {
    for text in ["10/s", "1/ms", "5/d", "100 per 15m", "3 per 1m1ns", "7 per 11s", "1 per 7d"] {
        assert_eq!(format_rate(rate(text).unwrap()), text);
    }
    assert_eq!(format_rate(rate("2 per week").unwrap()), "2 per 7d");
    assert_eq!(
        duration(&format_duration(duration("213503d23h34m33s709ms551us615ns").unwrap()))
            .unwrap()
            .as_nanos(),
        u128::from(u64::MAX)
    );
}

#[test]
fn every_zone_round_trips() {
    for zone in jiff::tz::db().available() {
        let Ok(calendar) = format!("day in {zone}").parse::<Calendar>() else { continue };
        assert_eq!(calendar.to_string().parse::<Calendar>().unwrap(), calendar, "{zone}");
    }
}

#[test]
fn a_repeated_attribute_begins_another_table() {
    let of = |names: &[&str]| {
        let all: Vec<_> = names.iter().map(|name| Condition::new(name, ["x"]).unwrap()).collect();
        conditions_in_tables(&all)
    };
    assert_eq!(of(&[]), "{}");
    assert_eq!(of(&["a", "b"]), r#"{ a = "x", b = "x" }"#);
    assert_eq!(
        of(&["a", "b", "a", "b", "b"]),
        r#"[{ a = "x", b = "x" }, { a = "x", b = "x" }, { b = "x" }]"#
    );
}
