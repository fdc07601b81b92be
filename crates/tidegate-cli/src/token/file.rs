//! A token file that is changed by one command at a time, whole or not at all.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tidegate::policy::TokenFile;

use crate::format;

/// A token file, locked against other commands.
pub(super) struct LockedFile {
    /// Its path, with links followed.
    path: PathBuf,
    /// The name that the user gave it.
    name: String,
    pub(super) text: String,
    mode: u32,
    /// The user and the group that it belongs to, if it exists.
    owner: Option<(u32, u32)>,
    /// The lock of its folder, released when it is dropped.
    _lock: File,
}

/// Why a token file cannot be used.
#[derive(Debug)]
pub(super) struct TokenFileError(String);

impl TokenFileError {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(format!("error: {why}"))
    }
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LockedFile {
    /// Opens a file that exists.
    pub(super) fn open(path: &Path) -> Result<Self, TokenFileError> {
        let file = Self::open_or_create(path)?;
        if fs::metadata(&file.path).is_err() {
            let hint = "`tidegate token new` creates it; give its path with --file";
            return Err(TokenFileError::new(format!(
                "cannot read {}: it does not exist\n  = hint: {hint}",
                file.name
            )));
        }
        Ok(file)
    }

    /// Opens a file; one that does not exist is empty, and is created when it is replaced.
    pub(super) fn open_or_create(path: &Path) -> Result<Self, TokenFileError> {
        let name = format::visible(&path.to_string_lossy());
        let failed = |error: io::Error| TokenFileError::new(format!("cannot read {name}: {error}"));
        let (path, exists) = match fs::canonicalize(path) {
            Ok(path) => (path, true),
            Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), false),
            Err(error) => return Err(failed(error)),
        };
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let lock = File::open(folder.unwrap_or(Path::new("."))).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let (mut text, mut mode, mut owner) = (String::new(), 0o600, None);
        if exists {
            let metadata = fs::metadata(&path).map_err(failed)?;
            if !metadata.is_file() {
                return Err(TokenFileError::new(format!("{name} is not a file")));
            }
            mode = metadata.permissions().mode() & 0o777;
            owner = Some((metadata.uid(), metadata.gid()));
            let file = File::open(&path).map_err(failed)?;
            file.take(MOST_BYTES).read_to_string(&mut text).map_err(failed)?;
        }
        Ok(Self { path, name, text, mode, owner, _lock: lock })
    }

    /// The tokens in it.
    pub(super) fn parse(&self) -> Result<TokenFile, TokenFileError> {
        parse(&self.name, &self.text)
    }

    /// Replaces the file, if the new text is valid. The daemon reads the old one or the new one.
    pub(super) fn replace(&mut self, text: String) -> Result<(), TokenFileError> {
        parse(&self.name, &text)?;
        let failed = |error| TokenFileError::new(format!("cannot write {}: {error}", self.name));
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let written = (|| {
            // Left behind by a command that was killed; the lock of the folder is ours.
            let _ = fs::remove_file(&temporary);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            // The daemon may run as another user, and has to read the new file as well.
            if let Some((uid, gid)) = self.owner {
                fchown(&file, Some(uid), Some(gid))?;
            }
            file.set_permissions(fs::Permissions::from_mode(self.mode))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)?;
            self._lock.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed)?;
        self.text = text;
        Ok(())
    }
}

/// The tokens in a text, or all of its errors.
pub(super) fn parse(name: &str, text: &str) -> Result<TokenFile, TokenFileError> {
    TokenFile::parse(name, text.as_bytes()).map_err(|errors| TokenFileError(errors.to_string()))
}

/// A text without some of the tables that begin at these positions. Comments directly above the next
/// table belong to that one.
pub(super) fn without(text: &str, starts: &[usize], is_removed: &[bool]) -> String {
    let mut kept = text[..starts.first().copied().unwrap_or(0)].to_owned();
    let begins: Vec<usize> = starts.iter().map(|&start| above(text, start)).collect();
    if let (Some(&begin), Some(&start)) = (begins.first(), starts.first()) {
        kept.truncate(kept.len() - (start - begin));
    }
    for (index, is_removed) in is_removed.iter().enumerate() {
        let end = begins.get(index + 1).copied().unwrap_or(text.len());
        if !is_removed {
            kept.push_str(&text[begins[index]..end]);
        }
    }
    kept
}

/// Where the comments directly above a position begin.
fn above(text: &str, start: usize) -> usize {
    let mut begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    while begin > 0 {
        let line = text[..begin - 1].rfind('\n').map_or(0, |at| at + 1);
        if !text[line..begin].trim_start().starts_with('#') {
            break;
        }
        begin = line;
    }
    begin
}

/// The largest token file.
const MOST_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_removed_table_takes_its_comments_along_and_no_others() {
        let text = "# the file\n\n# about a\n[[token]]\nname = 'a'\n\n# about b\n# more\n[[token]]\n\
                    name = 'b'\n[[token]]\nname = 'c' # end\n";
        let starts: Vec<_> = text.match_indices("[[token]]").map(|(at, _)| at).collect();
        let kept = |removed: [bool; 3]| without(text, &starts, &removed);
        assert_eq!(kept([false; 3]), text);
        assert_eq!(
            kept([false, true, false]),
            "# the file\n\n# about a\n[[token]]\nname = 'a'\n\n[[token]]\nname = 'c' # end\n"
        );
        assert_eq!(
            kept([true, false, true]),
            "# the file\n\n# about b\n# more\n[[token]]\nname = 'b'\n"
        );
        assert_eq!(kept([true; 3]), "# the file\n\n");
        assert_eq!(without("", &[], &[]), "");
    }
}
