//! Tests of the scanner.

use super::{Frame, FrameScanner};

/// The ends and names of all frames in a text, read in pieces of a size.
fn frames(text: &[u8], size: usize) -> Vec<(usize, Frame)> {
    let mut scanner = FrameScanner::new();
    let (mut found, mut end) = (Vec::new(), 0);
    for mut piece in text.chunks(size) {
        while !piece.is_empty() {
            let (used, frame) = scanner.read(piece);
            end += used;
            piece = &piece[used..];
            found.extend(frame.map(|frame| (end, frame)));
        }
    }
    found
}

fn value(name: &str) -> Frame {
    Frame::Value { name: name.into() }
}

#[test]
fn frames_end_where_requests_and_replies_end() {
    type Case<'a> = (&'a str, &'a [u8], &'a [(usize, Frame)]);
    let cases: [Case<'_>; 9] = [
        (
            "requests",
            b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n",
            &[(21, value("GET")), (35, value("PING"))],
        ),
        ("inline", b"PING\r\nPING\r\n", &[(6, value("")), (12, value(""))]),
        ("lines", b"+OK\r\n:1\r\n-ERR x\r\n", &[(5, value("")), (9, value("")), (17, value(""))]),
        ("nulls", b"$-1\r\n*-1\r\n_\r\n", &[(5, value("")), (10, value("")), (13, value(""))]),
        ("empty", b"*0\r\n$0\r\n\r\n", &[(4, value("")), (10, value(""))]),
        ("nested", b"*2\r\n*1\r\n:1\r\n*2\r\n:1\r\n:2\r\n", &[(24, value(""))]),
        ("map and set", b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n", &[(20, value(""))]),
        ("push", b">1\r\n+a\r\n:1\r\n", &[(8, Frame::Push), (12, value(""))]),
        ("attribute", b"|1\r\n+a\r\n:1\r\n:5\r\n", &[(16, value(""))]),
    ];
    for (name, text, expected) in cases {
        for size in [1, 2, 3, 7, text.len()] {
            assert_eq!(frames(text, size), expected, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn long_lines_and_large_numbers_keep_little_memory() {
    let mut scanner = FrameScanner::new();
    scanner.read(&[b'x'; 100_000]);
    assert_eq!(scanner.line.len(), super::KEPT_BYTES_MAX);
    let mut scanner = FrameScanner::new();
    scanner.read(b"$18446744073709551615\r\n");
    scanner.read(&[b'x'; 100_000]);
    assert_eq!(scanner.name.map(|name| name.len()), Some(super::KEPT_BYTES_MAX));
}
