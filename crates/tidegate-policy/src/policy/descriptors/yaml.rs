//! Policies in YAML: the files of envoyproxy/ratelimit, which become rules like any other, and those of
//! Limitador, which are converted once. They appear nowhere else.

use std::collections::HashMap;

use crate::policy::check;
use crate::policy::diagnostic::{Diagnostic, PolicyErrors, RawDiagnostic, Severity, Source};
use crate::policy::load::{FileRules, PolicyFile, YamlOptions, domain_twice};
use crate::policy::parse::diagnostic_sink::DiagnosticSink;
use crate::policy::parse::{FileScope, readable_text, whole_file};
use crate::policy::representable;
use crate::policy::{EngineSettings, Parsed, Policy, Rule, ServerSettings, diagnostic};
use envoy::DomainTrees;
use names::UniqueNames;
use node::{Node, NodeValue};

mod cel;
mod envoy;
mod fields;
mod limitador;
mod metadata;
mod names;
mod node;
mod number;

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum YamlDialect {
    Envoy,
    Limitador,
}

/// A rule, and the part of the file that it comes from.
struct ImportedRule {
    rule: Rule,
    span: std::ops::Range<usize>,
}

impl Policy {
    /// The policy of files of envoyproxy/ratelimit, one domain each (or several, as documents).
    /// They behave as they do there: windows aligned to the epoch, denied requests charged too.
    ///
    /// ```
    /// use tidegate::policy::{Policy, PolicyFile};
    ///
    /// let file = PolicyFile {
    ///     name: "edge.yaml".into(),
    ///     bytes: b"domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit:\n      \
    ///         unit: second\n      requests_per_unit: 10\n"
    ///         .to_vec(),
    /// };
    /// let parsed = Policy::from_envoy_yaml(&[file])?;
    /// assert_eq!(parsed.policy.rules()[0].name(), "remote_address");
    /// # Ok::<(), tidegate::policy::PolicyErrors>(())
    /// ```
    pub fn from_envoy_yaml(files: &[PolicyFile]) -> Result<Parsed, PolicyErrors> {
        let files: Vec<_> = files.iter().collect();
        let options = YamlOptions::default();
        let read = parse_as(&files, YamlDialect::Envoy, FileScope::Whole, options);
        read.map(|it| it.rules.parsed)
    }

    /// A file of Limitador as a policy in TOML that decides the same. A comment before each rule has
    /// the position of its limit in the file.
    ///
    /// Conditions and variables may refer to the values of descriptors: equality, comparison, and
    /// several of them joined by `&&`. A limit that cannot be expressed is an error.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let limits = b"- {namespace: shop, max_value: 10, seconds: 60, variables: [user]}";
    /// let policy = Policy::from_toml(&Policy::limitador_to_toml("limits.yaml", limits)?)?;
    /// assert!(policy.rules().iter().all(|rule| rule.domain() == "shop"));
    /// # Ok::<(), tidegate::policy::PolicyErrors>(())
    /// ```
    pub fn limitador_to_toml(file_name: &str, bytes: &[u8]) -> Result<String, PolicyErrors> {
        let file = PolicyFile { name: file_name.into(), bytes: bytes.into() };
        let options = YamlOptions::default();
        let read = parse_as(&[&file], YamlDialect::Limitador, FileScope::Whole, options)?;
        let rules = read.rules.parsed.policy.rules;
        let tables = rules.iter().zip(&read.origins).map(|(rule, origin)| {
            let what = match rule.is_placeholder() {
                true if rule.excludes_later_descriptors() => "only the first descriptor of a call",
                true => "requests that the limit leaves out",
                false => "the limit",
            };
            format!("# {origin}: {what}\n{}", rule.to_toml())
        });
        Ok(tables.collect::<Vec<_>>().join("\n"))
    }
}

