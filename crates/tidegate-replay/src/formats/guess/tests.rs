use super::{Guess, guess};
use crate::formats::LogFormat;

#[test]
fn formats_are_guessed_by_the_first_lines() {
    let clf = "192.0.2.1 - - [12/May/2024:00:00:17 +0000] \"GET / HTTP/1.1\" 200 5";
    for (text, format, is_certain) in [
        (clf.to_owned(), LogFormat::Common, true),
        (format!("{clf} \"-\" \"curl\""), LogFormat::Combined, true),
        (format!(" \"curl\"\n\n{clf} \"-\" \"curl\"\nx"), LogFormat::Combined, true),
        (r#"{"ts":1715472017,"request":{"remote_ip":"192.0.2.1"}}"#.into(), LogFormat::Caddy, true),
        (
            r#"{"start_time":"2024-05-12T00:00:17Z","response_code":200}"#.into(),
            LogFormat::Envoy,
            true,
        ),
        (
            r#"{"StartUTC":"2024-05-12T00:00:17Z","RequestMethod":"GET"}"#.into(),
            LogFormat::Traefik,
            true,
        ),
        (r#"{"time":"2024-05-12T00:00:17Z","ip":"192.0.2.1"}"#.into(), LogFormat::Json, true),
        (r#"{"when":"2024-05-12T00:00:17Z"}"#.into(), LogFormat::Json, false),
        ("\u{feff}TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.97,48".into(), LogFormat::Csv, true),
        ("a;b\n2023-11-16 18:17:03.97;48".into(), LogFormat::Csv, true),
        ("time\n2023-11-16".into(), LogFormat::Csv, true),
        ("a,b\nc,d".into(), LogFormat::Combined, false),
        (" \"Mozilla (X11; a, b)\"\n \"x, y; z\"".into(), LogFormat::Combined, false),
        ("\u{0}\u{1}\u{2}".into(), LogFormat::Combined, false),
        (String::new(), LogFormat::Combined, false),
    ] {
        assert_eq!(guess(text.as_bytes(), None), Guess { format, is_certain }, "{text}");
    }
}
