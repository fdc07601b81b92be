//! Charts of traces.

use super::svg::{Anchor, Px, Rect, Svg, px};
use super::trace::{Arrival, Trace};

/// One limit: its arrivals above, what remains below.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) level_max: u64,
    /// The meaning of dashed lines, if there are any.
    pub(crate) dashes: Option<&'static str>,
}

/// A stretch of time with a text.
pub(crate) struct Bracket {
    pub(crate) from_milli: u64,
    pub(crate) to_milli: u64,
    pub(crate) text: String,
}

/// Several limits, one row each.
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    /// Length of the stretch whose busiest example is counted.
    pub(crate) span_milli: u64,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) detail: &'static str,
    pub(crate) trace: Trace,
}

impl Chart {
    pub(crate) fn dashes(self, name: &'static str) -> Self {
        Self { dashes: Some(name), ..self }
    }

    pub(crate) fn draw(&self, trace: &Trace, brackets: &[Bracket]) -> String {
        let label = format!(
            "{}. {} of {} requests admitted.",
            self.title,
            trace.admitted(),
            trace.arrivals.len()
        );
        let mut svg = Svg::new(WIDTH, 270, &label);
        let axis = Axis { left: px(86), width_px: 650, bar: BAR, length_milli: trace.length_milli };
        svg.text([px(24), px(32)], Anchor::Start, TITLE, self.title);
        legend(&mut svg, px(28), self.dashes);
        for bracket in brackets {
            axis.bracket(&mut svg, bracket, px(74));
        }
        self.level(&mut svg, &axis, trace);
        for &edge in trace.edges_milli.iter().filter(|&&edge| edge < trace.length_milli) {
            svg.line([axis.x(edge), px(82)], [axis.x(edge), px(230)], DASHED);
        }
        axis.arrivals(&mut svg, &trace.arrivals, px(122));
        svg.text([px(24), px(110)], Anchor::Start, SMALL, "requests");
        svg.text([px(24), px(186)], Anchor::Start, SMALL, "left");
        axis.times(&mut svg, px(230), trace.unit);
        svg.finish()
    }

    /// The units left, as an area of steps.
    fn level(&self, svg: &mut Svg, axis: &Axis, trace: &Trace) {
        let (top, bottom) = (px(142), px(230));
        let y = |left: u64| {
            Px(bottom.0 - (bottom.0 - top.0) * left.min(self.level_max) / self.level_max)
        };
        let mut steps = String::new();
        for level in &trace.levels {
            let verb = if steps.is_empty() { 'M' } else { 'H' };
            let x = axis.x(level.since_milli);
            if verb == 'M' {
                steps = format!("M{x} {}", y(level.left));
            } else {
                steps += &format!("H{x}V{}", y(level.left));
            }
        }
        let right = axis.x(trace.length_milli);
        svg.path(
            &format!("{steps}H{right}V{bottom}H{}Z", axis.left),
            "fill=\"#dbeafe\" fill-opacity=\"0.8\"",
        );
        svg.path(
            &format!("{steps}H{right}"),
            "fill=\"none\" stroke=\"#1d4ed8\" stroke-width=\"1.5\"",
        );
        for value in [0, self.level_max] {
            let at = [Px(axis.left.0 - 60), Px(y(value).0 + 40)];
            svg.text(at, Anchor::End, SMALL, &value.to_string());
        }
    }
}

impl Comparison {
    pub(crate) fn draw(&self, rows: &[Row]) -> String {
        let bottom = 104 + ROW_PX * (rows.len() as u64 - 1);
        let height = bottom + 40;
        let mut svg = Svg::new(WIDTH, height, self.title);
        svg.text([px(24), px(32)], Anchor::Start, TITLE, self.title);
        legend(&mut svg, px(28), Some("window edge"));
        let heads = [[px(636), px(56)], [px(736), px(56)]];
        svg.text(heads[0], Anchor::End, SMALL, "admitted");
        let span = format!("busiest {} s", self.span_milli / 1_000);
        svg.text(heads[1], Anchor::End, SMALL, &span);
        let length_milli = rows.first().map_or(1, |row| row.trace.length_milli);
        let axis = Axis { left: px(160), width_px: 410, bar: Px(26), length_milli };
        for (index, row) in (0..).zip(rows) {
            let base = 104 + ROW_PX * index;
            svg.text([px(24), px(base - 18)], Anchor::Start, NAME, row.name);
            svg.text([px(24), px(base - 2)], Anchor::Start, SMALL, row.detail);
            for &edge in row.trace.edges_milli.iter().filter(|&&edge| edge < length_milli) {
                svg.line([axis.x(edge), px(base - 36)], [axis.x(edge), px(base)], DASHED);
            }
            axis.arrivals(&mut svg, &row.trace.arrivals, px(base));
            let admitted = format!("{} of {}", row.trace.admitted(), row.trace.arrivals.len());
            svg.text([heads[0][0], px(base - 9)], Anchor::End, NUMBER, &admitted);
            let busiest = row.trace.busiest(self.span_milli).1.to_string();
            svg.text([heads[1][0], px(base - 9)], Anchor::End, NUMBER, &busiest);
        }
        axis.times(&mut svg, px(bottom), "s");
        svg.finish()
    }
}

