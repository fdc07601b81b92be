//! The direction of dependencies between the crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What each crate may use of the others. What is not listed is not allowed.
const MAY_USE: [(&str, &[&str]); 2] = [("tollgate-core", &[]), ("tollgate", &["tollgate-core"])];

#[test]
fn crates_depend_on_each_other_in_one_direction_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(crates).unwrap().map(|folder| folder.unwrap().path());
    for folder in folders.filter(|folder| folder.join("Cargo.toml").exists()) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, allowed) = MAY_USE
            .iter()
            .find(|(listed, _)| *listed == name)
            .unwrap_or_else(|| panic!("{name} is not listed in {}", file!()));
        let used = dependencies(&manifest);
        let ours: BTreeSet<_> = used.iter().filter(|used| used.starts_with("tollgate")).collect();
        assert!(ours.iter().all(|used| allowed.contains(&used.as_str())), "{name} uses {ours:?}");
        if name == "tollgate-core" {
            assert!(used.is_empty(), "the core has no dependency, but uses {used:?}");
        }
    }
}

/// The names in the `[dependencies]` table of a manifest, not those for tests or model checking.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
    let table = table.split("\n[").next().unwrap_or("");
    let names = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(|line| line.split(['.', ' ', '=']).next().unwrap_or("").to_owned()).collect()
}