/// Parses files of envoyproxy/ratelimit.
pub(in crate::policy) fn parse(
    files: &[&PolicyFile],
    extent: FileScope,
    options: YamlOptions,
) -> Result<FileRules, PolicyErrors> {
    parse_as(files, YamlDialect::Envoy, extent, options).map(|it| it.rules)
}

/// The rules of files, and where each of them comes from.
struct ImportedFiles {
    rules: FileRules,
    /// The position of each rule of Limitador's files.
    origins: Vec<String>,
}

fn parse_as(
    files: &[&PolicyFile],
    dialect: YamlDialect,
    extent: FileScope,
    options: YamlOptions,
) -> Result<ImportedFiles, PolicyErrors> {
    let mut reading = Reading::new(options);
    let (mut sources, mut unreadable) = (Sources::default(), Vec::new());
    for file in files {
        match text_of(file) {
            Err(errors) => unreadable.extend_from_slice(errors.diagnostics()),
            Ok((text, skipped)) => {
                let base = sources.add(&file.name, text, skipped);
                match node::read(text, base) {
                    Err(error) => {
                        reading.report.error(error.span, error.message).hint = error.hint;
                    }
                    Ok(documents) => reading.read_documents(&documents, dialect),
                }
            }
        }
    }
    let Reading { trees, mut names, mut report, mut found } = reading;
    let domains = trees.build(&mut names, &mut report, &mut found);
    check_rules(&found, extent, &mut report);
    let has_errors = report.has_errors() || !unreadable.is_empty();
    let (mut problems, left_out) = report.into_parts();
    problems.sort_by_key(|problem| problem.span.start);
    let left_out = left_out + problems.len().saturating_sub(PolicyErrors::MOST);
    problems.truncate(PolicyErrors::MOST);
    let found_there = problems.into_iter().map(|problem| sources.diagnostic(problem));
    let diagnostics: Vec<_> = unreadable.into_iter().chain(found_there).collect();
    if has_errors {
        return Err(PolicyErrors::new(diagnostics, left_out));
    }
    let domains = domains.into_iter().map(|(domain, span)| {
        let place = sources.diagnostic(domain_twice(&domain, span));
        (domain.into(), place)
    });
    let domains = if extent == FileScope::Part { domains.collect() } else { HashMap::new() };
    let origin = |found: &ImportedRule| {
        let (base, source) = sources.file(found.span.start)?;
        Some(source.position(found.span.start - base))
    };
    let origins = match dialect {
        YamlDialect::Envoy => Vec::new(),
        YamlDialect::Limitador => found.iter().map(|it| origin(it).unwrap_or_default()).collect(),
    };
    let rules = found.into_iter().map(|found| found.rule).collect();
    let settings = EngineSettings::default();
    let policy = Policy { settings, rules, takes_own_limits: false, found: None };
    let parsed = Parsed::new(policy, ServerSettings::default(), diagnostics, left_out);
    let file = files.first().map_or("", |file| &*file.name).into();
    Ok(ImportedFiles { rules: FileRules { file, parsed, domains }, origins })
}

/// The text of a file, and how many bytes in front of it are not part of it.
fn text_of(file: &PolicyFile) -> Result<(&str, usize), PolicyErrors> {
    if file.bytes.len() > MOST_BYTES {
        let message = format!("the file has more than {MOST_BYTES} bytes");
        return Err(whole_file(&file.name, 0..0, message, Some("split it".into())));
    }
    readable_text(&file.name, &file.bytes)
}

/// Several files, as if they were one text: the spans of each begin at a base of its own.
#[derive(Default)]
struct Sources<'a> {
    files: Vec<(usize, Source<'a>)>,
    next_base: usize,
}

impl<'a> Sources<'a> {
    /// Adds a file, and returns its base.
    fn add(&mut self, name: &str, text: &'a str, skipped: usize) -> usize {
        let base = self.next_base;
        self.files.push((base, Source::new(name, text, skipped)));
        // The end of a file is not the start of the next one.
        self.next_base = base + text.len() + 1;
        base
    }

