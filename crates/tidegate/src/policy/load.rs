//! Loading policies in any format: TOML, or the YAML of envoyproxy/ratelimit and Limitador.

use std::path::Path;
use std::{fs, io};

use super::check;
use super::diagnostic::{Diagnostic, PolicyErrors};
use super::parse::{self, FileScope, MOST_BYTES, whole_file};
use super::{Parsed, Policy, ServerConfig, diagnostic};

/// A file of a policy: its name and its bytes.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    /// Its name, for messages; the ending gives its format.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl PolicyFile {
    /// The files at a path: the file itself, or all policies in a folder, by name (`*.toml`,
    /// `*.yaml`, `*.yml`). In a folder, names that begin with a dot are skipped: editors and
    /// deployments leave such files behind. So are tests of policies (`*.test.toml`).
    ///
    /// Of each file one byte more is read than a policy may have, so that the parser rejects it.
    pub fn read(path: &Path) -> io::Result<Vec<Self>> {
        if !path.is_dir() {
            return Ok(vec![Self::read_one(path)?]);
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(b".") || name.ends_with(b".test.toml") {
                continue;
            }
            let path = entry.path();
            if path.is_file() && FileFormat::by_ending(&path.display().to_string()).is_some() {
                paths.push(path);
            }
            if paths.len() > MOST_FILES {
                let message = format!("the folder has more than {MOST_FILES} policies");
                return Err(io::Error::other(message));
            }
        }
        if paths.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the folder has no policy: no file ends in .toml, .yaml or .yml",
            ));
        }
        paths.sort();
        paths.iter().map(|path| Self::read_one(path)).collect()
    }

    fn read_one(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let most = MOST_BYTES as u64 + 1;
        io::Read::read_to_end(&mut io::Read::take(fs::File::open(path)?, most), &mut bytes)?;
        Ok(Self { name: path.display().to_string(), bytes })
    }
}

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileFormat {
    Toml,
    Yaml,
}

impl FileFormat {
    fn by_ending(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// By the ending, or else by how the text begins: no TOML begins like these.
    fn of(name: &str, bytes: &[u8]) -> Self {
        let is_significant = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
        let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        Self::by_ending(name).unwrap_or_else(|| match lines.find(is_significant) {
            Some(line) if YAML_BEGINS.iter().any(|begin| line.starts_with(begin)) => Self::Yaml,
            _ => Self::Toml,
        })
    }
}

impl Policy {
    /// Parses a policy file of any format: TOML, or the YAML of envoyproxy/ratelimit or Limitador.
    /// The name is for messages, and its ending gives the format.
    ///
    /// YAML needs the feature `yaml`.
    pub fn load(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        load_as(file_name, bytes, FileScope::Whole)
    }

    /// Parses several files as one policy. A domain is in one file only, and so are the daemon's
    /// settings; a file may have nothing but those.
    pub fn load_files(files: &[PolicyFile]) -> Result<Parsed, PolicyErrors> {
        let [first, rest @ ..] = files else {
            return Err(whole_file("", 0..0, "no policy file".into(), None));
        };
        let extent = if rest.is_empty() { FileScope::Whole } else { FileScope::Part };
        let mut whole = load_as(&first.name, &first.bytes, extent);
        let mut of_rules = vec![&first.name; whole.as_ref().map_or(0, |it| it.policy.rules.len())];
        for file in rest {
            let parsed = load_as(&file.name, &file.bytes, extent);
            let rules = parsed.as_ref().map_or(0, |it| it.policy.rules.len());
            whole = joined(whole, parsed, (&file.name, &of_rules));
            of_rules.extend(std::iter::repeat_n(&file.name, rules));
        }
        let whole = whole?;
        let rules = &whole.policy.rules;
        let found: Vec<_> =
            check::check(rules).into_iter().map(|it| diagnostic(it, rules)).collect();
        let Parsed { policy, warnings, left_out } = whole;
        match found.is_empty() {
            true => Ok(Parsed::new(policy, warnings, left_out)),
            false => Err(PolicyErrors::new(found, 0)),
        }
    }
}

fn load_as(file_name: &str, bytes: &[u8], extent: FileScope) -> Result<Parsed, PolicyErrors> {
    match FileFormat::of(file_name, bytes) {
        FileFormat::Toml => parse::parse(file_name, bytes, extent),
        FileFormat::Yaml => yaml(file_name, bytes, extent),
    }
}

/// Two files as one, with the errors of both.
fn joined(
    whole: Result<Parsed, PolicyErrors>,
    next: Result<Parsed, PolicyErrors>,
    (name, of_rules): (&str, &[&String]),
) -> Result<Parsed, PolicyErrors> {
    let (mut whole, next) = match (whole, next) {
        (Ok(whole), Ok(next)) => (whole, next),
        (Ok(_), Err(errors)) | (Err(errors), Ok(_)) => return Err(errors),
        (Err(first), Err(second)) => {
            let both = first.diagnostics().iter().chain(second.diagnostics()).cloned();
            let left_out = first.left_out() + second.left_out();
            return Err(PolicyErrors::new(both.collect(), left_out));
        }
    };
    let rules = &whole.policy.rules;
    let twice = next.policy.rules.iter().find_map(|rule| {
        let index = rules.iter().position(|known| known.domain == rule.domain)?;
        Some((&rule.domain, of_rules.get(index)?))
    });
    if let Some((domain, other)) = twice {
        let message = format!("domain `{domain}` is already in `{other}`");
        let hint = "put all rules of a domain into one file".into();
        return Err(whole_file(name, 0..0, message, Some(hint)));
    }
    if next.policy.server != ServerConfig::default() {
        if whole.policy.server != ServerConfig::default() {
            let message = "another file already has a `[server]` table".into();
            let hint = "put `[server]` into one file".into();
            return Err(whole_file(name, 0..0, message, Some(hint)));
        }
        whole.policy.server = next.policy.server;
    }
    whole.policy.rules.extend(next.policy.rules);
    whole.warnings.extend::<Vec<Diagnostic>>(next.warnings);
    whole.left_out += next.left_out;
    Ok(whole)
}

#[cfg(feature = "yaml")]
fn yaml(file_name: &str, bytes: &[u8], extent: FileScope) -> Result<Parsed, PolicyErrors> {
    super::yaml::parse(file_name, bytes, extent)
}

#[cfg(not(feature = "yaml"))]
fn yaml(file_name: &str, _bytes: &[u8], _extent: FileScope) -> Result<Parsed, PolicyErrors> {
    let message = "this build does not read YAML".into();
    let hint = "build tidegate with the feature `yaml`, or write the policy in TOML".into();
    Err(whole_file(file_name, 0..0, message, Some(hint)))
}

/// How the first line of a policy in YAML begins, for files without an ending.
const YAML_BEGINS: [&[u8]; 6] = [b"---", b"- ", b"domain:", b"descriptors:", b"limits:", b"%YAML"];

/// The most files in a folder.
const MOST_FILES: usize = 10_000;
