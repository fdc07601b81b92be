//! From cases to the text of the files.

mod cases;
mod json;
mod key;
mod script;

use json::Object;
use key::{Key, Limit, Op};

/// A limit, and the operations on one key under it.
pub(crate) struct Case {
    name: String,
    limit: Limit,
    /// The time of the next step.
    at_ns: u64,
    /// The period open at that time; quotas only.
    period: Option<(u64, Option<u64>)>,
    steps: Vec<Step>,
}

struct Step {
    at_ns: u64,
    period: Option<(u64, Option<u64>)>,
    op: Op,
}

/// The name and the text of every file.
pub(crate) fn files() -> Vec<(&'static str, String)> {
    vec![
        ("bucket.json", text(&cases::bucket())),
        ("window.json", text(&cases::window())),
        ("sliding.json", text(&cases::sliding())),
        ("cooldown.json", text(&cases::cooldown())),
        ("quota.json", text(&cases::quota())),
    ]
}

fn text(cases: &[Case]) -> String {
    let cases: Vec<String> = cases.iter().map(Case::text).collect();
    format!("[\n{}\n]\n", cases.join(",\n"))
}

impl Case {
    fn new(name: impl Into<String>, limit: Limit) -> Self {
        Self { name: name.into(), limit, at_ns: 0, period: None, steps: Vec::new() }
    }

    fn at_ns(mut self, at_ns: u64) -> Self {
        self.at_ns = at_ns;
        self
    }

    fn period(mut self, index: u64, ends_ns: Option<u64>) -> Self {
        self.period = Some((index, ends_ns));
        self
    }

    fn op(mut self, op: Op) -> Self {
        self.steps.push(Step { at_ns: self.at_ns, period: self.period, op });
        self
    }

    /// The case with the decisions of this crate.
    fn text(&self) -> String {
        let first_period = self.steps.first().and_then(|step| step.period);
        let mut key = Key::new(&self.limit, first_period);
        let mut is_whole_us = true;
        let mut lines = Vec::new();
        for Step { at_ns, period, op } in &self.steps {
            let expect = key.step(op, *at_ns, *period);
            is_whole_us &= at_ns % 1_000 == 0 && expect.is_whole_us();
            let mut line = Object::new();
            line.number("at_ns", *at_ns);
            if let Some((index, ends_ns)) = period {
                let mut period = Object::new();
                period.number("index", *index).number_or_null("ends_ns", *ends_ns);
                line.object("period", &period);
            }
            op.write(&mut line);
            if let Some(held_in) = expect.held_in() {
                line.number("held_in", held_in);
            }
            line.object("expect", &expect.object());
            lines.push(format!("      {line}"));
        }
        let mut limit = Object::new();
        self.limit.write(&mut limit);
        format!(
            "  {{\n    \"name\": {},\n    \"limit\": {limit},\n    \"whole_us\": {is_whole_us},\n    \
             \"steps\": [\n{}\n    ]\n  }}",
            json::quoted(&self.name),
            lines.join(",\n"),
        )
    }
}
