//! The command-line reference in Markdown, generated from the help.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::args::Tidegate;

/// The text of `docs/reference/cli.md`.
#[must_use]
pub fn reference() -> String {
    let mut command = Tidegate::command();
    command.build();
    let mut text = String::from(
        "# The command line\n\n\
         <!-- Generated from the help of `tidegate`; CONTRIBUTING.md has the command. -->\n",
    );
    section(&command, &mut text);
    subsections(&command, "##", &mut text);
    text
}

/// A section for each subcommand, followed by those of its own subcommands.
fn subsections(command: &Command, heading: &str, text: &mut String) {
    for subcommand in command.get_subcommands() {
        let _ = writeln!(text, "\n{heading} `{}`", name(subcommand));
        section(subcommand, text);
        subsections(subcommand, &format!("{heading}#"), text);
    }
}

fn name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

fn section(command: &Command, text: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        let _ = writeln!(text, "\n{}", paragraphs(&about.to_string()));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "\n```text\n{}\n```", usage.trim_start_matches("Usage: ").trim());
    if command.has_subcommands() {
        text.push_str("\n| command | description |\n|---|---|\n");
        for subcommand in command.get_subcommands() {
            let (name, about) = (subcommand.get_name(), subcommand.get_about());
            let anchor = self::name(subcommand).replace(' ', "-");
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "| [`{name}`](#{anchor}) | {about} |");
        }
    }
    let arguments: Vec<_> = command.get_arguments().filter(|arg| !is_common(arg)).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | description |\n|---|---|\n");
        for arg in arguments {
            let _ = writeln!(text, "| {} | {} |", syntax(arg), description(arg));
        }
    }
    if let Some(examples) = command.get_after_long_help() {
        let _ = writeln!(text, "\n```text\n{examples}\n```");
    }
}

/// Whether every command has this argument.
fn is_common(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

/// The syntax of an argument.
fn syntax(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let takes_values = arg.get_action().takes_values();
    let values = names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" ");
    let flags =
        [arg.get_short().map(|it| format!("-{it}")), arg.get_long().map(|it| format!("--{it}"))];
    let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match (flags.is_empty(), takes_values) {
        (true, _) => format!("`{values}`"),
        (false, true) => format!("`{flags} {values}`"),
        (false, false) => format!("`{flags}`"),
    }
}

fn description(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let code = |words: Vec<String>| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    if arg.get_action().takes_values() {
        let possible =
            arg.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
        let default =
            arg.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
        for (label, words) in [("one of", code(possible)), ("default:", code(default))] {
            if !words.is_empty() {
                let _ = write!(text, "; {label} {words}");
            }
        }
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, "; environment: `{}`", variable.to_string_lossy());
    }
    text.replace('|', "\\|")
}

/// Paragraphs in Markdown; indented ones become code blocks.
fn paragraphs(about: &str) -> String {
    let paragraph = |text: &str| match text.starts_with("  ") {
        true => format!("```text\n{text}\n```"),
        false => text.to_owned(),
    };
    about.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}