/// The axis of time.
struct Axis {
    left: Px,
    width_px: u64,
    /// The width of an arrival.
    bar: Px,
    length_milli: u64,
}

impl Axis {
    fn x(&self, at_milli: u64) -> Px {
        Px(self.left.0 + at_milli.min(self.length_milli) * self.width_px * 10 / self.length_milli)
    }

    /// Admitted ones are tall and full, denied ones short and hollow.
    fn arrivals(&self, svg: &mut Svg, arrivals: &[Arrival], base: Px) {
        svg.line([self.left, base], [self.x(self.length_milli), base], AXIS);
        for arrival in arrivals {
            let (height, style) =
                if arrival.is_admitted { (px(30), FULL) } else { (px(16), HOLLOW) };
            let x = Px(self.x(arrival.at_milli).0 - self.bar.0 / 2);
            svg.rect(&Rect { x, y: Px(base.0 - height.0), width: self.bar, height }, style);
        }
    }

    fn bracket(&self, svg: &mut Svg, bracket: &Bracket, y: Px) {
        let (from, to) = (self.x(bracket.from_milli), self.x(bracket.to_milli));
        let [from, to] = [Px(from.0 + 10), Px(to.0 - 10)];
        let end = Px(y.0 + 50);
        let path = format!("M{from} {end}V{y}H{to}V{end}");
        svg.path(&path, "fill=\"none\" stroke=\"#52525b\"");
        let (x, anchor) = if width_px(&bracket.text) * 10 > to.0 - from.0 {
            (from, Anchor::Start)
        } else {
            (Px(from.0.midpoint(to.0)), Anchor::Middle)
        };
        svg.text([x, Px(y.0 - 60)], anchor, SMALL, &bracket.text);
    }

    fn times(&self, svg: &mut Svg, y: Px, unit: &str) {
        svg.line([self.left, y], [self.x(self.length_milli), y], AXIS);
        let units = self.length_milli / 1_000;
        let step = if units > 24 { 12 } else { 5 };
        for time in (0..=units).step_by(step) {
            let x = self.x(time * 1_000);
            svg.line([x, y], [x, Px(y.0 + 50)], AXIS);
            let text = format!("{time} {unit}");
            svg.text([x, Px(y.0 + 190)], Anchor::Middle, SMALL, &text);
        }
    }
}

/// The legend, at the right of the title.
fn legend(svg: &mut Svg, y: Px, dashes: Option<&str>) {
    let bar = |x, height: Px| Rect { x, y: Px(y.0 + 50 - height.0), width: BAR, height };
    svg.rect(&bar(px(578), px(15)), FULL);
    svg.text([px(588), Px(y.0 + 40)], Anchor::Start, SMALL, "admitted");
    svg.rect(&bar(px(668), px(10)), HOLLOW);
    svg.text([px(678), Px(y.0 + 40)], Anchor::Start, SMALL, "denied");
    if let Some(name) = dashes {
        let x = px(550 - width_px(name));
        svg.line([x, Px(y.0 - 100)], [x, Px(y.0 + 50)], DASHED);
        svg.text([px(560), Px(y.0 + 40)], Anchor::End, SMALL, name);
    }
}

/// The approximate width of a small text: no font is much wider.
fn width_px(text: &str) -> u64 {
    text.chars().count() as u64 * 7
}

const WIDTH: u64 = 760;
const ROW_PX: u64 = 46;
const BAR: Px = Px(44);

const TITLE: &str = "font-size=\"15\" font-weight=\"600\" fill=\"#18181b\"";
const NAME: &str = "font-size=\"13\" font-weight=\"600\" fill=\"#18181b\"";
const NUMBER: &str = "font-size=\"13\" fill=\"#18181b\"";
const SMALL: &str = "font-size=\"12\" fill=\"#52525b\"";
const AXIS: &str = "stroke=\"#a1a1aa\" fill=\"none\"";
const DASHED: &str = "stroke=\"#71717a\" stroke-dasharray=\"4 3\" fill=\"none\"";
const FULL: &str = "fill=\"#15803d\"";
const HOLLOW: &str = "fill=\"#ffffff\" stroke=\"#b91c1c\" stroke-width=\"1.2\"";
