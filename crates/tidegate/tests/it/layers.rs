//! The direction of dependencies between the crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may use of the others. What is not listed is not allowed.
const MAY_USE: [(&str, &[&str]); 14] = [
    ("tidegate-core", &[]),
    ("tidegate-table", &["tidegate-core"]),
    ("tidegate-log", &["tidegate-core", "tidegate-table"]),
    ("tidegate-policy", &["tidegate-core", "tidegate-table"]),
    ("tidegate-engine", &["tidegate-core", "tidegate-table", "tidegate-log", "tidegate-policy"]),
    ("tidegate-redis", &["tidegate-core", "tidegate-table", "tidegate-policy", "tidegate-engine"]),
    (
        "tidegate",
        &[
            "tidegate-core",
            "tidegate-table",
            "tidegate-policy",
            "tidegate-engine",
            "tidegate-redis",
        ],
    ),
    ("tidegate-proto", &["tidegate-core"]),
    ("tidegate-listen", &["tidegate"]),
    ("tidegate-tower", &["tidegate", "tidegate-proto", "tidegate-listen"]),
    ("tidegate-server", &["tidegate", "tidegate-proto", "tidegate-listen"]),
    ("tidegate-replay", &["tidegate"]),
    (
        "tidegate-cli",
        &[
            "tidegate",
            "tidegate-replay",
            "tidegate-table",
            "tidegate-proto",
            "tidegate-listen",
            "tidegate-server",
        ],
    ),
    ("tidegate-redis-servers", &[]),
];

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
        let ours: BTreeSet<_> = used.iter().filter(|used| used.starts_with("tidegate")).collect();
        assert!(ours.iter().all(|used| allowed.contains(&used.as_str())), "{name} uses {ours:?}");
        if name == "tidegate-core" {
            assert!(used.is_empty(), "the core has no dependency, but uses {used:?}");
        }
    }
}

#[test]
fn a_limiter_has_no_dependency_outside_of_the_project() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, expected) in [
        ("tidegate-table", ["tidegate-core"].as_slice()),
        ("tidegate", &["tidegate-core", "tidegate-table"]),
    ] {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        let always: String = manifest
            .split_inclusive('\n')
            .filter(|line| !line.contains("optional = true"))
            .collect();
        assert_eq!(dependencies(&always), expected.iter().map(|&it| it.to_owned()).collect());
        assert!(!manifest.contains("\ndefault = "), "{name} has default features");
    }
}

/// The one crate with unsafe code, and its files that have it.
const UNSAFE: [&str; 8] = [
    "tidegate-table/src/clock/monotonic/counter.rs",
    "tidegate-table/src/hash/pair.rs",
    "tidegate-table/src/memory.rs",
    "tidegate-table/src/table/arena.rs",
    "tidegate-table/src/table/directory.rs",
    "tidegate-table/src/table/line.rs",
    "tidegate-table/src/table/pages.rs",
    "tidegate-table/src/table/sync.rs",
];

#[test]
fn only_the_table_has_unsafe_code_and_every_other_crate_forbids_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut with_unsafe = Vec::new();
    for (name, _) in MAY_USE {
        let source = crates.join(name).join("src");
        let root = fs::read_to_string(source.join("lib.rs")).unwrap();
        let forbids = root.contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, name != "tidegate-table", "{name}");
        for (path, text) in sources(&source) {
            if text.contains("allow(unsafe_code") {
                let path = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
                with_unsafe.push(path);
            }
        }
    }
    with_unsafe.sort();
    assert_eq!(with_unsafe, UNSAFE);
}

/// All files of Rust code in a folder, with their texts.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no code was found");
    found
}

/// What the recipes may use: the public crates, and not each other.
const RECIPES_MAY_USE: [&str; 5] =
    ["tidegate", "tidegate-proto", "tidegate-tower", "tidegate-listen", "tidegate-server"];

#[test]
fn recipes_are_built_on_nothing_but_the_public_crates() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    for folder in fs::read_dir(recipes).unwrap().map(|folder| folder.unwrap().path()) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest).iter().filter(|used| used.starts_with("tidegate")) {
            assert!(RECIPES_MAY_USE.contains(&used.as_str()), "{} uses {used}", folder.display());
        }
    }
}

/// Floods, time-outs and shutdown are handled in one place.
#[test]
fn only_tidegate_listen_has_an_accept_loop() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = ["crates", "recipes"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let packages = packages.into_iter().flatten().map(|package| package.unwrap().path());
    // The proxy of the servers for tests is no part of the product, and bounded by itself.
    let exempt = ["tidegate-listen", "tidegate-redis-servers"];
    let others = packages.filter(|package| !exempt.iter().any(|it| package.ends_with(it)));
    let mut folders: Vec<_> = others.map(|package| package.join("src")).collect();
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let source = fs::read_to_string(&path).unwrap();
                let mut code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
                let loops = [".accept()", "axum::serve("];
                let found = code.find(|line| loops.iter().any(|it| line.contains(it)));
                assert_eq!(found, None, "{}", path.display());
                read += 1;
            }
        }
    }
    assert!(read > 100, "only {read} files were read");
}

/// The names in the `[dependencies]` table of a manifest, not those for tests or model checking.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
    let table = table.split("\n[").next().unwrap_or("");
    let names = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(|line| line.split(['.', ' ', '=']).next().unwrap_or("").to_owned()).collect()
}

/// What watches a policy file, the log on disk, its snapshots and what reads them, and the timer of the queues.
const START_THREADS: [&str; 6] = [
    "tidegate-engine/src/engine/watch.rs",
    "tidegate-engine/src/store/answer.rs",
    "tidegate-engine/src/store/file/options.rs",
    "tidegate-engine/src/store/replay/background.rs",
    "tidegate-log/src/log.rs",
    "tidegate-table/src/waiting/timer.rs",
];

/// Nothing else runs in the background, so there is nothing that `close` could leave running.
#[test]
fn only_what_is_listed_starts_threads() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut start_threads = Vec::new();
    for name in [
        "tidegate-core",
        "tidegate-table",
        "tidegate-log",
        "tidegate-policy",
        "tidegate-engine",
        "tidegate",
    ] {
        let source = crates.join(name).join("src");
        for (path, text) in sources(&source) {
            // The conformance suite is for tests alone.
            let in_crate = path.strip_prefix(&source).unwrap().to_str().unwrap();
            let is_test = in_crate.starts_with("testing") || in_crate.ends_with("tests.rs");
            let starts = ["thread::spawn", "thread::scope", "thread::Builder"];
            if !is_test && starts.iter().any(|start| text.contains(start)) {
                start_threads.push(path.strip_prefix(&crates).unwrap().to_owned());
            }
        }
    }
    start_threads.sort();
    assert_eq!(start_threads, START_THREADS.map(Path::new));
}
