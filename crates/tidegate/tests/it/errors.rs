//! Errors read the same under `expect` and `unwrap` as in a log.

use std::fmt::{Debug, Display};
use std::fs;
use std::path::{Path, PathBuf};

use tidegate::durable::FileStore;
use tidegate::policy::{Policy, RuleId};
use tidegate::{CheckError, Edit, Outage, SettleError, StoreEngine, hold::HoldId};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The errors of a source whose derived `Debug` would print fields instead of a message.
fn derived(source: &str) -> Vec<&str> {
    let errors = source.lines().filter_map(|line| {
        let (head, rest) = line.split_once("Error for ")?;
        let is_impl = head.starts_with("impl") && !head.contains("From<");
        is_impl.then(|| rest.split([' ', '<', '{']).next()).flatten()
    });
    let is_derived = |name: &&str| {
        let types = [format!("pub enum {name} "), format!("pub struct {name} ")];
        let other = [format!("pub struct {name}("), format!("pub struct {name};")];
        let starts = |line: &&str| types.iter().chain(&other).any(|it| line.starts_with(&**it));
        let lines: Vec<&str> = source.lines().collect();
        let Some(at) = lines.iter().position(starts) else { return false };
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        attributes.into_iter().any(|line| line.starts_with("#[derive") && line.contains("Debug"))
    };
    errors.filter(is_derived).collect()
}

#[test]
fn no_public_error_derives_debug() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for of in ["crates", "recipes"] {
        for entry in fs::read_dir(root.join(of)).unwrap() {
            let source = entry.unwrap().path().join("src");
            if source.is_dir() {
                sources(&source, &mut files);
            }
        }
    }
    assert!(files.len() > 200, "{}", files.len());
    let mut bad = Vec::new();
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        bad.extend(derived(&source).into_iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert!(bad.is_empty(), "print these as they are displayed: {bad:#?}");
    let example = "#[derive(Debug)]\n#[non_exhaustive]\npub enum A {\n}\nimpl Error for A {}\n";
    assert_eq!(derived(example), ["A"]);
}

#[test]
fn errors_are_readable_under_expect() {
    fn same(error: impl Debug + Display) {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains(' '), "{error}");
    }
    let rule = RuleId::named("user");
    same(CheckError::NeedsAcquire { rule: rule.clone() });
    same(SettleError::Gone);
    same(Outage::Unavailable);
    same(Outage::Unknown);
    same("no id".parse::<HoldId>().unwrap_err());
    same(FileStore::open("/dev/null/nowhere").unwrap_err());
    let policy = Policy::from_toml("[[rule]]\nname = \"a\"\ncooldown = \"1s\"").unwrap();
    let engine = StoreEngine::new(policy);
    same(engine.edit("ops", Edit::remove_override(&rule, &[])).block().unwrap_err());
}
