//! The guide's commands, run in a shell in their order, and what they print compared with what the
//! guide shows. Its Rust code is tested as documentation of the library.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Folder, cleared};

const GUIDE: &str = include_str!("../../../../docs/guides/local-service.md");

/// A block of commands, and what it prints, if the guide says so.
#[derive(Default)]
struct Block {
    commands: String,
    shown: Option<String>,
}

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let blocks = blocks();
    assert!(blocks.len() >= 6 && blocks.iter().filter(|it| it.shown.is_some()).count() >= 4);
    let folder = Folder::new();
    // What cargo would build is what is tested here. Everything else is as in the guide.
    let mut script = String::from("cargo() { :; }\n");
    for (number, block) in blocks.iter().enumerate() {
        let out = folder.path().join(number.to_string());
        script += &format!("{{\n{}}} > '{}' 2>&1\n", block.commands, out.display());
    }
    let built = Path::new(env!("CARGO_BIN_EXE_tollgate-local-service")).parent().unwrap();
    let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap());
    let mut shell = cleared(Command::new("sh"));
    let status = shell
        .args(["-c", &script])
        .env("PATH", path)
        // Not the repository: its build folder, which the guide names, may have an older command.
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    for (number, block) in blocks.iter().enumerate() {
        let printed = fs::read_to_string(folder.path().join(number.to_string())).unwrap();
        match &block.shown {
            Some(shown) => {
                // The log of a service that the same commands have started is not shown.
                let is_shown = |line: &&str| !line.contains(" INFO ") && !line.contains(" WARN ");
                let printed: Vec<&str> = printed.lines().filter(is_shown).collect();
                assert_alike(&printed, &shown.lines().collect::<Vec<_>>());
            }
            None if block.commands.contains("serve") => assert!(printed.contains("Listening on")),
            None => assert_eq!(printed, "", "{}", block.commands),
        }
    }
    assert!(status.success());
}

/// The lines are the same; a line of `…` stands for any number of lines, and times and waits vary.
#[track_caller]
fn assert_alike(printed: &[&str], shown: &[&str]) {
    let mut rest = printed;
    let mut may_skip = false;
    for line in shown {
        if *line == "…" {
            may_skip = true;
            continue;
        }
        let at = rest.iter().position(|printed| without_numbers(printed) == without_numbers(line));
        match at {
            Some(at) if at == 0 || may_skip => rest = &rest[at + 1..],
            _ => panic!("the guide shows {line:?}, printed was {printed:#?}"),
        }
        may_skip = false;
    }
    assert!(rest.is_empty() || may_skip, "the guide does not show {rest:#?}");
}

/// A line without what is different each time: times of day, and how long to wait.
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

/// The blocks of commands in the guide; a block of text right behind one is what it prints.
fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = GUIDE.lines();
    let mut is_right_behind = false;
    while let Some(line) = lines.next() {
        match line {
            "```sh" => {
                blocks.push(Block { commands: body(&mut lines), shown: None });
                is_right_behind = true;
            }
            "```text" if is_right_behind => {
                blocks.last_mut().unwrap().shown = Some(body(&mut lines));
                is_right_behind = false;
            }
            "" => {}
            fence if fence.starts_with("```") => drop(body(&mut lines)),
            _ => is_right_behind = false,
        }
    }
    blocks
}

fn body<'l>(lines: &mut impl Iterator<Item = &'l str>) -> String {
    lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect()
}
