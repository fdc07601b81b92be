//! Policies in YAML: the files of envoyproxy/ratelimit and of Limitador. They become rules like any
//! other, and appear nowhere else.

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
        let read = parse_as(&files, Some(YamlDialect::Envoy), FileScope::Whole, options);
        read.map(|it| it.parsed)
    }

    /// The policy of a file of Limitador. Conditions and variables may refer to the values of
    /// descriptors: equality, comparison, and several of them joined by `&&`.
    pub fn from_limitador_yaml(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        let file = PolicyFile { name: file_name.into(), bytes: bytes.into() };
        let options = YamlOptions::default();
        let read = parse_as(&[&file], Some(YamlDialect::Limitador), FileScope::Whole, options);
        read.map(|it| it.parsed)
    }
}

/// Parses files of either format.
pub(in crate::policy) fn parse(
    files: &[&PolicyFile],
    extent: FileScope,
    options: YamlOptions,
) -> Result<FileRules, PolicyErrors> {
    parse_as(files, None, extent, options)
}

fn parse_as(
    files: &[&PolicyFile],
    wanted: Option<YamlDialect>,
    extent: FileScope,
    options: YamlOptions,
) -> Result<FileRules, PolicyErrors> {
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
                    Ok(documents) => reading.read_documents(&documents, wanted),
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
    let rules = found.into_iter().map(|found| found.rule).collect();
    let settings = EngineSettings::default();
    let policy = Policy { settings, rules, takes_own_limits: false, found: None };
    let parsed = Parsed::new(policy, ServerSettings::default(), (diagnostics, left_out));
    let file = files.first().map_or("", |file| &*file.name).into();
    Ok(FileRules { file, parsed, domains })
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

    /// Reads all documents of a file, each in one of the formats.
    fn read_documents(&mut self, documents: &[Node], wanted: Option<YamlDialect>) {
        for document in documents {
            match wanted.or_else(|| dialect_of(document)) {
                Some(YamlDialect::Envoy) => self.trees.read(document, &mut self.report),
                Some(YamlDialect::Limitador) => {
                    limitador::read(document, &mut self.names, &mut self.report, &mut self.found);
                }
                None => {
                    let problem = self.report.error(document.span.clone(), "this is not a policy");
                    problem.hint = Some(
                        "a file of envoyproxy/ratelimit has `domain:` and `descriptors:`, a file of \
                         Limitador is a list of limits, or has one under `limits:`"
                            .into(),
                    );
                }
            }
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
