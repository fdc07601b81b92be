//! Reads policies and test files, from paths or stdin.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use tidegate::policy::{Diagnostic, Parsed, Policy, PolicyErrors, PolicyFile, YamlOptions};

use crate::args::is_stdin;
use crate::similar::similar;

/// The bytes of an input and its name in messages.
#[derive(Debug)]
pub(crate) struct InputText {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Why a file cannot be read, and what to do about it.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Why there is no policy.
#[derive(Debug)]
pub(crate) enum PolicyInputError {
    Unreadable(ReadError),
    Errors(PolicyErrors),
}

/// Reads a file or stdin, up to one byte more than the parser accepts.
pub(crate) fn read(path: &Path, stdin: &mut dyn Read) -> Result<InputText, ReadError> {
    let name = name_of(path);
    let mut bytes = Vec::new();
    let done = if is_stdin(path) {
        stdin.take(MOST_BYTES).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes))
    };
    match done {
        Ok(_) => Ok(InputText { name, bytes }),
        Err(error) => Err(unreadable(path, name, &error)),
    }
}

/// The policy of a file, or of all files in a folder.
pub(crate) fn policy(
    path: &Path,
    options: YamlOptions,
    stdin: &mut dyn Read,
) -> Result<Parsed, PolicyInputError> {
    let files = if is_stdin(path) || !path.is_dir() {
        let InputText { name, bytes } = read(path, stdin).map_err(PolicyInputError::Unreadable)?;
        vec![PolicyFile { name, bytes }]
    } else {
        PolicyFile::read(path).map_err(|error| {
            PolicyInputError::Unreadable(unreadable(path, name_of(path), &error))
        })?
    };
    Policy::load_files_with(&files, options).map_err(PolicyInputError::Errors)
}

/// The diagnostics of an invalid policy. Test files are often mistaken for policies.
pub(crate) fn diagnostics_of(errors: &PolicyErrors) -> Vec<Diagnostic> {
    let mut diagnostics = errors.diagnostics().to_vec();
    for diagnostic in &mut diagnostics {
        if diagnostic.message == "unknown field `case` in the file" {
            let hint = "this looks like a test file; run it with `tidegate test POLICY CASES`";
            diagnostic.hint = Some(hint.into());
        }
    }
    diagnostics
}

/// The name of a path in messages. Bytes that are not text become `�`.
pub(crate) fn name_of(path: &Path) -> String {
    if is_stdin(path) { "<stdin>".into() } else { path.display().to_string() }
}

pub(crate) fn unreadable(path: &Path, name: String, error: &io::Error) -> ReadError {
    let (message, hint) = match error.kind() {
        ErrorKind::NotFound if path.is_dir() => (error.to_string(), None),
        ErrorKind::NotFound => ("no such file".into(), similar_path(path)),
        ErrorKind::IsADirectory => {
            ("it is a directory".into(), Some("give the path of a file in it".into()))
        }
        ErrorKind::PermissionDenied => {
            ("permission denied".into(), Some("check its permissions with `ls -l`".into()))
        }
        _ => (error.to_string(), None),
    };
    ReadError { name, message, hint }
}

/// A hint at a file with a similar name.
fn similar_path(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names: Vec<String> =
        entries.take(MOST_NAMES).filter_map(|it| it.ok()?.file_name().into_string().ok()).collect();
    let meant = similar(name, names.iter().map(String::as_str))?;
    Some(format!("did you mean `{}`?", path.with_file_name(meant).display()))
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: cannot read `{}`: {}", self.name, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  = hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PolicyInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => why.fmt(f),
            Self::Errors(errors) => errors.fmt(f),
        }
    }
}

/// One byte more than the parser accepts, so that the parser reports the error.
const MOST_BYTES: u64 = (16 << 20) + 1;
/// The most names that are compared with a missing one.
const MOST_NAMES: usize = 1_000;
