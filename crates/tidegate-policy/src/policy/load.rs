//! Loading policies in any format: TOML, or the YAML of envoyproxy/ratelimit.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::{fmt, fs, io};

use super::check;
use super::diagnostic::{Diagnostic, PolicyErrors, RawDiagnostic, Severity};
use super::parse::{self, FileScope, MOST_BYTES, whole_file};
use super::{EngineSettings, Parsed, Policy, ServerSettings, diagnostic};

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

/// The error of a policy that cannot be loaded from a path.
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// It has errors.
    Invalid(PolicyErrors),
    /// Loading failed for another reason.
    Failed {
        /// The reason.
        why: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {path}: {error}"),
            Self::Invalid(errors) => errors.fmt(f),
            Self::Failed { why } => write!(f, "cannot load the policy: {why}"),
        }
    }
}

tidegate_core::debug_as_displayed!(LoadError);

impl std::error::Error for LoadError {}

/// The files at a path, which is a file or a folder.
pub(super) fn read(path: &Path) -> io::Result<Vec<PolicyFile>> {
    // Opening a pipe would wait for a writer.
    let kind = fs::metadata(path)?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("it is neither a file nor a folder"));
    }
    PolicyFile::read(path)
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
    /// The policy in a file, or of all policy files in a folder. Its [warnings](Self::warnings) come with
    /// it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::open_with(path, YamlOptions::default()).map(|parsed| parsed.policy)
    }

    /// A policy file, or all of them in a folder, with the settings for a daemon; with options for files
    /// of envoyproxy/ratelimit.
    pub fn open_with(path: impl AsRef<Path>, options: YamlOptions) -> Result<Parsed, LoadError> {
        let path = path.as_ref();
        let unreadable = |error| LoadError::Unreadable { path: path.display().to_string(), error };
        let files = read(path).map_err(unreadable)?;
        Self::load_files_with(&files, options).map_err(LoadError::Invalid)
    }

    /// Parses a policy file of any format: TOML, or the YAML of envoyproxy/ratelimit.
    /// The name is for messages, and its ending gives the format.
    ///
    /// YAML needs the feature `yaml`.
    pub fn load(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        load_as(file_name, bytes, FileScope::Whole)
    }

    /// Parses several files as one policy. A domain is in one file only, and so are the daemon's
    /// settings; a file may have nothing but those.
    pub fn load_files(files: &[PolicyFile]) -> Result<Parsed, PolicyErrors> {
        Self::load_files_with(files, YamlOptions::default())
    }

    /// Parses several files as one policy, with options for those of envoyproxy/ratelimit, which
    /// have no place for settings. Options that are not set come from the `[server]` table.
    ///
    /// ```
    /// use tidegate::policy::{Policy, PolicyFile, YamlOptions};
    ///
    /// let file = |name: &str, key: &str| PolicyFile {
    ///     name: name.into(),
    ///     bytes: format!(
    ///         "domain: edge\ndescriptors:\n  - key: {key}\n    rate_limit: {{unit: second, \
    ///          requests_per_unit: 10}}\n"
    ///     )
    ///     .into_bytes(),
    /// };
    /// let files = [file("a.yaml", "user"), file("b.yaml", "path")];
    /// let error = Policy::load_files(&files).expect_err("the domain is in two files").to_string();
    /// assert!(error.starts_with("b.yaml:1:9: error: domain `edge` appears twice"), "{error}");
    /// assert!(error.contains("the first is at a.yaml:1:9"), "{error}");
    /// let merged = Policy::load_files_with(&files, YamlOptions::default().merge_domains(true))?;
    /// assert_eq!(merged.policy.rules().len(), 2);
    /// # Ok::<(), tidegate::policy::PolicyErrors>(())
    /// ```
    pub fn load_files_with(
        files: &[PolicyFile],
        options: YamlOptions,
    ) -> Result<Parsed, PolicyErrors> {
        if files.is_empty() {
            return Err(whole_file("", 0..0, "no policy file".into(), None));
        }
        let extent = if files.len() == 1 { FileScope::Whole } else { FileScope::Part };
        let is_yaml =
            |file: &&PolicyFile| FileFormat::of(&file.name, &file.bytes) == FileFormat::Yaml;
        let (yaml, toml): (Vec<_>, Vec<_>) = files.iter().partition(is_yaml);
        let toml = toml.into_iter().map(|file| parse::parse_part(&file.name, &file.bytes, extent));
        let toml = toml.reduce(joined);
        // The settings for files in YAML are in a file in TOML.
        let settings = toml.as_ref().and_then(|it| it.as_ref().ok());
        let options = options.or(settings.map(|it| &it.parsed));
        let yaml = (!yaml.is_empty()).then(|| yaml_rules(&yaml, extent, options));
        let Some(whole) = toml.into_iter().chain(yaml).reduce(joined) else {
            unreachable!("there is a file, in one of the formats")
        };
        let FileRules { parsed: mut whole, .. } = whole?;
        options.put_into(&mut whole);
        let rules = &whole.policy.rules;
        let found: Vec<_> =
            check::check(rules).into_iter().map(|it| diagnostic(it, rules)).collect();
        let Parsed { policy, server, warnings, left_out } = whole;
        match found.is_empty() {
            true => Ok(Parsed::new(policy, server, warnings, left_out)),
            false => Err(PolicyErrors::new(found, 0)),
        }
    }
}

/// How files of envoyproxy/ratelimit are read, where that is not in the files. What is not set
/// here comes from the `[server]` table of a file in TOML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct YamlOptions {
    merge_domains: Option<bool>,
    quota_mode: Option<bool>,
}

