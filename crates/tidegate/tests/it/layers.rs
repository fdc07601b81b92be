//! The direction of dependencies between the crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may use of the others. What is not listed is not allowed.
const MAY_USE: [(&str, &[&str]); 10] = [
    ("tidegate-core", &[]),
    ("tidegate-table", &["tidegate-core"]),
    ("tidegate-policy", &["tidegate-core", "tidegate-table"]),
    ("tidegate-engine", &["tidegate-core", "tidegate-table", "tidegate-policy"]),
    ("tidegate", &["tidegate-core", "tidegate-table", "tidegate-policy", "tidegate-engine"]),
    ("tidegate-proto", &["tidegate-core"]),
    ("tidegate-listen", &["tidegate"]),
    ("tidegate-tower", &["tidegate", "tidegate-proto", "tidegate-listen"]),
    ("tidegate-server", &["tidegate", "tidegate-proto", "tidegate-listen"]),
    (
        "tidegate-cli",
        &["tidegate", "tidegate-table", "tidegate-proto", "tidegate-listen", "tidegate-server"],
    ),
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
const UNSAFE: [&str; 4] = [
    "tidegate-table/src/clock/monotonic/counter.rs",
    "tidegate-table/src/memory.rs",
    "tidegate-table/src/table/arena.rs",
    "tidegate-table/src/table/directory.rs",
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
    let others = packages.filter(|package| !package.ends_with("tidegate-listen"));
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

/// The log on disk and its snapshots, and the timer of the queues.
const START_THREADS: [&str; 3] = [
    "tidegate-engine/src/store/file/log.rs",
    "tidegate-engine/src/store/file.rs",
    "tidegate-table/src/waiting/timer.rs",
];

/// Nothing else runs in the background, so there is nothing that `close` could leave running.
#[test]
fn only_the_timer_and_the_file_store_start_threads() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut start_threads = Vec::new();
    for name in
        ["tidegate-core", "tidegate-table", "tidegate-policy", "tidegate-engine", "tidegate"]
    {
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

/// The crates whose top-level modules use each other in one direction only.
const WITHOUT_CYCLES: [&str; 5] =
    ["tidegate-core", "tidegate-table", "tidegate-policy", "tidegate-engine", "tidegate"];

#[test]
fn top_level_modules_of_a_crate_use_each_other_without_a_cycle() {
    for name in WITHOUT_CYCLES {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let uses = module_uses(&source);
        if let Some(cycle) = find_cycle(&uses) {
            panic!("{name}: {}", cycle.join(" -> "));
        }
    }
}

#[test]
fn a_cycle_between_modules_is_found_and_a_chain_is_not() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = ModuleUses::new();
        for (from, to) in pairs {
            uses.entry((*from).into()).or_default().insert((*to).into());
        }
        uses
    };
    assert_eq!(find_cycle(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let cycle = find_cycle(&uses(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")]));
    assert_eq!(cycle, Some(["a", "b", "c", "a"].map(String::from).to_vec()));

    let code = "\
use crate::{Shown, store::{self, Plan}, \n    clock};\nuse super::engine::Engine;\n// crate::comment\n\
fn f() { crate::history::now(); }\n#[cfg(test)]\nmod tests { use crate::testing; }\n";
    let exports = [("Shown".to_owned(), "shown".to_owned())].into();
    let expected = ["clock", "engine", "history", "shown", "store"].map(String::from);
    assert_eq!(used_modules(code, 1, &exports), expected.into());
    assert!(used_modules("use super::engine::Engine;", 2, &exports).is_empty());
}

/// The top-level modules that each top-level module uses.
type ModuleUses = BTreeMap<String, BTreeSet<String>>;

/// Reads the uses from the sources of a crate; modules of tests are left out.
fn module_uses(source: &Path) -> ModuleUses {
    let root = fs::read_to_string(source.join("lib.rs")).unwrap();
    let exports = root_exports(&root);
    let mut uses = ModuleUses::new();
    for (path, text) in sources(source) {
        let in_crate = path.strip_prefix(source).unwrap();
        let mut parts: Vec<_> = in_crate.iter().map(|part| part.to_str().unwrap()).collect();
        let file = parts.pop().unwrap().trim_end_matches(".rs");
        parts.push(file);
        if parts[0] != "lib" && !parts.iter().any(|part| part.ends_with("tests")) {
            let used = used_modules(&text, parts.len(), &exports);
            let others = used.into_iter().filter(|used| used != parts[0]);
            uses.entry(parts[0].to_owned()).or_default().extend(others);
        }
    }
    uses
}

/// The names that the root of a crate re-exports, each with its top-level module.
fn root_exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in root.split("\npub use ").skip(1) {
        let statement = statement.split(';').next().unwrap();
        let module = statement.split("::").next().unwrap();
        for name in statement.split(|it: char| !it.is_alphanumeric() && it != '_').skip(1) {
            exports.insert(name.to_owned(), module.to_owned());
        }
    }
    exports
}

/// The top-level modules that a file uses whose module is this deep: 1 for those of the root.
fn used_modules(text: &str, depth: usize, exports: &BTreeMap<String, String>) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut names = Vec::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        let mut rest = code;
        while let Some(at) = rest.find(&root) {
            let is_whole = !rest[..at].ends_with(|it: char| it.is_alphanumeric() || it == ':');
            rest = &rest[at + root.len()..];
            if is_whole && !rest.starts_with("super::") {
                names.extend(first_names(rest));
            }
        }
    }
    let module = |name: &str| exports.get(name).cloned().unwrap_or_else(|| name.to_owned());
    names.into_iter().map(module).collect()
}

/// The first name of a path, or of each path in a list in braces.
fn first_names(path: &str) -> Vec<&str> {
    let is_of_name = |it: char| it.is_alphanumeric() || it == '_';
    let first = |text: &'_ str| text.find(|it| !is_of_name(it)).unwrap_or(text.len());
    let Some(list) = path.strip_prefix('{') else { return vec![&path[..first(path)]] };
    let (mut names, mut nesting, mut begins) = (Vec::new(), 0_u32, 0);
    for (at, it) in list.char_indices() {
        match it {
            '{' => nesting += 1,
            ',' | '}' if nesting == 0 => {
                let item = list[begins..at].trim();
                names.extend(Some(&item[..first(item)]).filter(|name| !name.is_empty()));
                begins = at + 1;
                if it == '}' {
                    break;
                }
            }
            '}' => nesting -= 1,
            _ => {}
        }
    }
    names
}

/// A cycle, from a module back to itself.
fn find_cycle(uses: &ModuleUses) -> Option<Vec<String>> {
    fn visit(uses: &ModuleUses, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let module = path[path.len() - 1].clone();
        for used in uses.get(&module).into_iter().flatten() {
            if let Some(begins) = path.iter().position(|it| it == used) {
                path.drain(..begins);
                path.push(used.clone());
                return true;
            }
            if !done.contains(used) {
                path.push(used.clone());
                if visit(uses, path, done) {
                    return true;
                }
                path.pop();
            }
        }
        done.insert(module);
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| {
        let mut path = vec![module.clone()];
        (!done.contains(module) && visit(uses, &mut path, &mut done)).then_some(path)
    })
}