    fn file(&self, at: usize) -> Option<(usize, &Source<'a>)> {
        let index = self.files.partition_point(|(base, _)| *base <= at).checked_sub(1)?;
        self.files.get(index).map(|(base, source)| (*base, source))
    }

    fn diagnostic(&self, mut problem: RawDiagnostic) -> Diagnostic {
        let note = problem.note.take().and_then(|note| {
            let (base, source) = self.file(note.span.start)?;
            Some(format!("{} at {}", note.text, source.position(note.span.start - base)))
        });
        let mut diagnostic = match self.file(problem.span.start) {
            None => Source::new("", "", 0).diagnostic(problem),
            Some((base, source)) => {
                problem.span = problem.span.start - base..problem.span.end.saturating_sub(base);
                source.diagnostic(problem)
            }
        };
        diagnostic.note = note;
        diagnostic
    }
}

/// What was read of the files so far.
struct Reading {
    trees: DomainTrees,
    names: UniqueNames,
    report: DiagnosticSink,
    found: Vec<ImportedRule>,
}

impl Reading {
    fn new(options: YamlOptions) -> Self {
        Self {
            trees: DomainTrees::new(options),
            names: UniqueNames::default(),
            report: DiagnosticSink::default(),
            found: Vec::new(),
        }
    }

    /// Reads all documents of a file, which has to be in this format.
    fn read_documents(&mut self, documents: &[Node], dialect: YamlDialect) {
        for document in documents {
            let (message, hint) = match (dialect_of(document), dialect) {
                (Some(YamlDialect::Envoy), YamlDialect::Envoy) => {
                    self.trees.read(document, &mut self.report);
                    continue;
                }
                (_, YamlDialect::Limitador) => {
                    limitador::read(document, &mut self.names, &mut self.report, &mut self.found);
                    continue;
                }
                (Some(YamlDialect::Limitador), YamlDialect::Envoy) => (
                    "this is a file of Limitador",
                    "convert it once: `tidegate import limitador FILE > policy.toml`",
                ),
                (None, YamlDialect::Envoy) => (
                    "this is not a policy",
                    "a file of envoyproxy/ratelimit has `domain:` and `descriptors:`",
                ),
            };
            self.report.error(document.span.clone(), message).hint = Some(hint.into());
        }
    }
}

fn dialect_of(document: &Node) -> Option<YamlDialect> {
    match &*document.value {
        NodeValue::List(_) => Some(YamlDialect::Limitador),
        NodeValue::Map(_) if document.get("limits").is_some() => Some(YamlDialect::Limitador),
        NodeValue::Map(_)
            if document.get("domain").is_some() || document.get("descriptors").is_some() =>
        {
            Some(YamlDialect::Envoy)
        }
        _ => None,
    }
}

/// Reports errors of the rules, where they come from.
fn check_rules(found: &[ImportedRule], extent: FileScope, report: &mut DiagnosticSink) {
    if report.has_errors() {
        return;
    }
    let rules: Vec<Rule> = found.iter().map(|found| found.rule.clone()).collect();
    if rules.is_empty() && extent == FileScope::Part {
        return;
    }
    if rules.is_empty() {
        let problem = report.error(0..0, "the file has no limit, so nothing would be limited");
        problem.hint =
            Some("give a descriptor a `rate_limit`, or a list of limits an entry".into());
        return;
    }
    for finding in check::check(&rules) {
        let span = finding.rule.and_then(|rule| found.get(rule)).map(|it| it.span.clone());
        let diagnostic = diagnostic(finding, &rules);
        debug_assert_eq!(diagnostic.severity, Severity::Error);
        report.error(span.unwrap_or(0..0), diagnostic.message).hint = diagnostic.hint;
    }
    for found in found {
        if let Some(message) = representable::problem(&found.rule) {
            report.error(found.span.clone(), message);
        }
    }
}

/// The largest file that is parsed: its nodes take about twenty times as much memory.
const MOST_BYTES: usize = 4 << 20;
