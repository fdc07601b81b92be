//! Watches a file by its path, however it is changed: in place, by renaming, or by moving a link.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Finds new content of a file, once two polls in a row have found the same, so that a half-written
/// file is not used.
#[derive(Debug)]
pub(crate) struct FileWatch {
    path: PathBuf,
    most_bytes: u64,
    /// The content that was returned last; `None` after an error.
    seen: Option<Vec<u8>>,
    /// New content, or an error, that the next poll has to find again.
    pending: Option<Result<Vec<u8>, io::ErrorKind>>,
    is_failing: bool,
}

impl FileWatch {
    /// Watches a file whose content is known. Of a file one byte more is read than it may have.
    pub(crate) const fn new(path: PathBuf, most_bytes: u64, seen: Vec<u8>) -> Self {
        Self { path, most_bytes, seen: Some(seen), pending: None, is_failing: false }
    }

    /// Whether the next poll should follow soon.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Reads the file: new content, or why it cannot be read. Each of them once.
    pub(crate) fn poll(&mut self) -> Option<io::Result<Vec<u8>>> {
        match read(&self.path, self.most_bytes) {
            Ok(content) if self.seen.as_ref() == Some(&content) && !self.is_failing => {
                self.pending = None;
                None
            }
            Ok(content) => {
                if self.pending.as_ref().and_then(|it| it.as_ref().ok()) == Some(&content) {
                    (self.pending, self.is_failing) = (None, false);
                    self.seen = Some(content.clone());
                    return Some(Ok(content));
                }
                self.pending = Some(Ok(content));
                None
            }
            Err(error) if self.is_failing => {
                drop(error);
                self.pending = None;
                None
            }
            Err(error) => {
                if self.pending == Some(Err(error.kind())) {
                    (self.pending, self.is_failing) = (None, true);
                    return Some(Err(error));
                }
                self.pending = Some(Err(error.kind()));
                None
            }
        }
    }
}

/// The content of a file, up to one byte more than it may have.
pub(crate) fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    File::open(path)?.take(most_bytes + 1).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FileWatch, read};

    #[test]
    fn content_is_returned_once_it_is_stable() {
        let folder = std::env::temp_dir().join(format!("tidegate-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::new(path.clone(), 5, read(&path, 5).unwrap());
        let polled = |watch: &mut FileWatch| {
            watch
                .poll()
                .map(|it| it.map(|it| String::from_utf8(it).unwrap()).map_err(|it| it.kind()))
        };
        assert_eq!(polled(&mut watch), None);
        fs::write(&path, "tw").unwrap();
        assert_eq!(polled(&mut watch), None, "it may be half written");
        assert!(watch.is_pending());
        fs::write(&path, "two").unwrap();
        assert_eq!(polled(&mut watch), None);
        assert_eq!(polled(&mut watch), Some(Ok("two".into())));
        assert_eq!(polled(&mut watch), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(polled(&mut watch), None, "it may be being replaced");
        assert_eq!(polled(&mut watch), Some(Err(std::io::ErrorKind::NotFound)));
        assert_eq!(polled(&mut watch), None, "each error once");
        fs::write(&path, "two").unwrap();
        assert_eq!(polled(&mut watch), None);
        assert_eq!(
            polled(&mut watch),
            Some(Ok("two".into())),
            "the same content is new after an error"
        );
        fs::write(&path, "a long text").unwrap();
        assert_eq!(polled(&mut watch), None);
        assert_eq!(polled(&mut watch), Some(Ok("a long".into())), "one byte more than allowed");
        fs::remove_dir_all(&folder).unwrap();
    }
}
