use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    Decoder, FRAME_BYTES_MAX, Failure, IpcError, Pong, Request, Response, encode, encode_text,
    parse,
};

/// All results of a decoder for bytes that arrive in these pieces.
fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<Result<String, IpcError>> {
    let mut decoder = Decoder::new();
    let (mut results, mut arrived) = (Vec::new(), 0);
    for mut piece in pieces {
        arrived += piece.len();
        loop {
            let before = piece.len();
            let next = decoder.next(&mut piece);
            assert!(decoder.memory_bytes() <= FRAME_BYTES_MAX.min(2 * arrived));
            match next {
                Ok(Some(text)) => results.push(Ok(text)),
                Ok(None) => {
                    assert!(piece.is_empty(), "`None` means that all bytes are used");
                    break;
                }
                Err(error) => {
                    let is_lost = !error.is_in_step();
                    results.push(Err(error));
                    if is_lost {
                        return results;
                    }
                    assert!(piece.len() < before, "an error uses the bytes it is about");
                }
            }
        }
    }
    results
}

fn one(bytes: &[u8]) -> Vec<Result<String, IpcError>> {
    decode([bytes])
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_le_bytes()[..], body].concat()
}

/// The bytes cut at these offsets, which may be unsorted and out of range.
fn cut<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut offsets: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    offsets.extend([0, bytes.len()]);
    offsets.sort_unstable();
    offsets.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

#[test]
fn a_frame_is_a_little_endian_length_and_json() {
    let bytes = encode(&Request::new("ping")).unwrap();
    assert_eq!(bytes, b"\x23\0\0\0{\"type\":\"ping\",\"protocolVersion\":1}"[..].to_vec());
}

