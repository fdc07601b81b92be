//! The modules of a crate import each other in one direction.
//!
//! The reader follows `mod` declarations from `lib.rs`, drops comments, texts and whatever is compiled
//! for tests only, and notes every path that starts with `crate::` or leaves a top-level module with
//! `super::`. A name that the crate's root re-exports counts as an import of its module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tokens::{Token, tokens};

mod tokens;

const CRATES: [&str; 14] = [
    "tidegate",
    "tidegate-cli",
    "tidegate-core",
    "tidegate-engine",
    "tidegate-listen",
    "tidegate-log",
    "tidegate-policy",
    "tidegate-proto",
    "tidegate-redis",
    "tidegate-redis-servers",
    "tidegate-replay",
    "tidegate-server",
    "tidegate-table",
    "tidegate-tower",
];

#[test]
fn modules_of_a_crate_import_each_other_in_one_direction_only() {
    let cycles: Vec<_> = CRATES
        .iter()
        .filter_map(|name| Some(format!("in {name}:\n{}", graph_of(name).cycle()?)))
        .collect();
    assert!(
        cycles.is_empty(),
        "modules import each other in a circle; pass what is needed as an argument, or move what \
         both need into a module below them\n{}",
        cycles.join("\n")
    );
}

#[test]
fn every_crate_is_listed() {
    let known: BTreeSet<_> = CRATES.map(String::from).into();
    let folders = fs::read_dir(crates()).unwrap().map(|folder| folder.unwrap().path());
    let found = folders.filter(|folder| folder.join("Cargo.toml").exists());
    let found: BTreeSet<_> =
        found.map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(found, known, "the list in {} differs from the crates", file!());
}

/// A reader that finds nothing would find no cycle either.
#[test]
fn imports_of_real_modules_are_found() {
    let graph = graph_of("tidegate-server");
    for (from, to) in [("http", "body"), ("grpc", "rls"), ("local", "admin"), ("server", "daemon")]
    {
        assert!(graph.imports[from].contains_key(to), "{from} imports {to}: {:?}", graph.imports);
    }
}

