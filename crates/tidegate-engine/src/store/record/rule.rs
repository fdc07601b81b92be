//! The history of a rule's limits in a record: all of it, or what an edit has added.

use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::Calendar;
use tidegate_policy::policy::{Condition, Effective, Pattern, Periods};

use super::{ByteReader, ByteWriter, Malformed, read_any_limit, read_time, time, write_any_limit};
use crate::history::{Keys, OverrideEnd, RuleHistory, Span, Version};
use crate::periods::{PeriodClock, Times};

/// Versions and spans of a rule.
#[derive(Clone, Debug)]
pub(in crate::store) struct RuleImage {
    family: u64,
    /// How many versions, and spans, of those before stay.
    kept: [u64; 2],
    versions: Vec<VersionImage>,
    /// Spans with their indexes.
    spans: Vec<(u64, Span)>,
}

/// A version, and what it counts periods by: the periods, and the domain whose rounds they are.
type VersionImage = (Version, Option<(Periods, Box<str>)>);

impl RuleImage {
    /// What has changed in a history; all of it if there was none, or it was shortened.
    pub(in crate::store) fn of_change(before: Option<&RuleHistory>, after: &RuleHistory) -> Self {
        let is_longer = |before: &&RuleHistory| {
            before.versions.len() <= after.versions.len()
                && before.spans.len() <= after.spans.len()
                && before.versions[0].tag == after.versions[0].tag
        };
        let before = before.filter(is_longer);
        let versions = before.map_or(&[][..], |before| &before.versions);
        let same = versions.iter().zip(&after.versions).take_while(|(old, new)| old.is_same(new));
        let same = same.count();
        let spans = before.map_or(&[][..], |before| &before.spans);
        let is_new = |(index, span): &(u64, &Arc<Span>)| {
            usize::try_from(*index).ok().and_then(|index| spans.get(index)) != Some(*span)
        };
        let image = |version: &Arc<Version>| {
            let periods = version.periods.as_ref().map(|periods| periods.describe());
            (Version { periods: None, ..(**version).clone() }, periods)
        };
        Self {
            family: after.family,
            kept: [same as u64, spans.len() as u64],
            versions: after.versions[same..].iter().map(image).collect(),
            spans: (0..)
                .zip(after.spans.iter())
                .filter(is_new)
                .map(|(index, span)| (index, (**span).clone()))
                .collect(),
        }
    }

    #[cfg(feature = "durable")]
    pub(in crate::store) const fn family(&self) -> u64 {
        self.family
    }

    /// The history with this change; `None` if it does not fit.
    pub(in crate::store) fn applied_to(
        self,
        before: Option<&RuleHistory>,
        mut periods_of: impl FnMut(Periods, Box<str>) -> Arc<PeriodClock>,
    ) -> Option<RuleHistory> {
        let (mut versions, mut spans) = match before {
            Some(before) => (before.versions.clone(), before.spans.to_vec()),
            None => (Vec::new(), Vec::new()),
        };
        let [kept_versions, kept_spans] = self.kept.map(|kept| usize::try_from(kept).ok());
        if kept_versions? > versions.len() || kept_spans? > spans.len() {
            return None;
        }
        versions.truncate(kept_versions?);
        spans.truncate(kept_spans?);
        for (version, periods) in self.versions {
            let periods = periods.map(|(periods, domain)| periods_of(periods, domain));
            versions.push(Arc::new(Version { periods, ..version }));
        }
        for (index, span) in self.spans {
            let span = Arc::new(span);
            let index = usize::try_from(index).ok()?;
            if index == spans.len() {
                spans.push(span);
            } else {
                *spans.get_mut(index)? = span;
            }
        }
        let spans = spans.into_iter().collect();
        RuleHistory { family: self.family, versions, spans }.if_sound()
    }

    pub(in crate::store) fn write(&self, out: &mut ByteWriter) {
        out.word(self.family);
        self.kept.into_iter().for_each(|kept| out.number(kept));
        out.list(self.versions.iter(), write_version);
        out.list(self.spans.iter(), |out, (index, span)| {
            out.number(*index);
            write_span(out, span);
        });
    }

    pub(in crate::store) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            family: from.word()?,
            kept: [from.number()?, from.number()?],
            versions: from.list(read_version)?,
            spans: from.list(|from| Ok((from.number()?, read_span(from)?)))?,
        })
    }
}

