use std::io::{self, Read};

use super::{Line, Lines, MOST_BYTES};

/// Returns a few bytes at a time, then an error if there is one.
struct Trickle<'a>(&'a [u8], usize, Option<io::ErrorKind>);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.1.min(buffer.len()).min(self.0.len());
        if most == 0
            && let Some(kind) = self.2.take()
        {
            return Err(kind.into());
        }
        buffer[..most].copy_from_slice(&self.0[..most]);
        self.0 = &self.0[most..];
        Ok(most)
    }
}

fn all(stream: Trickle<'_>) -> (Vec<Option<Vec<u8>>>, bool) {
    let mut lines = Lines::new(stream);
    lines.first_bytes();
    lines.skip_byte_order_mark();
    let mut found = Vec::new();
    loop {
        match lines.next() {
            Ok(None) => return (found, false),
            Ok(Some(Line::Text(text))) => found.push(Some(text.to_vec())),
            Ok(Some(Line::TooLong)) => found.push(None),
            Err(_) => return (found, true),
        }
    }
}

fn texts(lines: &[&str]) -> Vec<Option<Vec<u8>>> {
    lines.iter().map(|line| Some(line.as_bytes().to_vec())).collect()
}

#[test]
fn lines_end_with_a_line_feed_or_the_stream() {
    for (text, expected) in [
        ("", &[][..]),
        ("\n", &[""]),
        ("a", &["a"]),
        ("a\r\nb\n\nc", &["a", "b", "", "c"]),
        ("\u{feff}a\n\u{feff}b\n", &["a", "\u{feff}b"]),
    ] {
        for step in [1, 2, 1_000] {
            assert_eq!(
                all(Trickle(text.as_bytes(), step, None)),
                (texts(expected), false),
                "{text:?}"
            );
        }
    }
}

#[test]
fn long_lines_are_left_out_whatever_their_length() {
    for length in [MOST_BYTES, MOST_BYTES + 1, 2 * MOST_BYTES, 7 * MOST_BYTES + 3] {
        let long = "x".repeat(length);
        let text = format!("a\n{long}\nb\n{long}");
        let (found, _) = all(Trickle(text.as_bytes(), 300_000, None));
        let long = (length <= MOST_BYTES).then(|| long.into_bytes());
        let expected = vec![Some(b"a".to_vec()), long.clone(), Some(b"b".to_vec()), long];
        assert!(found == expected, "{length}");
    }
}

#[test]
fn lines_before_an_error_are_returned() {
    let stream = Trickle(b"a\nb\nc", 2, Some(io::ErrorKind::InvalidData));
    assert_eq!(all(stream), (texts(&["a", "b"]), true));
}
