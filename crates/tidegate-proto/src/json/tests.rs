use serde::Deserialize;

use super::Object;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    number: u64,
    inner: Option<Object<Inner>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Inner {
    text: String,
}

fn read(text: &str) -> Result<Object<Outer>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn objects_are_read_at_every_level() {
    let inner = Some(Object(Inner { text: "x".into() }));
    let read = |text| read(text).unwrap().0;
    assert_eq!(read(r#"{"number":1,"inner":{"text":"x"}}"#), Outer { number: 1, inner });
    assert_eq!(read(r#"{"inner":null,"number":1}"#), Outer { number: 1, inner: None });
}

#[test]
fn everything_else_is_an_error_with_its_position() {
    for (text, expected) in [
        ("[]", "invalid type: sequence, expected an object at line 1 column 0"),
        (r#"[1,{"text":"x"}]"#, "invalid type: sequence, expected an object"),
        (r#"{"number":1,"inner":["x"]}"#, "invalid type: sequence, expected an object"),
        (r#""text""#, "invalid type: string \"text\", expected an object"),
        ("null", "invalid type: null, expected an object"),
        (r#"{"number":1,"more":2}"#, "unknown field `more`"),
        (r#"{"inner":null}"#, "missing field `number`"),
        (r#"{"number":1} x"#, "trailing characters"),
        ("{", "EOF while parsing an object"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}