#[test]
fn responses_have_the_documented_form() {
    let pong = Pong { service_version: "0.1.0".into(), time: "2026-01-31T12:00:00Z".into() };
    let text = serde_json::to_string(&Response::Ok(pong)).unwrap();
    let expected =
        r#"{"ok":true,"serviceVersion":"0.1.0","time":"2026-01-31T12:00:00Z","protocolVersion":1}"#;
    assert_eq!(text, expected);
    let plain: Response = Response::Error(Failure::new("no"));
    let text = serde_json::to_string(&plain).unwrap();
    assert_eq!(text, r#"{"ok":false,"error":"no","protocolVersion":1}"#);
    let limit = Some("user".into());
    let full = Failure { error: "no".into(), retry_after_ms: Some(7), limit };
    let text = serde_json::to_string(&Response::<Pong>::Error(full.clone())).unwrap();
    let expected =
        r#"{"ok":false,"error":"no","retryAfterMs":7,"limit":"user","protocolVersion":1}"#;
    assert_eq!(text, expected);
    assert_eq!(parse::<Response>(&text), Ok(Response::Error(full)));
}

#[test]
fn response_without_ok_is_an_error() {
    for text in [r#"{"error":"no"}"#, r#"{"ok":1,"error":"no"}"#, r#"{"ok":true}"#, "[]", "7"] {
        assert!(matches!(parse::<Response>(text), Err(IpcError::WrongShape { .. })), "{text}");
    }
}

#[test]
fn known_and_unknown_versions() {
    for (version, is_known) in [
        ("", true),
        (r#","protocolVersion":null"#, true),
        (r#","protocolVersion":0"#, true),
        (r#","protocolVersion":1"#, true),
        (r#","protocolVersion":2"#, false),
        (r#","protocolVersion":-1"#, false),
        (r#","protocolVersion":9223372036854775807"#, false),
    ] {
        let request: Request = parse(&format!(r#"{{"type":"ping"{version}}}"#)).unwrap();
        assert_eq!(request.is_of_known_version(), is_known, "{version}");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let text =
        r#"{"user":"root","uid":0,"type":"ping","identity":{"name":["root"]},"protocolVersion":1}"#;
    assert_eq!(parse::<Request>(text), Ok(Request::new("ping")));
}

#[test]
fn each_wrong_frame_has_its_own_error() {
    assert_eq!(one(&frame(b"")), [Err(IpcError::Empty)]);
    assert_eq!(one(&frame(b"\xff\xfe")), [Err(IpcError::NotUtf8)]);
    let length = FRAME_BYTES_MAX + 1;
    assert_eq!(
        one(&u32::try_from(length).unwrap().to_le_bytes()),
        [Err(IpcError::TooLong { length })]
    );
    assert!(matches!(one(&u32::MAX.to_le_bytes())[..], [Err(IpcError::TooLong { .. })]));
    for text in ["{", "ping", "{}{}", r#"{"type":1,"#, r#"{"type":"ping"} x"#, "\u{feff}{}"] {
        assert!(matches!(parse::<Request>(text), Err(IpcError::NotJson { .. })), "{text}");
    }
    for text in [
        "{}",
        "[]",
        r#"["ping"]"#,
        r#"["ping",1]"#,
        r#" [ "ping" , null ] "#,
        "null",
        "\"ping\"",
        r#"{"type":1}"#,
        r#"{"type":null}"#,
        r#"{"Type":"ping"}"#,
        r#"{"type":"ping","type":"ping"}"#,
        r#"{"type":"ping","protocolVersion":"1"}"#,
        r#"{"type":"ping","protocolVersion":1.5}"#,
        r#"{"type":"ping","protocolVersion":18446744073709551616}"#,
        r#"{"type":"ping","protocolVersion":[1]}"#,
    ] {
        assert!(matches!(parse::<Request>(text), Err(IpcError::WrongShape { .. })), "{text}");
    }
}

/// An error that quotes its input could be longer than the frame that it responds to.
#[test]
fn reason_is_short_however_long_the_request_is() {
    let version = "\u{1}é".repeat(8_000);
    let text = serde_json::json!({ "type": "ping", "protocolVersion": version }).to_string();
    let Err(error @ IpcError::WrongShape { .. }) = parse::<Request>(&text) else { panic!() };
    assert!(error.to_string().len() < 1_000);
    let response: Response = Response::Error(Failure::new(error.to_string()));
    assert!(encode(&response).unwrap().len() < 2_000);
}

/// JSON nested deeper than the stack allows is refused or skipped, not followed.
#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = "[".repeat(30_000) + &"]".repeat(30_000);
    let text = format!(r#"{{"type":"ping","x":{deep}}}"#);
    assert!(parse::<Request>(&text).is_ok_and(|request| request.kind == "ping"));
    assert!(parse::<Request>(&deep).is_err());
    assert!(parse::<Response>(&text).is_err());
}

#[test]
fn longest_frame_is_accepted_and_one_byte_more_is_not() {
    let longest = "x".repeat(FRAME_BYTES_MAX);
    let bytes = encode_text(&longest).unwrap();
    assert_eq!(one(&bytes), [Ok(longest.clone())]);
    let length = FRAME_BYTES_MAX + 1;
    assert_eq!(encode_text(&(longest + "x")), Err(IpcError::TooLong { length }));
    assert_eq!(encode_text(""), Err(IpcError::Empty));
}

#[test]
fn length_alone_allocates_nothing() {
    let mut decoder = Decoder::new();
    let length = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes();
    assert_eq!(decoder.next(&mut &length[..]), Ok(None));
    assert_eq!(decoder.memory_bytes(), 0);
    assert_eq!(decoder.next(&mut &b"x"[..]), Ok(None));
    assert!(decoder.memory_bytes() <= 2);
}

#[test]
fn frame_after_an_invalid_one_is_decoded() {
    let bytes = [frame(b""), frame(b"\xff"), frame(b"{}")].concat();
    assert_eq!(one(&bytes), [Err(IpcError::Empty), Err(IpcError::NotUtf8), Ok("{}".into())]);
}

#[test]
fn nothing_is_decoded_after_a_frame_that_is_too_long() {
    let mut decoder = Decoder::new();
    let bytes = [u32::MAX.to_le_bytes().to_vec(), frame(b"{}")].concat();
    let mut input = &bytes[..];
    let first = decoder.next(&mut input);
    assert!(matches!(first, Err(IpcError::TooLong { .. })));
    let left = input.len();
    assert_eq!(decoder.next(&mut input), first);
    assert_eq!((input.len(), left), (frame(b"{}").len(), frame(b"{}").len()));
}

#[test]
fn incomplete_frame_is_not_between_frames() {
    let bytes = frame(b"{}");
    let mut decoder = Decoder::new();
    assert!(decoder.is_between_frames());
    for byte in &bytes[..bytes.len() - 1] {
        assert_eq!(decoder.next(&mut std::slice::from_ref(byte)), Ok(None));
        assert!(!decoder.is_between_frames());
    }
    assert_eq!(decoder.next(&mut &bytes[bytes.len() - 1..]), Ok(Some("{}".into())));
    assert!(decoder.is_between_frames());
}

fn request() -> impl Strategy<Value = Request> {
    (any::<String>(), any::<Option<i64>>())
        .prop_map(|(kind, protocol_version)| Request { kind, protocol_version })
}

fn response() -> impl Strategy<Value = Response> {
    let pong = any::<(String, String)>();
    let failure = any::<(String, Option<u64>, Option<String>)>();
    prop_oneof![
        pong.prop_map(|(service_version, time)| Response::Ok(Pong { service_version, time })),
        failure.prop_map(|(error, retry_after_ms, limit)| {
            Response::Error(Failure { error, retry_after_ms, limit })
        }),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip_however_their_bytes_are_split(
        requests in vec(request(), 1..8),
        responses in vec(response(), 1..8),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        for request in &requests {
            bytes.extend(encode(request).unwrap());
        }
        for response in &responses {
            bytes.extend(encode(response).unwrap());
        }
        let texts: Vec<String> =
            decode(cut(&bytes, &cuts)).into_iter().collect::<Result<_, _>>().unwrap();
        let (first, second) = texts.split_at(requests.len());
        let parsed: Result<Vec<Request>, _> = first.iter().map(|text| parse(text)).collect();
        prop_assert_eq!(parsed, Ok(requests));
        let parsed: Result<Vec<Response>, _> = second.iter().map(|text| parse(text)).collect();
        prop_assert_eq!(parsed, Ok(responses));
    }

    #[test]
    fn garbage_gives_the_same_errors_however_it_is_split(
        bytes in vec(prop_oneof![Just(0_u8), Just(2), Just(b'{'), any::<u8>()], 0..200),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let whole = one(&bytes);
        prop_assert_eq!(&whole, &decode(cut(&bytes, &cuts)));
        for text in whole.iter().flatten() {
            let _ = parse::<Request>(text);
            let _ = parse::<Response>(text);
        }
    }

    #[test]
    fn text_that_looks_like_a_message_never_panics(text in r#"[\{\}\[\]",:a-z0-9\\ ]{0,80}"#) {
        let _ = parse::<Request>(&text);
        let _ = parse::<Response>(&text);
    }

    #[test]
    fn long_frames_arrive_in_any_pieces_and_bounded_memory(
        length in 60_000..=FRAME_BYTES_MAX,
        piece in 1..70_000_usize,
    ) {
        let text = "é".repeat(length / 2);
        let bytes = encode_text(&text).unwrap();
        prop_assert_eq!(decode(bytes.chunks(piece)), [Ok(text)]);
    }
}
