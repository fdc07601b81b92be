use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::decompressed;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

/// What is read before the end or an error, and whether there is one.
fn read(bytes: &[u8]) -> (String, bool) {
    let count = Arc::new(AtomicU64::new(0));
    let Ok(mut stream) = decompressed(Box::new(bytes), &count) else {
        return (String::new(), true);
    };
    let (mut text, mut buffer) = (Vec::new(), [0; 1_000]);
    let is_error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break false,
            Ok(read) => text.extend_from_slice(&buffer[..read]),
            Err(_) => break true,
        }
    };
    if !is_error {
        assert_eq!(count.load(Ordering::Relaxed), bytes.len() as u64);
    }
    (String::from_utf8(text).unwrap(), is_error)
}

#[test]
fn contents_are_decompressed_by_their_first_bytes() {
    let text: String = (0..50_000).map(|number| format!("line {number}\n")).collect();
    let skippable = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&text)].concat();
    for (name, bytes) in [
        ("plain", text.clone().into_bytes()),
        ("gzip", gzip(&text)),
        ("gzip of two members", [gzip(&text[..1_000]), gzip(&text[1_000..])].concat()),
        ("zstd", zstd(&text)),
        ("zstd of two frames", [zstd(&text[..1_000]), zstd(&text[1_000..])].concat()),
        ("zstd with a skippable frame", skippable),
    ] {
        let (found, is_error) = read(&bytes);
        assert!(!is_error && found == text, "{name}: {} bytes, {is_error}", found.len());
    }
    for short in ["", "a", "\u{1f}", "(5"] {
        assert_eq!(read(short.as_bytes()), (short.to_owned(), false));
    }
}

#[test]
fn truncated_and_damaged_contents_are_read_up_to_there() {
    let text: String = (0..200_000).map(|number| format!("line {}\n", number * 7_919)).collect();
    for (name, whole) in [("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let (found, is_error) = read(&whole[..whole.len() / 2]);
        assert!(is_error && text.starts_with(&found) && !found.is_empty(), "{name}");
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 50].fill(0xff);
        assert!(read(&damaged).1, "{name}");
    }
}
