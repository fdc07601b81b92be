//! The guide's commands and outputs. Its Rust code is tested as documentation of the library.

use std::path::Path;
use std::process::Command;

use crate::harness::{Folder, cleared};

#[path = "../../../../scripts/guide.rs"]
mod run;

use run::Guide;

#[test]
fn guide_commands_print_what_it_shows() {
    let folder = Folder::new();
    let built = Path::new(env!("CARGO_BIN_EXE_tidegate-local-service")).parent().unwrap();
    let mut shell = cleared(Command::new("sh"));
    shell.env("PATH", format!("{}:{}", built.display(), std::env::var("PATH").unwrap()));
    let guide = Guide {
        text: include_str!("../../../../docs/guides/local-service.md"),
        folder: folder.path(),
        // The built commands are tested; everything else is as in the guide.
        prelude: "cargo() { :; }",
        without_varying: without_numbers,
    };
    guide.run(shell);
}

/// A line without its varying parts: times of day, and waits.
fn without_numbers(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for at in 0..words.len() {
        let word = words[at].as_str();
        let is_time = word.len() == 24 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
        let is_wait =
            at > 0 && words[at - 1] == "in" && words.get(at + 1).is_some_and(|it| it == "ms)");
        if is_time {
            words[at] = "TIME".into();
        } else if is_wait {
            words[at] = "WAIT".into();
        }
    }
    let line = words.join(" ");
    match line.split_once("\"retryAfterMs\":") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
            format!("{before}\"retryAfterMs\":WAIT{after}")
        }
        None => line,
    }
}
