//! `tidegate test`: runs test cases against a policy.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate::policy::{Diagnostic, Policy, Severity};

use crate::args::{ReportFormat, TestArgs};
use crate::cases::Cases;
use crate::diagnostics::{self, Annotation};
use crate::format;
use crate::input::{self, PolicyInputError, ReadError};
use crate::io::{Exit, Io};
use crate::simulator;
use outcome::CaseOutcome;

mod outcome;

pub(crate) fn run(args: &TestArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let files: Vec<TestRun> = match input::policy(&args.policy, args.yaml.options(), io.stdin) {
        Ok(parsed) => {
            simulator::note_enforced(&parsed.policy, io)?;
            args.cases.iter().map(|path| run_file(path, &parsed.policy, io)).collect()
        }
        Err(why) => vec![TestRun { name: input::name_of(&args.policy), result: Err(why.into()) }],
    };
    let exit = files.iter().map(TestRun::exit).max().unwrap_or(Exit::Success);
    match args.format {
        ReportFormat::Text => files.iter().try_for_each(|file| file.text(io))?,
        ReportFormat::Github => files.iter().try_for_each(|file| file.github(io))?,
        ReportFormat::Json => {
            let [passed, failed] =
                [true, false].map(|is| files.iter().map(|it| it.count(is)).sum());
            let (passed, failed): (usize, usize) = (passed, failed);
            let files: Vec<_> = files.iter().map(TestRun::json).collect();
            let ok = exit == Exit::Success;
            let all = json!({ "ok": ok, "passed": passed, "failed": failed, "files": files });
            writeln!(io.stdout, "{all:#}")?;
        }
    }
    Ok(exit)
}

/// The result of a test file; or of the policy, if that is invalid.
struct TestRun {
    name: String,
    result: Result<CaseResults, NotRun>,
}

/// The outcomes of the cases that were run.
struct CaseResults {
    outcomes: Vec<CaseOutcome>,
    warnings: Vec<Diagnostic>,
}

enum NotRun {
    Unreadable(ReadError),
    Errors { diagnostics: Vec<Diagnostic>, left_out: usize },
}

impl From<PolicyInputError> for NotRun {
    fn from(why: PolicyInputError) -> Self {
        match why {
            PolicyInputError::Unreadable(why) => Self::Unreadable(why),
            PolicyInputError::Errors(errors) => Self::Errors {
                diagnostics: input::diagnostics_of(&errors),
                left_out: errors.left_out(),
            },
        }
    }
}

/// Runs the cases of a file.
fn run_file(path: &Path, policy: &Policy, io: &mut Io<'_>) -> TestRun {
    let name = input::name_of(path);
    let read = input::read(path, io.stdin).map_err(NotRun::Unreadable);
    let cases = read.and_then(|input| {
        Cases::parse(&input, policy).map_err(|errors| NotRun::Errors {
            diagnostics: errors.diagnostics,
            left_out: errors.left_out,
        })
    });
    let result = cases.map(|Cases { cases, warnings }| CaseResults {
        outcomes: outcome::run(cases, policy),
        warnings,
    });
    TestRun { name, result }
}

impl TestRun {
    fn exit(&self) -> Exit {
        match &self.result {
            Err(_) => Exit::Error,
            Ok(_) if self.count(false) > 0 => Exit::Failure,
            Ok(_) => Exit::Success,
        }
    }

    /// The number of cases that passed, or failed.
    fn count(&self, passed: bool) -> usize {
        let outcomes = self.result.as_ref().map_or(&[][..], |ran| &ran.outcomes);
        outcomes.iter().filter(|outcome| outcome.passed() == passed).count()
    }

    fn summary(&self) -> String {
        match self.count(false) {
            0 => format!("{}: ok, {} passed", self.name, format::count(self.count(true), "case")),
            failed => format!("{}: {failed} failed, {} passed", self.name, self.count(true)),
        }
    }

    fn text(&self, io: &mut Io<'_>) -> io::Result<()> {
        match &self.result {
            Err(NotRun::Unreadable(why)) => writeln!(io.stderr, "{why}"),
            Err(NotRun::Errors { diagnostics, left_out }) => {
                for diagnostic in diagnostics {
                    writeln!(io.stderr, "{diagnostic}\n")?;
                }
                if *left_out > 0 {
                    writeln!(io.stderr, "and {left_out} more\n")?;
                }
                let errors = format::count(diagnostics.len() + left_out, "error");
                writeln!(io.stderr, "{}: {errors}; no case was run", self.name)
            }
            Ok(CaseResults { outcomes, warnings }) => {
                for warning in warnings {
                    writeln!(io.stderr, "{warning}\n")?;
                }
                for outcome in outcomes {
                    if let Some(problem) = &outcome.problem {
                        let (line, column) =
                            (outcome.case.position.line, outcome.case.position.column);
                        let title = outcome.title();
                        let name = &self.name;
                        writeln!(io.stdout, "{name}:{line}:{column}: FAILED {title}: {problem}")?;
                    }
                }
                writeln!(io.stdout, "{}", self.summary())
            }
        }
    }

    fn github(&self, io: &mut Io<'_>) -> io::Result<()> {
        match &self.result {
            Err(NotRun::Unreadable(why)) => {
                writeln!(io.stdout, "{}", diagnostics::unreadable_github(why))
            }
            Err(NotRun::Errors { diagnostics, .. }) => {
                let mut notes = diagnostics.iter().map(Annotation::of);
                notes.try_for_each(|note| writeln!(io.stdout, "{}", note.github()))
            }
            Ok(CaseResults { outcomes, warnings }) => {
                for warning in warnings {
                    writeln!(io.stdout, "{}", Annotation::of(warning).github())?;
                }
                for outcome in outcomes {
                    if let Some(problem) = &outcome.problem {
                        let message = format!("{}: {problem}", outcome.title());
                        let position =
                            Some((outcome.case.position.line, outcome.case.position.column));
                        let (severity, file) = (Severity::Error, &*self.name);
                        let note =
                            Annotation { severity, file, position, message: &message, hint: None };
                        writeln!(io.stdout, "{}", note.github())?;
                    }
                }
                writeln!(io.stderr, "{}", self.summary())
            }
        }
    }

    fn json(&self) -> Value {
        let mut json = Map::new();
        json.insert("file".into(), json!(self.name));
        json.insert("ok".into(), json!(self.exit() == Exit::Success));
        json.insert("passed".into(), json!(self.count(true)));
        json.insert("failed".into(), json!(self.count(false)));
        let (cases, found): (Vec<Value>, Vec<Value>) = match &self.result {
            Err(NotRun::Unreadable(why)) => (Vec::new(), vec![diagnostics::unreadable_json(why)]),
            Err(NotRun::Errors { diagnostics, .. }) => {
                (Vec::new(), diagnostics.iter().map(diagnostics::json).collect())
            }
            Ok(CaseResults { outcomes, warnings }) => (
                outcomes.iter().map(CaseOutcome::json).collect(),
                warnings.iter().map(diagnostics::json).collect(),
            ),
        };
        json.insert("cases".into(), Value::Array(cases));
        json.insert("diagnostics".into(), Value::Array(found));
        Value::Object(json)
    }
}
