//! Targets without a test binary have no tests that would be missed.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

#[test]
fn targets_that_are_not_tested_have_no_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = ["crates", "recipes"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut checked = 0;
    for package in packages.into_iter().flatten().map(|package| package.unwrap().path()) {
        let Ok(manifest) = fs::read_to_string(package.join("Cargo.toml")) else { continue };
        let manifest: Table = manifest.parse().unwrap();
        for (files, attributes) in untested(&package, &manifest) {
            checked += 1;
            for file in files {
                let source = fs::read_to_string(&file).unwrap();
                let found = source.lines().find(|line| attributes.contains(&line.trim()));
                assert_eq!(found, None, "{} is in a target without tests", file.display());
            }
        }
    }
    assert!(checked >= 8, "only {checked} targets are without tests: are the manifests read?");
}

const TESTS: &[&str] = &["#[test]", "#[tokio::test]", "mod tests {", "mod tests;"];
const DOCUMENTATION_TESTS: &[&str] = &["/// ```", "//! ```", "#[cfg(doctest)]"];

/// The files of each target without tests, and what they may not contain.
fn untested(package: &Path, manifest: &Table) -> Vec<(Vec<PathBuf>, &'static [&'static str])> {
    let is_off =
        |target: &Value, what: &str| target.get(what).is_some_and(|it| it.as_bool() == Some(false));
    let mut found = Vec::new();
    for target in manifest.get("bin").and_then(Value::as_array).into_iter().flatten() {
        if is_off(target, "test") {
            found.push((vec![package.join(target["path"].as_str().unwrap())], TESTS));
        }
    }
    if let Some(target) = manifest.get("lib") {
        for (what, attributes) in [("test", TESTS), ("doctest", DOCUMENTATION_TESTS)] {
            if is_off(target, what) {
                found.push((sources(&package.join("src")), attributes));
            }
        }
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found
}
