//! Completions, man pages, the schema, and the reference.

use crate::run::{folder, root, tidegate, tidegate_in};

const COMMANDS: [&str; 9] =
    ["validate", "explain", "test", "replay", "diff", "import", "schema", "completions", "man"];

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        tidegate(&["completions", shell]).with(0).silent_err().out(&COMMANDS).out(&["strict"]);
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = folder("man", &[]);
    tidegate_in(&folder, &["man", "pages/man1"], b"").with(0).silent_out().err(&["pages/man1"]);
    let page = |name: &str| std::fs::read_to_string(folder.join("pages/man1").join(name)).unwrap();
    for command in COMMANDS {
        let page = page(&format!("tidegate-{command}.1"));
        assert!(page.contains(".SH NAME") && page.contains("Examples"), "{page}");
    }
    let main = page("tidegate.1");
    assert_eq!(tidegate(&["man"]).with(0).out, main);
}

#[test]
fn unwritable_man_pages_are_an_error() {
    let folder = folder("no-man", &[("file", "")]);
    tidegate_in(&folder, &["man", "file"], b"").with(2).err(&["cannot write man pages to `file`"]);
}

#[test]
fn schema_command_prints_the_committed_schema() {
    let committed = root().join("docs/reference/policy.schema.json");
    assert_eq!(tidegate(&["schema"]).with(0).out, std::fs::read_to_string(committed).unwrap());
}

/// `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test it reference` regenerates the file.
#[test]
fn committed_reference_is_current() {
    let path = root().join("docs/reference/cli.md");
    let reference = tidegate_cli::reference();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &reference).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == reference, "run this test with TIDEGATE_BLESS=1 to regenerate it");
    for command in COMMANDS {
        assert!(reference.contains(&format!("## `tidegate {command}`")), "{reference}");
    }
}
