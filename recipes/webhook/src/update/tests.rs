use super::message_of;

#[test]
fn updates_of_other_kinds_are_no_messages() {
    for other in [
        r#"{"update_id":1}"#,
        r#"{"update_id":1,"message":null}"#,
        r#"{"update_id":1,"edited_message":{"from":{"id":1},"chat":{"id":1},"text":"x"}}"#,
        r#"{"update_id":1,"channel_post":{"chat":{"id":-1},"text":"x"}}"#,
        r#"{"update_id":1,"callback_query":{"id":"1","from":{"id":1}}}"#,
        r#"{"update_id":1,"something_new":[1,2,3]}"#,
        // Without a user there is no key to count under.
        r#"{"update_id":1,"message":{"chat":{"id":-1},"text":"x"}}"#,
    ] {
        assert_eq!(message_of(other.as_bytes()).unwrap(), None, "{other}");
    }
}

#[test]
fn message_of_any_content_is_a_message() {
    for content in [r#""text":"x""#, r#""voice":{"file_id":"x"}"#, r#""photo":[]"#, r#""new":1"#] {
        let update = format!(
            r#"{{"message":{{{content},"chat":{{"id":-5}},"from":{{"id":6}}}},"update_id":-7}}"#
        );
        let message = message_of(update.as_bytes()).unwrap().unwrap();
        assert_eq!((message.update_id, message.user, message.chat), (-7, 6, -5));
    }
}

#[test]
fn invalid_update_is_an_error_with_its_position() {
    let deep = format!(r#"{{"update_id":1,"x":{}"#, "[".repeat(100_000));
    for (garbage, expected) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("hello", "expected value at line 1 column 1"),
        ("{}", "missing field `update_id`"),
        ("[]", "expected an object"),
        (r#"[1,{"from":{"id":1},"chat":{"id":1}}]"#, "expected an object"),
        (r#"{"update_id":1,"message":[{"id":1},{"id":1}]}"#, "expected an object"),
        (r#"{"update_id":1,"message":{"from":[1],"chat":{"id":1}}}"#, "expected an object"),
        (r#"{"update_id":1,"message":{"from":{"id":1},"chat":[1]}}"#, "expected an object"),
        (r#"{"update_id":"1"}"#, "invalid type: string"),
        (r#"{"update_id":1} x"#, "trailing characters"),
        (r#"{"update_id":1,"message":{"from":{"id":-1},"chat":{"id":1}}}"#, "invalid value"),
        (r#"{"update_id":1,"message":{"from":{"id":1}}}"#, "missing field `chat`"),
        (&deep, "EOF while parsing a list"),
    ] {
        let error = message_of(garbage.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("not a Telegram update: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_an_error() {
    assert!(message_of(&[0xff, 0xfe, 0x00]).is_err());
}
