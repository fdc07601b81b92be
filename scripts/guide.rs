//! Runs the commands of a guide in a shell, in order, and compares their output with the guide.
//! Test crates include this file by its path.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A guide and how to run it.
pub(crate) struct Guide<'a> {
    /// The whole text.
    pub(crate) text: &'a str,
    /// An empty folder in which the commands run.
    pub(crate) folder: &'a Path,
    /// Shell functions that replace commands which a test does not repeat, such as building.
    pub(crate) prelude: &'a str,
    /// Removes what varies from a line.
    pub(crate) without_varying: fn(&str) -> String,
}

/// A block of commands, and its output if the guide shows it.
#[derive(Default)]
struct Block {
    commands: String,
    shown: Option<String>,
}

impl Guide<'_> {
    /// Runs all blocks. The output of a block is compared if the guide shows it.
    pub(crate) fn run(&self, shell: Command) {
        let blocks = blocks(self.text);
        let is_shown = |block: &&Block| block.shown.is_some();
        assert!(blocks.iter().filter(is_shown).count() > 0, "the guide shows nothing");
        let mut script = format!("{}\n", self.prelude);
        for (number, block) in blocks.iter().enumerate() {
            let out = self.folder.join(format!("printed-{number}"));
            let _ = write!(script, "{{\n{}}} > '{}' 2>&1\n", block.commands, out.display());
        }
        let mut shell = shell;
        let shell = shell.args(["-c", &script]).current_dir(self.folder).stdin(Stdio::null());
        let status = shell.status().expect("the shell starts");
        for (number, block) in blocks.iter().enumerate() {
            let printed = fs::read_to_string(self.folder.join(format!("printed-{number}")));
            let printed = printed.unwrap_or_default();
            if let Some(shown) = &block.shown {
                self.assert_alike(&printed, shown);
            }
        }
        assert!(status.success(), "{status}");
    }

    /// Compares lines; a line of `…` stands for any number of lines. Log lines of programs that
    /// the commands started are skipped.
    #[track_caller]
    fn assert_alike(&self, printed: &str, shown: &str) {
        let lines: Vec<String> = without_log(printed).lines().map(self.without_varying).collect();
        let mut rest = &lines[..];
        let mut may_skip = false;
        for line in shown.lines() {
            if line == "…" {
                may_skip = true;
                continue;
            }
            let expected = (self.without_varying)(line);
            match rest.iter().position(|printed| *printed == expected) {
                Some(at) if at == 0 || may_skip => rest = &rest[at + 1..],
                _ => panic!("the guide shows {line:?}, the output is {printed}"),
            }
            may_skip = false;
        }
        assert!(rest.is_empty() || may_skip, "the guide does not show {rest:#?}");
    }
}

/// The output without what programs have logged meanwhile. A log line may begin in the middle of an
/// output's line, whose end then comes after it.
fn without_log(printed: &str) -> String {
    printed.split_inclusive('\n').map(|line| &line[..log_begins(line)]).collect()
}

/// Where the log begins in a line.
fn log_begins(line: &str) -> usize {
    let Some(level) = line.find(" INFO ").or_else(|| line.find(" WARN ")) else {
        return line.len();
    };
    let time = line[..level].trim_end();
    let before = time.len().checked_sub("2026-01-01T00:00:00.000000Z".len());
    before.filter(|before| line.is_char_boundary(*before)).unwrap_or(0)
}

#[test]
fn a_log_line_is_no_part_of_an_output() {
    let log = "2026-01-01T00:00:00.000000Z  INFO listening\n";
    for (printed, expected) in [
        ("OK\n".to_owned(), "OK\n"),
        (format!("{log}OK\n"), "OK\n"),
        (format!("OK\n{log}"), "OK\n"),
        (format!("OK{log}\n"), "OK\n"),
        (format!("{log}O{log}K\n{log}200\n"), "OK\n200\n"),
    ] {
        assert_eq!(without_log(&printed), expected, "{printed:?}");
    }
}

/// The blocks of commands in a guide; a block of text directly after one is its output.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines();
    let mut is_directly_after = false;
    while let Some(line) = lines.next() {
        match line {
            "```sh" => {
                blocks.push(Block { commands: body(&mut lines), shown: None });
                is_directly_after = true;
            }
            "```text" if is_directly_after => {
                if let Some(block) = blocks.last_mut() {
                    block.shown = Some(body(&mut lines));
                }
                is_directly_after = false;
            }
            "" => {}
            fence if fence.starts_with("```") => drop(body(&mut lines)),
            _ => is_directly_after = false,
        }
    }
    blocks
}

fn body<'l>(lines: &mut impl Iterator<Item = &'l str>) -> String {
    lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect()
}