fn write_version(out: &mut ByteWriter, (version, periods): &VersionImage) {
    out.number(version.tag.into());
    write_times(out, version.at);
    out.number(version.period_before);
    out.number(version.period);
    out.byte(u8::from(version.effective == Effective::Next));
    out.byte(u8::from(version.is_removed) | (u8::from(version.is_cut) << 1));
    out.option(periods.as_ref(), |out, (periods, domain)| {
        let calendar = match periods {
            Periods::Calendar(calendar) => calendar.to_string(),
            Periods::Round => String::new(),
        };
        out.text(&calendar);
        out.text(domain);
    });
    out.list(version.ends.iter(), |out, OverrideEnd { at, round }| {
        write_times(out, *at);
        out.option(*round, ByteWriter::number);
    });
    out.option(version.waits_for, ByteWriter::number);
}

fn read_version(from: &mut ByteReader<'_>) -> Result<VersionImage, Malformed> {
    let (tag, at) = (from.small()?, read_times(from)?);
    let (period_before, period) = (from.number()?, from.number()?);
    let effective = if from.byte()? == 1 { Effective::Next } else { Effective::Now };
    let flags = from.byte()?;
    let version = Version {
        tag,
        at,
        period_before,
        period,
        effective,
        is_removed: flags & 1 != 0,
        is_cut: flags & 2 != 0,
        periods: None,
        ends: Vec::new(),
        waits_for: None,
    };
    let periods = from.option(|from| {
        let periods = match from.text()? {
            "" => Periods::Round,
            text => Periods::Calendar(text.parse::<Calendar>().map_err(|_| Malformed)?),
        };
        Ok((periods, from.text()?.into()))
    })?;
    let ends = from.list(|from| {
        Ok(OverrideEnd { at: read_times(from)?, round: from.option(ByteReader::number)? })
    })?;
    let waits_for = from.option(ByteReader::number)?;
    Ok((Version { ends, waits_for, ..version }, periods))
}

fn write_span(out: &mut ByteWriter, span: &Span) {
    out.option(span.keys.as_ref(), |out, keys| {
        out.list(keys.conditions.iter(), write_condition);
        out.option(keys.only, ByteWriter::word);
    });
    // Zigzag: ranks may be negative.
    #[allow(clippy::cast_sign_loss, reason = "all bits are kept")]
    out.number(((span.rank << 1) ^ (span.rank >> 63)) as u64);
    out.option(span.limit.as_ref(), write_any_limit);
    out.number(span.from.into());
    out.option(span.to, |out, to| out.number(to.into()));
    out.option(span.until, time);
}

fn read_span(from: &mut ByteReader<'_>) -> Result<Span, Malformed> {
    let keys = from.option(|from| {
        let conditions = from.list(read_condition)?.into();
        Ok(Keys { conditions, only: from.option(ByteReader::word)? })
    })?;
    let rank = from.number()?;
    #[allow(clippy::cast_possible_wrap, reason = "all bits are kept")]
    let rank = (rank >> 1) as i64 ^ -((rank & 1) as i64);
    Ok(Span {
        keys,
        rank,
        limit: from.option(read_any_limit)?,
        from: from.small()?,
        to: from.option(ByteReader::small)?,
        until: from.option(read_time)?,
    })
}

fn write_condition(out: &mut ByteWriter, condition: &Condition) {
    out.text(condition.attribute());
    out.list(condition.any_of().iter(), |out, pattern| match pattern {
        Pattern::Equals(text) => {
            out.byte(0);
            out.text(text);
        }
        Pattern::Glob(text) => {
            out.byte(1);
            out.text(text);
        }
        Pattern::Range(first, last) => {
            out.byte(2);
            [*first, *last].into_iter().for_each(|it| out.word(it.cast_unsigned()));
        }
        Pattern::Network(address, bits) => {
            out.byte(3);
            out.text(&address.to_string());
            out.byte(*bits);
        }
    });
}

fn read_condition(from: &mut ByteReader<'_>) -> Result<Condition, Malformed> {
    let attribute = from.text()?.into();
    let any_of = from.list(|from| {
        Ok(match from.byte()? {
            0 => Pattern::Equals(from.text()?.into()),
            1 => Pattern::Glob(from.text()?.into()),
            2 => Pattern::Range(from.word()?.cast_signed(), from.word()?.cast_signed()),
            3 => {
                let address = from.text()?.parse().map_err(|_| Malformed)?;
                Pattern::Network(address, from.byte()?)
            }
            _ => return Err(Malformed),
        })
    })?;
    Ok(Condition::of_patterns(attribute, any_of))
}

fn write_times(out: &mut ByteWriter, Times { now, wall }: Times) {
    time(out, now);
    time(out, wall);
}

fn read_times(from: &mut ByteReader<'_>) -> Result<Times, Malformed> {
    let now: Timestamp = read_time(from)?;
    Ok(Times { now, wall: read_time(from)? })
}
