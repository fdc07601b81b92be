//! Policies in YAML: the files of envoyproxy/ratelimit and of Limitador. They become rules like any
//! other, and appear nowhere else.

use std::collections::HashSet;

use super::check;
use super::diagnostic::{PolicyErrors, Severity, Source};
use super::parse::diagnostic_sink::DiagnosticSink;
use super::parse::{FileScope, readable_text, whole_file};
use super::representable;
use super::{Parsed, Policy, Rule, ServerConfig, diagnostic};
use names::UniqueNames;
use node::{Node, NodeValue};

mod cel;
mod envoy;
mod fields;
mod limitador;
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
    pub fn from_envoy_yaml(files: &[super::PolicyFile]) -> Result<Parsed, PolicyErrors> {
        for file in files {
            parse_as(&file.name, &file.bytes, Some(YamlDialect::Envoy), FileScope::Part)?;
        }
        Self::load_files(files)
    }

    /// The policy of a file of Limitador. Conditions and variables may refer to the values of
    /// descriptors: equality, comparison, and several of them joined by `&&`.
    pub fn from_limitador_yaml(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        parse_as(file_name, bytes, Some(YamlDialect::Limitador), FileScope::Whole)
    }
}

/// Parses a file of either format.
pub(super) fn parse(
    file_name: &str,
    bytes: &[u8],
    extent: FileScope,
) -> Result<Parsed, PolicyErrors> {
    parse_as(file_name, bytes, None, extent)
}

fn parse_as(
    file_name: &str,
    bytes: &[u8],
    wanted: Option<YamlDialect>,
    extent: FileScope,
) -> Result<Parsed, PolicyErrors> {
    if bytes.len() > MOST_BYTES {
        let message = format!("the file has more than {MOST_BYTES} bytes");
        return Err(whole_file(file_name, 0..0, message, Some("split it".into())));
    }
    let (text, skipped) = readable_text(file_name, bytes)?;
    let source = Source::new(file_name, text, skipped);
    let mut report = DiagnosticSink::default();
    let mut found = Vec::new();
    match node::read(text) {
        Err(error) => {
            report.error(error.span, error.message).hint = error.hint;
        }
        Ok(documents) => read_documents(&documents, wanted, &mut report, &mut found),
    }
    check_rules(&found, extent, &mut report);
    let has_errors = report.has_errors();
    let (mut problems, left_out) = report.into_parts();
    problems.sort_by_key(|problem| problem.span.start);
    let left_out = left_out + problems.len().saturating_sub(PolicyErrors::MOST);
    problems.truncate(PolicyErrors::MOST);
    let diagnostics = problems.into_iter().map(|problem| source.diagnostic(problem)).collect();
    if has_errors {
        return Err(PolicyErrors::new(diagnostics, left_out));
    }
    let rules = found.into_iter().map(|found| found.rule).collect();
    let server = ServerConfig::default();
    let policy = Policy { server, rules, takes_own_limits: false, found: None };
    Ok(Parsed::new(policy, diagnostics, left_out))
}

/// The rules of all documents, each in one of the formats.
fn read_documents(
    documents: &[Node],
    wanted: Option<YamlDialect>,
    report: &mut DiagnosticSink,
    found: &mut Vec<ImportedRule>,
) {
    let (mut domains, mut names) = (HashSet::new(), UniqueNames::default());
    for document in documents {
        let dialect = wanted.or_else(|| dialect_of(document));
        match dialect {
            Some(YamlDialect::Envoy) => {
                envoy::read(document, (&mut domains, &mut names), report, found);
            }
            Some(YamlDialect::Limitador) => limitador::read(document, &mut names, report, found),
            None => {
                let problem = report.error(document.span.clone(), "this is not a policy");
                problem.hint = Some(
                    "a file of envoyproxy/ratelimit has `domain:` and `descriptors:`, a file of \
                     Limitador is a list of limits, or has one under `limits:`"
                        .into(),
                );
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
