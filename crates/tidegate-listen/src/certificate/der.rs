//! The parts of a certificate that are needed here: how long it is valid, and whom it names.
//!
//! rustls verifies certificates; this only reads them.

/// The elements of a DER encoding, one after the other.
#[derive(Clone, Copy, Debug)]
struct Elements<'a>(&'a [u8]);

/// One element.
#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

impl<'a> Elements<'a> {
    fn next(&mut self) -> Option<Element<'a>> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Up to four bytes of length; an indefinite length is not DER.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Element { tag, content })
    }

    /// The content of the next element, which must have this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|it| it.tag == tag).map(|it| it.content)
    }

    /// The next element, if it has this tag.
    fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let content = ahead.expect(tag)?;
        *self = ahead;
        Some(content)
    }
}

/// What a certificate says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// From when to when it is valid, in seconds of Unix time.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    /// Its subjects: URI and DNS names; if it has neither, its common name.
    pub(crate) subjects: Vec<String>,
}

impl Fields {
    /// The fields of a certificate; `None` if it is malformed.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let mut certificate = Elements(Elements(certificate).expect(SEQUENCE)?);
        let mut fields = Elements(certificate.expect(SEQUENCE)?);
        let _version = fields.optional(VERSION);
        let _serial = fields.expect(INTEGER)?;
        let _algorithm = fields.expect(SEQUENCE)?;
        let _issuer = fields.expect(SEQUENCE)?;
        let mut validity = Elements(fields.expect(SEQUENCE)?);
        let not_before = unix_time(validity.next()?)?;
        let not_after = unix_time(validity.next()?)?;
        let subject = fields.expect(SEQUENCE)?;
        let _public_key = fields.expect(SEQUENCE)?;
        let _issuer_id = fields.optional(ISSUER_ID);
        let _subject_id = fields.optional(SUBJECT_ID);
        let extensions = fields.optional(EXTENSIONS).unwrap_or_default();
        let subjects = match alternative_names(extensions)? {
            Some(names) => names,
            None => common_name(subject).into_iter().collect(),
        };
        Some(Self { not_before, not_after, subjects })
    }
}

/// The URI and DNS names among the extensions. The outer `None`: malformed; the inner: there are
/// none. Names with other than printable ASCII characters are left out.
fn alternative_names(extensions: &[u8]) -> Option<Option<Vec<String>>> {
    if extensions.is_empty() {
        return Some(None);
    }
    let mut extensions = Elements(Elements(extensions).expect(SEQUENCE)?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let mut extension = Elements(extensions.expect(SEQUENCE)?);
        let id = extension.expect(OBJECT_ID)?;
        let _critical = extension.optional(BOOLEAN);
        let value = extension.expect(OCTET_STRING)?;
        if id != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        let mut names = Elements(Elements(value).expect(SEQUENCE)?);
        while !names.0.is_empty() {
            let name = names.next()?;
            if !matches!(name.tag, DNS_NAME | URI) {
                continue;
            }
            let found: &mut Vec<String> = found.get_or_insert_default();
            // A NUL or a line break would make one name look like another.
            if name.content.iter().all(u8::is_ascii_graphic)
                && let Ok(text) = std::str::from_utf8(name.content)
                && !text.is_empty()
            {
                found.push(text.into());
            }
        }
    }
    Some(found)
}

/// The common name of a subject, if it has exactly one.
fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = Elements(subject);
    let mut found = None;
    while !sets.0.is_empty() {
        let mut attributes = Elements(sets.expect(SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Elements(attributes.expect(SEQUENCE)?);
            let id = attribute.expect(OBJECT_ID)?;
            let value = attribute.next()?;
            if id != COMMON_NAME {
                continue;
            }
            let is_text = matches!(value.tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
            let text = std::str::from_utf8(value.content).ok().filter(|_| is_text)?;
            if text.is_empty() || text.chars().any(char::is_control) {
                return None;
            }
            // Two of them are ambiguous.
            if found.replace(text.to_owned()).is_some() {
                return None;
            }
        }
    }
    found
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` in seconds of Unix time.
fn unix_time(time: Element<'_>) -> Option<i64> {
    let digits = time.content.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |all, it| all * 10 + i64::from(it - b'0'));
    let (year, rest) = match (time.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let mut parts = rest.chunks(2).map(number);
    let mut part = || parts.next();
    let (month, day, hour, minute, second) = (part()?, part()?, part()?, part()?, part()?);
    let is_valid = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24;
    (is_valid && minute < 60 && second <= 60)
        .then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The days from 1970-01-01 to a date of the Gregorian calendar.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Tags of parts of a certificate.
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;
/// Tags of alternative names.
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

#[cfg(test)]
mod tests;