impl YamlOptions {
    /// Whether several files may have the same domain. Its descriptors are then those of all of
    /// them, in the order of the files; without it that is an error.
    pub const fn merge_domains(self, is_on: bool) -> Self {
        Self { merge_domains: Some(is_on), ..self }
    }

    /// Whether all descriptors are in quota mode, whatever the files say.
    pub const fn quota_mode(self, is_on: bool) -> Self {
        Self { quota_mode: Some(is_on), ..self }
    }

    fn or(self, file: Option<&Parsed>) -> Self {
        Self {
            merge_domains: self.merge_domains.or(file.map(|it| it.server.merge_domains)),
            quota_mode: self.quota_mode.or(file.map(|it| it.policy.settings.quota_mode)),
        }
    }

    pub(super) fn merges_domains(self) -> bool {
        self.merge_domains.unwrap_or(false)
    }

    pub(super) fn is_quota_mode(self) -> bool {
        self.quota_mode.unwrap_or(false)
    }

    fn put_into(self, parsed: &mut Parsed) {
        parsed.server.merge_domains = self.merges_domains();
        parsed.policy.settings.quota_mode = self.is_quota_mode();
    }
}

impl Parsed {
    /// Whether its `[server]` table says anything.
    fn has_settings(&self) -> bool {
        self.policy.settings != EngineSettings::default()
            || self.server != ServerSettings::default()
    }
}

/// The policy of some files, and where each domain is first named.
pub(super) struct FileRules {
    /// The name of the file, or of the first.
    pub(super) file: Box<str>,
    pub(super) parsed: Parsed,
    /// The error that it is, should the domain be in another file, too.
    pub(super) domains: HashMap<Box<str>, Diagnostic>,
}

/// The error of a domain that another file has, too.
pub(super) fn domain_twice(domain: &str, span: Range<usize>) -> RawDiagnostic {
    let message = format!("domain `{domain}` appears twice");
    let mut problem = RawDiagnostic::new(Severity::Error, span, message);
    problem.hint = Some(
        "put all rules of a domain into one file; files of envoyproxy/ratelimit are merged with \
         `merge_domains = true` under `[server]`, or with --merge-domains"
            .into(),
    );
    problem
}

fn load_as(file_name: &str, bytes: &[u8], extent: FileScope) -> Result<Parsed, PolicyErrors> {
    match FileFormat::of(file_name, bytes) {
        FileFormat::Toml => parse::parse(file_name, bytes, extent),
        FileFormat::Yaml => {
            let file = PolicyFile { name: file_name.into(), bytes: bytes.into() };
            yaml_rules(&[&file], extent, YamlOptions::default()).map(|it| it.parsed)
        }
    }
}

/// Two files as one, with the errors of both.
fn joined(
    whole: Result<FileRules, PolicyErrors>,
    next: Result<FileRules, PolicyErrors>,
) -> Result<FileRules, PolicyErrors> {
    let (mut whole, next) = match (whole, next) {
        (Ok(whole), Ok(next)) => (whole, next),
        (Ok(_), Err(errors)) | (Err(errors), Ok(_)) => return Err(errors),
        (Err(first), Err(second)) => {
            let both = first.diagnostics().iter().chain(second.diagnostics()).cloned();
            let left_out = first.left_out() + second.left_out();
            return Err(PolicyErrors::new(both.collect(), left_out));
        }
    };
    let twice = next.domains.iter().filter_map(|(domain, there)| {
        let Diagnostic { file, line, column, .. } = whole.domains.get(domain)?;
        let note = Some(format!("the first is at {file}:{line}:{column}"));
        let mut twice = there.clone();
        twice.note = note;
        Some(twice)
    });
    let mut twice: Vec<Diagnostic> = twice.collect();
    if !twice.is_empty() {
        twice.sort_by(|a, b| (&a.file, a.span.start).cmp(&(&b.file, b.span.start)));
        let left_out = twice.len().saturating_sub(PolicyErrors::MOST);
        twice.truncate(PolicyErrors::MOST);
        return Err(PolicyErrors::new(twice, left_out));
    }
    if next.parsed.has_settings() {
        if whole.parsed.has_settings() {
            let message = "another file already has a `[server]` table".into();
            let hint = "put `[server]` into one file".into();
            return Err(whole_file(&next.file, 0..0, message, Some(hint)));
        }
        whole.parsed.policy.settings = next.parsed.policy.settings;
        whole.parsed.server = next.parsed.server;
    }
    whole.parsed.policy.rules.extend(next.parsed.policy.rules);
    whole.parsed.warnings.extend::<Vec<Diagnostic>>(next.parsed.warnings);
    whole.parsed.left_out += next.parsed.left_out;
    whole.domains.extend(next.domains);
    Ok(whole)
}

#[cfg(feature = "yaml")]
fn yaml_rules(
    files: &[&PolicyFile],
    extent: FileScope,
    options: YamlOptions,
) -> Result<FileRules, PolicyErrors> {
    super::descriptors::yaml::parse(files, extent, options)
}

#[cfg(not(feature = "yaml"))]
fn yaml_rules(
    files: &[&PolicyFile],
    _extent: FileScope,
    _options: YamlOptions,
) -> Result<FileRules, PolicyErrors> {
    let message = "this build does not read YAML".into();
    let hint = "build tidegate with the feature `yaml`, or write the policy in TOML".into();
    let name = files.first().map_or("", |file| &*file.name);
    Err(whole_file(name, 0..0, message, Some(hint)))
}

/// How the first line of a policy in YAML begins, for files without an ending.
const YAML_BEGINS: [&[u8]; 6] = [b"---", b"- ", b"domain:", b"descriptors:", b"limits:", b"%YAML"];

/// The most files in a folder.
const MOST_FILES: usize = 10_000;
