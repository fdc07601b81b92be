//! The edits in force: all of their text, or how it differs from the text before.

use super::{ByteReader, ByteWriter, Malformed, OverlayEdit};

impl OverlayEdit {
    pub(super) fn write(&self, out: &mut ByteWriter) {
        match self {
            Self::Whole(text) => {
                out.byte(0);
                out.text(text);
            }
            Self::Part { start, end, text } => {
                out.byte(1);
                out.number(*start);
                out.number(*end);
                out.text(text);
            }
        }
    }

    pub(super) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            0 => Self::Whole(from.text()?.into()),
            1 => {
                let (start, end) = (from.number()?, from.number()?);
                Self::Part { start, end, text: from.text()?.into() }
            }
            _ => return Err(Malformed),
        })
    }
}

#[cfg(feature = "durable")]
impl OverlayEdit {
    /// How a text differs from the one before.
    pub(in crate::store) fn part(before: &str, after: &str) -> Self {
        let mut start = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
        while !after.is_char_boundary(start) || !before.is_char_boundary(start) {
            start -= 1;
        }
        let rests = (before[start..].bytes().rev(), after[start..].bytes().rev());
        let mut end = rests.0.zip(rests.1).take_while(|(a, b)| a == b).count();
        while !after.is_char_boundary(after.len() - end)
            || !before.is_char_boundary(before.len() - end)
        {
            end -= 1;
        }
        let text = after[start..after.len() - end].into();
        Self::Part { start: start as u64, end: end as u64, text }
    }

    /// The text after the edit.
    pub(in crate::store) fn applied_to(&self, before: &str) -> Option<String> {
        match self {
            Self::Whole(text) => Some(text.to_string()),
            Self::Part { start, end, text } => {
                let (start, end) = (usize::try_from(*start).ok()?, usize::try_from(*end).ok()?);
                let after = before.len().checked_sub(end).filter(|after| *after >= start)?;
                Some([before.get(..start)?, text, before.get(after..)?].concat())
            }
        }
    }

    /// How many bytes of text it has.
    pub(in crate::store) fn len(&self) -> usize {
        let (Self::Whole(text) | Self::Part { text, .. }) = self;
        text.len()
    }
}

#[cfg(all(test, feature = "durable"))]
mod tests {
    use super::OverlayEdit;

    #[test]
    fn a_part_gives_the_text_after_from_the_text_before() {
        let texts =
            ["", "a", "aa", "aaa", "äö", "äüö", "one\ntwo\n", "one\nthree\ntwo\n", "ä", "ö"];
        for before in texts {
            for after in texts {
                let part = OverlayEdit::part(before, after);
                assert_eq!(part.applied_to(before).as_deref(), Some(after), "{before} {after}");
            }
        }
        let part = OverlayEdit::part("one\ntwo\n", "one\nthree\ntwo\n");
        assert_eq!(part.len(), "three\nt".len() - 1);
        assert_eq!(part.applied_to("o"), None, "another text before");
    }
}
