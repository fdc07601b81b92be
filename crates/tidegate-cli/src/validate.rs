//! `tidegate validate`: checks policy files for errors.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate::policy::{Diagnostic, Matcher, Policy, Rule, Severity};

use crate::args::{ReportFormat, ValidateArgs};
use crate::diagnostics::{self, Annotation};
use crate::format;
use crate::input::{self, PolicyInputError, ReadError};
use crate::io::{Exit, Io};

pub(crate) fn run(args: &ValidateArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let mut exit = Exit::Success;
    let mut files = Vec::new();
    for path in &args.policies {
        let checked = check(path, args, io);
        exit = exit.max(checked.exit());
        match args.format {
            ReportFormat::Text => text(&checked, args.explain, io)?,
            ReportFormat::Github => github(&checked, io)?,
            ReportFormat::Json => files.push(json(&checked, args.explain)),
        }
    }
    if args.format == ReportFormat::Json {
        let all = json!({ "ok": exit == Exit::Success, "files": files });
        writeln!(io.stdout, "{all:#}")?;
    }
    Ok(exit)
}

/// A file and its findings.
struct ValidatedFile {
    name: String,
    result: Result<Findings, ReadError>,
}

struct Findings {
    /// `None` if there are errors.
    policy: Option<Policy>,
    diagnostics: Vec<Diagnostic>,
    left_out: usize,
}

/// One domain of a policy.
struct DomainSummary<'p> {
    name: &'p str,
    rules: Vec<&'p Rule>,
}

impl ValidatedFile {
    fn exit(&self) -> Exit {
        match &self.result {
            Err(_) => Exit::Error,
            Ok(findings) if findings.count(Severity::Error) > 0 => Exit::Failure,
            Ok(_) => Exit::Success,
        }
    }
}

impl Findings {
    fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|it| it.severity == severity).count()
    }
}

fn check(path: &Path, args: &ValidateArgs, io: &mut Io<'_>) -> ValidatedFile {
    let name = input::name_of(path);
    let findings = match input::policy(path, args.yaml.options(), io.stdin) {
        Ok(mut parsed) => {
            if args.strict {
                parsed.warnings.iter_mut().for_each(|it| it.severity = Severity::Error);
            }
            let (diagnostics, left_out) = (parsed.warnings, parsed.left_out);
            Findings { policy: Some(parsed.policy), diagnostics, left_out }
        }
        Err(PolicyInputError::Unreadable(why)) => return ValidatedFile { name, result: Err(why) },
        Err(PolicyInputError::Errors(errors)) => {
            let (diagnostics, left_out) = (input::diagnostics_of(&errors), errors.left_out());
            Findings { policy: None, diagnostics, left_out }
        }
    };
    ValidatedFile { name, result: Ok(findings) }
}

