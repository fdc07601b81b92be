//! Completions, man pages, the schema, and the reference.

use crate::run::{folder, root, tidegate, tidegate_in};

const COMMANDS: [&str; 6] = ["validate", "explain", "test", "schema", "completions", "man"];

#[test]
fn shells_get_completions() {
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
fn man_pages_that_cannot_be_written_say_why() {
    let folder = folder("no-man", &[("file", "")]);
    tidegate_in(&folder, &["man", "file"], b"").with(2).err(&["cannot write man pages to `file`"]);
}

#[test]
fn the_schema_is_the_committed_one() {
    let committed = root().join("docs/reference/policy.schema.json");
    assert_eq!(tidegate(&["schema"]).with(0).out, std::fs::read_to_string(committed).unwrap());
}

/// `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test it reference` writes the file anew.
#[test]
fn the_reference_is_the_one_of_this_code() {
    let path = root().join("docs/reference/cli.md");
    let reference = tidegate_cli::reference();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &reference).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == reference, "run this test with TIDEGATE_BLESS=1 to write it anew");
    for command in COMMANDS {
        assert!(reference.contains(&format!("## `tidegate {command}`")), "{reference}");
    }
}
