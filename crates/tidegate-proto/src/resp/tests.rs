use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Algorithm, Bucket, Rate, Timestamp};

use super::*;

/// All commands of the input, and the error that ended it, if any.
fn commands(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut arguments, mut rest, mut found) = (Arguments::default(), input, Vec::new());
    loop {
        match parse(rest, &mut arguments) {
            Ok(Some(used)) => {
                assert!(used > 0 && used <= rest.len());
                found.push(arguments.iter(rest).map(<[u8]>::to_vec).collect());
                rest = &rest[used..];
            }
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut replies = Replies::new(&mut out, Version::Resp2);
    replies.array(command.len());
    command.iter().for_each(|word| replies.bulk(word));
    out
}

#[test]
fn inline_commands_are_split_as_by_redis_cli() {
    for (line, words) in [
        ("PING\r\n", vec!["PING"]),
        ("PING\n", vec!["PING"]),
        ("  set  a\tb \r\n", vec!["set", "a", "b"]),
        ("\r\n", vec![]),
        (r#"echo "a b" 'c d'"#, vec!["echo", "a b", "c d"]),
        (r#"echo "\x41\n\"\q" '\'"'"#, vec!["echo", "A\n\"q", "'\""]),
        (r#"echo """#, vec!["echo", ""]),
    ] {
        let line = if line.ends_with('\n') { line.to_owned() } else { format!("{line}\r\n") };
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(commands(line.as_bytes()), (vec![words], None), "{line:?}");
    }
}

#[test]
fn invalid_input_is_a_protocol_error() {
    use ProtocolError as E;
    for (input, error) in [
        ("*-1\r\n", E::ArgumentCount),
        ("*65\r\n", E::ArgumentCount),
        ("*99999999999999999999\r\n", E::ArgumentCount),
        ("*\r\n", E::ArgumentCount),
        ("*01\r\n", E::ArgumentCount),
        ("*+1\r\n", E::ArgumentCount),
        ("*1x", E::ArgumentCount),
        ("*1\rx", E::ArgumentCount),
        ("*1\r\n$-1\r\n", E::BulkLength),
        ("*1\r\n$65537\r\n", E::BulkLength),
        ("*1\r\n$18446744073709551617\r\n", E::BulkLength),
        ("*1\r\n*1\r\n$1\r\na\r\n", E::NotBulk { byte: b'*' }),
        ("*1\r\n:1\r\n", E::NotBulk { byte: b':' }),
        ("*1\r\n$1\r\nab\r\n", E::BulkEnd),
        ("*1\r\n$2\r\na\r\n\r", E::BulkEnd),
        ("echo \"a\n", E::Quotes),
        ("echo 'a\n", E::Quotes),
        ("echo \"a\"b\n", E::Quotes),
        ("echo a\"b\"\n", E::Quotes),
    ] {
        assert_eq!(commands(input.as_bytes()), (vec![], Some(error)), "{input:?}");
    }
    let long = vec![b'a'; INLINE_BYTES_MAX];
    assert_eq!(commands(&long).1, Some(E::LineTooLong));
    assert_eq!(commands(&long[1..]), (vec![], None));
    let many = "a ".repeat(ARGUMENTS_MAX + 1) + "\n";
    assert_eq!(commands(many.as_bytes()).1, Some(E::ArgumentCount));
}

#[test]
fn largest_command_is_accepted() {
    let command = vec![vec![b'\r'; BULK_BYTES_MAX]; ARGUMENTS_MAX];
    assert_eq!(commands(&encode(&command)), (vec![command], None));
    assert_eq!(commands(b"*0\r\n"), (vec![vec![]], None));
}

#[test]
fn errors_have_the_wording_of_redis() {
    let message = |input: &[u8]| commands(input).1.map(|error| error.to_string());
    assert_eq!(message(b"*a\r\n").unwrap(), "Protocol error: invalid multibulk length");
    assert_eq!(message(b"*1\r\n$x").unwrap(), "Protocol error: invalid bulk length");
    assert_eq!(message(b"*1\r\n\n").unwrap(), "Protocol error: expected '$', got '\\n'");
}

#[test]
fn integers() {
    for (text, value) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("-7", Some(-7)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        ("1 ", None),
        ("1.5", None),
        ("1e3", None),
        ("0x10", None),
        ("\u{661}", None),
    ] {
        assert_eq!(integer(text.as_bytes()), value, "{text:?}");
    }
}

#[test]
fn replies_in_both_versions() {
    let write = |version| {
        let mut out = Vec::new();
        let mut replies = Replies::new(&mut out, version);
        replies.simple("OK");
        replies.error("ERR", "two\r\nlines");
        replies.integers(&[0, 9, 10, -1, i64::MAX, i64::MIN]);
        replies.count(u64::MAX);
        replies.map(1);
        replies.bulk(b"a\r\n\0");
        replies.null();
        replies.boolean(true);
        replies.boolean(false);
        String::from_utf8(out).unwrap()
    };
    let common = "+OK\r\n-ERR two  lines\r\n*6\r\n:0\r\n:9\r\n:10\r\n:-1\r\n\
        :9223372036854775807\r\n:-9223372036854775808\r\n:9223372036854775807\r\n";
    let (two, three) = (write(Version::Resp2), write(Version::Resp3));
    assert_eq!(two, format!("{common}*2\r\n$4\r\na\r\n\0\r\n$-1\r\n:1\r\n:0\r\n"));
    assert_eq!(three, format!("{common}%1\r\n$4\r\na\r\n\0\r\n_\r\n#t\r\n#f\r\n"));
}

fn call(text: &str) -> Result<ThrottleCall<'_>, String> {
    let words = text.split(' ').map(str::as_bytes);
    ThrottleCall::parse(words).map_err(|error| error.to_string())
}

#[test]
fn throttle_calls_carry_their_limit() {
    let call_of =
        |burst| ThrottleCall { key: b"k", burst, count: 30, period_secs: 60, quantity: 1 };
    assert_eq!(call("k 15 30 60"), Ok(call_of(16)));
    assert_eq!(call("k 0 30 60").unwrap().burst, 1);
    assert_eq!(call("k 9223372036854775807 30 60").unwrap().burst, 1 << 63);
    assert_eq!(call("k 15 30 60 0").unwrap().quantity, 0);
    for (text, expected) in [
        ("k 15 30", "expected: key max_burst count period [quantity]"),
        ("k 15 30 60 1 1", "expected: key max_burst count period [quantity]"),
        ("k x 30 60", "max_burst is not an integer or out of range"),
        ("k 15 1.5 60", "count is not an integer or out of range"),
        ("k -1 30 60", "max_burst must be at least 0"),
        ("k 15 0 60", "count must be at least 1"),
        ("k 15 30 0", "period must be at least 1"),
        ("k 15 30 -60", "period must be at least 1"),
        ("k 15 30 60 -1", "quantity must be at least 0"),
    ] {
        assert_eq!(call(text), Err(expected.into()), "{text}");
    }
    let long = call("k 15 30 9223372036854775807").unwrap();
    let error = long.rate().unwrap_err().to_string();
    assert_eq!(error, "period must be at most 1080863910 seconds for this count");
    let year = call("k 15 1 36028797").unwrap();
    assert!(Bucket::in_common_ticks(year.rate().unwrap(), year.burst).is_ok());
    let more = call("k 15 1 36028798").unwrap();
    let error = more.rate().unwrap_err().to_string();
    assert_eq!(error, "period must be at most 36028797 seconds for this count");
    let most = call("k 15 1000 9223372037").unwrap();
    let error = most.rate().unwrap_err().to_string();
    assert_eq!(error, "period must be at most 9223372036 seconds for this count");
}

#[test]
fn the_reply_is_that_of_redis_cell() {
    // 30 per minute, 16 at once: a unit refills in two seconds.
    let rate = Rate::new(30, Duration::from_secs(60));
    let bucket = Bucket::in_common_ticks(rate, 16).unwrap();
    let mut state = bucket.fresh();
    let mut at =
        |cost, ms| throttle_reply(&bucket.check(&mut state, cost, Timestamp::from_millis(ms)));
    assert_eq!(at(1, 0), [0, 16, 15, -1, 2]);
    assert_eq!(at(0, 500), [0, 16, 15, -1, 2]);
    assert_eq!(at(15, 500), [0, 16, 0, -1, 32]);
    assert_eq!(at(1, 500), [1, 16, 0, 2, 32]);
    assert_eq!(at(17, 500), [1, 16, 0, -1, 32]);
}

fn any_command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[a-z\r\n$*\"' ]{0,10}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(word, 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_round_trip(sent in prop::collection::vec(any_command(), 0..10)) {
        let bytes: Vec<u8> = sent.iter().flat_map(|command| encode(command)).collect();
        prop_assert_eq!(commands(&bytes), (sent, None));
    }

    /// An incomplete command is neither a command nor an error, wherever it is cut.
    #[test]
    fn incomplete_command_waits_for_more_bytes(command in any_command()) {
        let bytes = encode(&command);
        for cut in 0..bytes.len() {
            prop_assert_eq!(commands(&bytes[..cut]), (vec![], None), "{} of {:?}", cut, bytes);
        }
    }

    #[test]
    fn any_bytes_are_commands_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = commands(&bytes);
    }

    #[test]
    fn mutations_of_valid_traffic_are_commands_or_an_error(
        sent in prop::collection::vec(any_command(), 1..5),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes: Vec<u8> = sent.iter().flat_map(|command| encode(command)).collect();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let _ = commands(&bytes);
    }

    #[test]
    fn integers_round_trip(value in any::<i64>()) {
        let mut out = Vec::new();
        Replies::new(&mut out, Version::Resp2).integer(value);
        let text = &out[1..out.len() - 2];
        prop_assert_eq!(std::str::from_utf8(text).unwrap(), value.to_string());
        prop_assert_eq!(integer(text), Some(value));
    }
}