fn text(checked: &ValidatedFile, explain: bool, io: &mut Io<'_>) -> io::Result<()> {
    let findings = match &checked.result {
        Ok(findings) => findings,
        Err(why) => return writeln!(io.stderr, "{why}"),
    };
    for diagnostic in &findings.diagnostics {
        writeln!(io.stderr, "{diagnostic}\n")?;
    }
    if findings.left_out > 0 {
        writeln!(io.stderr, "and {} more\n", findings.left_out)?;
    }
    writeln!(io.stdout, "{}: {}", checked.name, summary(findings))?;
    if let Some(note) = findings.policy.as_ref().and_then(Policy::path_note) {
        writeln!(io.stderr, "note: {note}")?;
    }
    match &findings.policy {
        Some(policy) if explain => {
            for rule in listed(policy) {
                writeln!(io.stdout, "\n{}", wrapped(&rule.describe()))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn summary(findings: &Findings) -> String {
    let errors = findings.count(Severity::Error);
    let warnings = findings.count(Severity::Warning);
    let more = if findings.left_out > 0 { ", and more" } else { "" };
    match (&findings.policy, errors, warnings) {
        (Some(policy), 0, 0) => format!("ok, {}", size(policy)),
        (Some(policy), 0, warnings) => {
            format!("ok with {}{more}, {}", format::count(warnings, "warning"), size(policy))
        }
        (_, errors, 0) => format!("not ok, {}{more}", format::count(errors, "error")),
        (_, errors, warnings) => {
            let (errors, warnings) =
                (format::count(errors, "error"), format::count(warnings, "warning"));
            format!("not ok, {errors} and {warnings}{more}")
        }
    }
}

fn size(policy: &Policy) -> String {
    let domains = domains(policy);
    let most = domains.iter().map(DomainSummary::candidates).max().unwrap_or(0);
    format!(
        "{} in {}, at most {most} checked per request",
        format::count(listed(policy).count(), "rule"),
        format::count(domains.len(), "domain"),
    )
}

/// The rules that a file has; imported ones may need more.
fn listed(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.rules().iter().filter(|rule| !rule.is_placeholder())
}

/// The domains of a policy, in the order of their first rules.
fn domains(policy: &Policy) -> Vec<DomainSummary<'_>> {
    let mut numbers = std::collections::HashMap::new();
    let mut domains: Vec<DomainSummary<'_>> = Vec::new();
    for rule in policy.rules() {
        let name = rule.domain();
        let number = *numbers.entry(name).or_insert(domains.len());
        if number == domains.len() {
            domains.push(DomainSummary { name, rules: Vec::new() });
        }
        domains[number].rules.push(rule);
    }
    domains
}

impl DomainSummary<'_> {
    fn listed(&self) -> usize {
        self.rules.iter().filter(|rule| !rule.is_placeholder()).count()
    }

    /// The most rules that one request of the domain makes the engine evaluate.
    fn candidates(&self) -> usize {
        Matcher::new(self.rules.iter().copied()).worst_case().candidates()
    }
}

fn github(checked: &ValidatedFile, io: &mut Io<'_>) -> io::Result<()> {
    match &checked.result {
        Err(why) => writeln!(io.stdout, "{}", diagnostics::unreadable_github(why)),
        Ok(findings) => {
            for diagnostic in &findings.diagnostics {
                writeln!(io.stdout, "{}", Annotation::of(diagnostic).github())?;
            }
            writeln!(io.stderr, "{}: {}", checked.name, summary(findings))
        }
    }
}

fn json(checked: &ValidatedFile, explain: bool) -> Value {
    let mut file = Map::new();
    let mut set = |name: &str, value: Value| file.insert(name.into(), value);
    set("file", json!(checked.name));
    set("ok", json!(checked.exit() == Exit::Success));
    let findings = match &checked.result {
        Ok(findings) => findings,
        Err(why) => {
            set("diagnostics", json!([diagnostics::unreadable_json(why)]));
            return Value::Object(file);
        }
    };
    if let Some(policy) = &findings.policy {
        set("rules", json!(listed(policy).count()));
        set("note", json!(policy.path_note()));
        let domain = |it: &DomainSummary<'_>| json!({ "name": it.name, "rules": it.listed(), "candidates": it.candidates() });
        set("domains", domains(policy).iter().map(domain).collect());
        if explain {
            let description = |rule: &Rule| {
                let (domain, name) = (rule.domain(), rule.name());
                json!({ "domain": domain, "rule": name, "description": rule.describe() })
            };
            set("explained", listed(policy).map(description).collect());
        }
    }
    set("diagnostics", findings.diagnostics.iter().map(diagnostics::json).collect());
    set("left_out", json!(findings.left_out));
    Value::Object(file)
}

/// The text wrapped to 80 characters and indented.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::from("  "), 2);
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if width + length > 80 && width > 2 {
            lines.truncate(lines.trim_end().len());
            lines += "\n  ";
            width = 2;
        }
        lines += word;
        width += word.chars().count();
    }
    lines
}
