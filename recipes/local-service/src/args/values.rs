//! Parsers of command line values.

use tidegate::policy::duration_from_text;

use crate::{Grant, UserOverride};

/// A number of at least 1.
pub(super) fn positive(text: &str) -> Result<u64, String> {
    match text.trim().parse::<i128>() {
        Ok(0) => Err("must be at least 1 (zero does not mean unlimited)".into()),
        Ok(number) if number < 0 => Err("must be at least 1, not negative".into()),
        Ok(number) => u64::try_from(number).map_err(|_| "too large".into()),
        Err(_) => Err("not a whole number".into()),
    }
}

/// A mode in octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode such as 0600".into()),
    }
}

/// An override: `NAME=MAX`, `NAME=MAX/TIME`, `NAME=MAX/TIME:BURST`, `NAME=MAX:BURST` or
/// `NAME=unlimited`.
pub(super) fn exception(text: &str) -> Result<UserOverride, String> {
    // A name may contain `=`, numbers do not.
    let (users, numbers) = text.rsplit_once('=').ok_or("missing `=`; write NAME=MAX")?;
    if users.is_empty() {
        return Err("missing name before the `=`".into());
    }
    let users = users.to_owned();
    if numbers == "unlimited" {
        return Ok(UserOverride { users, grant: Grant::Unlimited });
    }
    let (numbers, burst) = match numbers.rsplit_once(':') {
        Some((numbers, burst)) => (numbers, Some(positive(burst)?)),
        None => (numbers, None),
    };
    let (max, per) = match numbers.split_once('/') {
        Some((max, per)) => {
            let per = duration_from_text(per).map_err(|error| error.to_string())?;
            (max, Some(per))
        }
        None => (numbers, None),
    };
    Ok(UserOverride { users, grant: Grant::Numbers { max: positive(max)?, per, burst } })
}
