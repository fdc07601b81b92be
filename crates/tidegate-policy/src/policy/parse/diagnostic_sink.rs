use std::ops::Range;

use crate::policy::diagnostic::{RawDiagnostic, Severity};

/// Collects the diagnostics of a file.
#[derive(Debug, Default)]
pub(crate) struct DiagnosticSink {
    problems: Vec<RawDiagnostic>,
    errors: usize,
    left_out: usize,
    /// The last diagnostic beyond the bound.
    dropped: Option<RawDiagnostic>,
}

impl DiagnosticSink {
    /// Adds an error, to which a hint can be added.
    pub(crate) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut RawDiagnostic {
        self.push(RawDiagnostic::new(Severity::Error, span, message.into()))
    }

    pub(crate) fn push(&mut self, problem: RawDiagnostic) -> &mut RawDiagnostic {
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.problems.len() >= MOST_KEPT {
            self.left_out += 1;
            return self.dropped.insert(problem);
        }
        self.problems.push(problem);
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }

    /// How many errors there are so far.
    pub(crate) const fn errors(&self) -> usize {
        self.errors
    }

    pub(crate) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The diagnostics, and how many more there were.
    pub(crate) fn into_parts(self) -> (Vec<RawDiagnostic>, usize) {
        (self.problems, self.left_out)
    }
}

/// Bounds the memory for a file full of mistakes.
const MOST_KEPT: usize = 10_000;
