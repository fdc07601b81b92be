//! Generates the test vectors for implementations in other languages.
//!
//! `cargo run -p tidegate-core --example vectors` prints them, with `-- --write` it writes them to
//! the folder `vectors` of this crate, where the format is described, and to the copies in the
//! TypeScript package.

#![allow(clippy::print_stdout, reason = "without --write it prints them")]

use std::path::Path;

mod generate;

fn main() -> std::io::Result<()> {
    let is_written = std::env::args().any(|argument| argument == "--write");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let copies =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript/test/vectors");
    for (name, text) in generate::files() {
        if is_written {
            let copy = copies.join(name);
            if copy.exists() {
                std::fs::write(copy, &text)?;
            }
            std::fs::write(folder.join(name), text)?;
        } else {
            println!("{name}\n{text}");
        }
    }
    Ok(())
}