#[test]
fn imports_are_read_in_every_form() {
    let cases: [(&str, &str, &[&str]); 12] = [
        ("use", "use crate::b::B;", &["b"]),
        ("list", "use crate::{b::{self, c}, c::{d, e}};", &["b", "c"]),
        ("path", "fn f() -> crate::b::B { crate::c::f() }", &["b", "c"]),
        ("re-export", "use crate::{FromB, FromC as C, NotThere};", &["b", "c"]),
        ("visibility", "pub(crate) fn f() {} pub(in crate::b) fn g() {}", &["b"]),
        ("super", "use super::b::B; use super::{c, FromB};", &["b", "c"]),
        ("inline module", "mod m { use super::b; use super::super::c; }", &["c"]),
        ("comment", "// crate::b\n/* crate::b /* */ crate::c */ /// crate::b\nfn f() {}", &[]),
        ("text", r##"const T: &str = "\" crate::b"; const R: &str = r#"" crate::c"#;"##, &[]),
        ("character", r"const C: [char; 2] = ['\'', '/']; use crate::b;", &["b"]),
        ("test", "#[cfg(test)]\nmod tests { use crate::b; fn f() {} }\nuse crate::c;", &["c"]),
        (
            "test items",
            "#[cfg(all(test, loom))] use crate::b; #[cfg(test)] #[x] fn f<'a>() { crate::b() } \
             #[cfg(not(test))] use crate::c;",
            &["c"],
        ),
    ];
    for (name, source, expected) in cases {
        let root = "mod a; mod b; mod c; pub use b::FromB; pub use c::{x::FromX, c::d::FromC};";
        let graph = graph(&|path| match path.to_str().unwrap() {
            "lib.rs" => Some(root.into()),
            "a.rs" => Some(source.into()),
            "b.rs" | "c/mod.rs" => Some(String::new()),
            _ => None,
        });
        let imported: Vec<_> = graph.imports["a"].keys().map(String::as_str).collect();
        assert_eq!(imported, expected, "{name}");
    }
}

#[test]
fn a_cycle_is_described_with_the_lines_that_make_it() {
    let graph = graph(&|path| {
        let source = match path.to_str().unwrap() {
            "lib.rs" => "mod a;\nmod b;\nmod c;\n#[cfg(test)]\nmod d;",
            "a.rs" => "use crate::b;\n",
            "b.rs" => "mod deep;",
            "b/deep.rs" => "use super::b2;\n\nuse super::super::c;",
            "c.rs" => "fn f() {\n    crate::a::f()\n}",
            _ => return None,
        };
        Some(source.into())
    });
    assert_eq!(
        graph.cycle().unwrap(),
        "  a imports b (a.rs:1)\n  b imports c (b/deep.rs:3)\n  c imports a (c.rs:2)"
    );
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn graph_of(name: &str) -> ModuleGraph {
    let folder = crates().join(name).join("src");
    graph(&|path| fs::read_to_string(folder.join(path)).ok())
}

/// The top-level modules of a crate, and where each imports another.
#[derive(Debug, Default)]
struct ModuleGraph {
    /// By the importing and the imported module: the first such line, as `file:line`.
    imports: BTreeMap<String, BTreeMap<String, String>>,
}

impl ModuleGraph {
    /// The first cycle, one line for each of its imports.
    fn cycle(&self) -> Option<String> {
        let mut done = BTreeSet::new();
        self.imports.keys().find_map(|start| self.cycle_from(start, &mut Vec::new(), &mut done))
    }

    fn cycle_from<'g>(
        &'g self,
        module: &'g str,
        path: &mut Vec<&'g str>,
        done: &mut BTreeSet<&'g str>,
    ) -> Option<String> {
        if let Some(start) = path.iter().position(|it| *it == module) {
            let cycle = [&path[start..], &[module]].concat();
            let lines = cycle.windows(2).map(|pair| {
                let at = &self.imports[pair[0]][pair[1]];
                format!("  {} imports {} ({at})", pair[0], pair[1])
            });
            return Some(lines.collect::<Vec<_>>().join("\n"));
        }
        if done.contains(module) {
            return None;
        }
        path.push(module);
        let imported = self.imports.get(module).into_iter().flat_map(BTreeMap::keys);
        let found = imported.into_iter().find_map(|next| self.cycle_from(next, path, done));
        path.pop();
        done.insert(module);
        found
    }
}

/// The graph of a crate whose source files `read` returns, by their paths below `src`.
fn graph(read: &dyn Fn(&Path) -> Option<String>) -> ModuleGraph {
    let root = tokens(&read(Path::new("lib.rs")).expect("a crate has a lib.rs"));
    let tops = declared(&root);
    let exports = re_exports(&root, &tops);
    let mut graph = ModuleGraph::default();
    for top in &tops {
        let mut imports = BTreeMap::new();
        let mut modules = vec![vec![top.clone()]];
        while let Some(module) = modules.pop() {
            let folder: PathBuf = module.iter().collect();
            let files = [folder.with_extension("rs"), folder.join("mod.rs")];
            let found = files.into_iter().find_map(|file| Some((read(&file)?, file)));
            let (source, file) = found.unwrap_or_else(|| panic!("module {module:?} has no file"));
            let tokens = tokens(&source);
            modules.extend(declared(&tokens).into_iter().map(|it| [&*module, &[it]].concat()));
            for (name, line) in names_from_the_root(&tokens, module.len()) {
                let name = exports.get(&name).unwrap_or(&name);
                if name != top && tops.contains(name) {
                    let at = || format!("{}:{line}", file.display());
                    imports.entry(name.clone()).or_insert_with(at);
                }
            }
        }
        graph.imports.insert(top.clone(), imports);
    }
    graph
}

/// The modules that a file declares, `mod name;`.
fn declared(tokens: &[Token]) -> Vec<String> {
    let declared = tokens.windows(3).filter(|it| it[0].is("mod") && it[2].is(";"));
    declared.map(|it| it[1].text.clone()).collect()
}

/// The names that the root re-exports, each with its module.
fn re_exports(root: &[Token], tops: &[String]) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for (index, _) in root.iter().enumerate().filter(|(_, token)| token.is("use")) {
        let Some(module) = root.get(index + 1).filter(|it| tops.contains(&it.text)) else {
            continue;
        };
        let end =
            root[index..].iter().position(|it| it.is(";")).map_or(root.len(), |it| index + it);
        // In `a::{b::C, D as E}` the names are those before `,`, `}` and `;`.
        for pair in root[index..=end.min(root.len() - 1)].windows(2) {
            assert!(!pair[0].is("*"), "line {}: a glob hides what is re-exported", pair[0].line);
            if [",", "}", ";"].iter().any(|it| pair[1].is(it)) && pair[0].is_name() {
                exports.insert(pair[0].text.clone(), module.text.clone());
            }
        }
    }
    exports
}

/// The names that follow `crate::`, or as many `super::` as lead to the root, with their lines.
///
/// `depth` is that of the file's own module: 1 for a top-level one.
fn names_from_the_root(tokens: &[Token], depth: usize) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    // The depths of braces at which inline modules end.
    let (mut braces, mut inline) = (0_usize, Vec::new());
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match &*token.text {
            "{" => {
                braces += 1;
                if index >= 2 && tokens[index - 2].is("mod") {
                    inline.push(braces);
                }
            }
            "}" => {
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
                braces = braces.saturating_sub(1);
            }
            "crate" => names.extend(first_names(&tokens[index + 1..])),
            "super" => {
                let mut supers = 1;
                while tokens.get(index + 2).is_some_and(|it| it.is("super")) {
                    (supers, index) = (supers + 1, index + 2);
                }
                if supers >= depth + inline.len() {
                    names.extend(first_names(&tokens[index + 1..]));
                }
            }
            _ => {}
        }
        index += 1;
    }
    names
}

/// The first names of the paths in `::name…` or `::{name…, name…}`.
fn first_names(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    let [colons, first, rest @ ..] = tokens else { return names };
    if !colons.is("::") {
        return names;
    }
    assert!(!first.is("*"), "line {}: a glob of the root hides what is imported", first.line);
    if !first.is("{") {
        return vec![(first.text.clone(), first.line)];
    }
    let (mut depth, mut is_start) = (1, true);
    for token in rest {
        match &*token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => is_start = true,
            _ if is_start => {
                names.push((token.text.clone(), token.line));
                is_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}
