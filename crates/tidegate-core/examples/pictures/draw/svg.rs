//! Just enough of SVG. Coordinates are tenths of a pixel, so that all of it is in integers.

use std::fmt::{self, Write};

/// A picture under construction.
pub(crate) struct Svg {
    text: String,
}

/// A length or a coordinate, in tenths of a pixel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Px(pub(crate) u64);

pub(crate) struct Rect {
    pub(crate) x: Px,
    pub(crate) y: Px,
    pub(crate) width: Px,
    pub(crate) height: Px,
}

/// Which end of a text is at its position.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A white card, so that it can be read on any background.
    pub(crate) fn new(width: u64, height: u64, label: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
             <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"#ffffff\" \
             stroke=\"#d4d4d8\"/>\n",
            width - 1,
            height - 1,
        );
        Self { text }
    }

    pub(crate) fn rect(&mut self, rect: &Rect, style: &str) {
        let Rect { x, y, width, height } = rect;
        self.line_of(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {style}/>"
        ));
    }

    pub(crate) fn path(&mut self, path: &str, style: &str) {
        self.line_of(format_args!("<path d=\"{path}\" {style}/>"));
    }

    pub(crate) fn line(&mut self, from: [Px; 2], to: [Px; 2], style: &str) {
        let ([x, y], [to_x, to_y]) = (from, to);
        self.path(&format!("M{x} {y}L{to_x} {to_y}"), style);
    }

    /// A text at a position, with its size and its weight in `style`.
    pub(crate) fn text(&mut self, at: [Px; 2], anchor: Anchor, style: &str, text: &str) {
        let [x, y] = at;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.line_of(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {style}>{text}</text>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn line_of(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

/// Whole pixels.
pub(crate) const fn px(pixels: u64) -> Px {
    Px(pixels * 10)
}
