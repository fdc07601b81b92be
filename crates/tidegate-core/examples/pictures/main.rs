//! Draws the pictures of the documentation: what each limit admits, as this crate decides it.
//!
//! `cargo run -p tidegate-core --example pictures` lists them, with `-- --write` it writes them to
//! `docs/concepts/img`.

#![allow(clippy::print_stdout, reason = "it prints the names of the files")]

use std::path::Path;

mod draw;

fn main() -> std::io::Result<()> {
    let is_written = std::env::args().any(|argument| argument == "--write");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/img");
    for (name, text) in draw::files() {
        if is_written {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(name), text)?;
        }
        println!("{name}");
    }
    Ok(())
}
