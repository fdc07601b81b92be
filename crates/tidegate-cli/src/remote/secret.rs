//! The file with the secret of a token.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::HeaderValue;

use crate::call_error::CallError;
use crate::format;

/// The secret in a file, as the value of the header `Authorization`. Warns if others may read it.
pub(super) fn read(path: &Path, warnings: &mut dyn Write) -> Result<HeaderValue, CallError> {
    let name = format::visible(&path.to_string_lossy());
    let unreadable = |error| {
        CallError::new(format!("cannot read the token file `{name}`: {error}"))
            .hint("it has the secret that `tidegate token new` printed, and nothing else")
    };
    let wrong = |why: &str| {
        CallError::new(format!("the token file `{name}` {why}"))
            .hint("it has the secret that `tidegate token new` printed, and nothing else")
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_file() && metadata.permissions().mode() & 0o044 != 0 {
        // Not worth failing for.
        let _ = writeln!(
            warnings,
            "warning: other users may read the token file `{name}`; run `chmod 600 {name}`"
        );
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let secret = bytes.trim_ascii_end();
    if secret.is_empty() {
        return Err(wrong("is empty"));
    }
    if secret.len() as u64 > MOST_BYTES {
        return Err(wrong(&format!("has more than {MOST_BYTES} bytes")));
    }
    if !secret.iter().all(u8::is_ascii_graphic) {
        return Err(wrong("has other characters than a secret has"));
    }
    let mut bearer = HeaderValue::from_bytes(&[b"Bearer ", secret].concat())
        .map_err(|_| wrong("has other characters than a secret has"))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// The longest secret that a daemon accepts.
const MOST_BYTES: u64 = 4_096;
