//! The bar chart of the main rows.

use crate::contenders::Who;
use crate::results::{Results, Row};
use std::fmt::Write;

/// The rows of the chart.
const ROWS: [&str; 5] = ["hot-1t", "denied-2t", "uniform-1m-1t", "new", "memory-10000000"];

/// The bars of a row and their colours.
const BARS: [(Who, &str); 6] = [
    (Who::Growing, "#0f766e"),
    (Who::Hinted, "#14b8a6"),
    (Who::Governor, "#b45309"),
    (Who::Quota, "#7c3aed"),
    (Who::Throttlecrab, "#be123c"),
    (Who::MutexMap, "#64748b"),
];

const WIDTH: f64 = 820.0;
const LEFT: f64 = 150.0;
const LONGEST: f64 = 560.0;
const BAR: f64 = 16.0;
const STEP: f64 = 21.0;
const MARGIN: f64 = 24.0;

/// The chart of those rows that were measured.
pub fn svg(results: &Results) -> String {
    let rows: Vec<&Row> = ROWS.iter().filter_map(|id| results.row(id)).collect();
    let mut body = String::new();
    let mut top = MARGIN + 30.0;
    for row in rows {
        top = group(&mut body, row, top);
    }
    let height = top + 4.0;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"Benchmarks\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">"
    );
    let _ = writeln!(
        text,
        "<rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"#ffffff\" \
         stroke=\"#d4d4d8\"/>",
        WIDTH - 1.0,
        height - 1.0
    );
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{}\" font-size=\"13\" fill=\"#52525b\">\
         nanoseconds per decision, or bytes per key; shorter is better</text>",
        MARGIN + 10.0
    );
    text.push_str(&body);
    text.push_str("</svg>\n");
    text
}

/// Draws one row's bars from `top` on; returns where the next row starts.
fn group(body: &mut String, row: &Row, top: f64) -> f64 {
    let bars: Vec<(Who, &str, f64)> = BARS
        .iter()
        .filter_map(|&(who, colour)| row.value(who).map(|value| (who, colour, value)))
        .collect();
    let longest = bars.iter().map(|bar| bar.2).fold(f64::MIN_POSITIVE, f64::max);
    let _ = writeln!(
        body,
        "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"15\" font-weight=\"600\" \
         fill=\"#18181b\">{}</text>",
        top + 16.0,
        escaped(&row.title)
    );
    let mut y = top + 26.0;
    for (who, colour, value) in bars {
        let length = (value / longest * LONGEST).max(2.0);
        let middle = y + BAR - 4.0;
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" font-size=\"12\" text-anchor=\"end\" \
             fill=\"#3f3f46\">{}</text>",
            LEFT - 8.0,
            escaped(who.name())
        );
        let _ = writeln!(
            body,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" \
             fill=\"{colour}\"/>"
        );
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" font-size=\"12\" fill=\"#18181b\">{} {}</text>",
            LEFT + length + 6.0,
            digits(value),
            row.unit.name()
        );
        y += STEP;
    }
    y + 14.0
}

/// A value with one decimal where it matters.
fn digits(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Text escaped for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Cell;
    use crate::results::Unit;

    #[test]
    fn longest_bar_has_the_whole_width() {
        let cells = vec![Cell::single(Who::Quota, 50.0), Cell::single(Who::MutexMap, 100.0)];
        let row = Row { id: "new".into(), title: "new".into(), unit: Unit::Nanos, cells };
        let text = svg(&Results { rows: vec![row] });
        assert!(text.contains("width=\"560.0\"") && text.contains("width=\"280.0\""), "{text}");
        assert!(text.contains("Mutex&lt;HashMap&gt;"), "{text}");
    }
}
