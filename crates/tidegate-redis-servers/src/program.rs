//! The programs, and where they are.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Redis 7, as the system's package has it. Built with TLS.
    Redis7,
    /// Valkey 9, from `target/tools`. Built without TLS.
    Valkey9,
}

impl Program {
    /// All programs, for tests that run with each.
    pub const ALL: [Self; 2] = [Self::Redis7, Self::Valkey9];

    /// The executable.
    ///
    /// # Panics
    ///
    /// If it is not installed.
    #[must_use]
    pub fn path(self) -> PathBuf {
        match self {
            Self::Redis7 => on_path("redis-server"),
            Self::Valkey9 => {
                let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
                let path = tools.join(format!("valkey-{VALKEY_VERSION}/valkey-server"));
                assert!(path.is_file(), "{} is missing: run scripts/install", path.display());
                path
            }
        }
    }

    /// What the program says about its version, such as `7.0.15`.
    ///
    /// # Panics
    ///
    /// If it is not installed, or is of another major version.
    #[must_use]
    pub fn version(self) -> String {
        let path = self.path();
        let output = Command::new(&path).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {path:?}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // `Redis server v=7.0.15 sha=…`
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
        let version = version.unwrap_or_else(|| panic!("{path:?} has no version: {text}"));
        let is_expected = version.starts_with(match self {
            Self::Redis7 => "7.",
            Self::Valkey9 => "9.",
        });
        assert!(is_expected, "{path:?} is {version}, but {self} is needed: run scripts/install");
        version.to_owned()
    }

    /// Whether the program was built with TLS.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Redis7)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis7 => "Redis 7",
            Self::Valkey9 => "Valkey 9",
        })
    }
}

/// The library that fakes the clock of a program which loads it.
///
/// # Panics
///
/// If it is not installed.
pub(crate) fn faketime_library() -> PathBuf {
    let folders = [format!("/usr/lib/{}-linux-gnu", env::consts::ARCH), "/usr/lib64".into()];
    let mut paths =
        folders.iter().map(|folder| Path::new(folder).join("faketime/libfaketime.so.1"));
    paths.find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("faketime/libfaketime.so.1 is missing in {folders:?}: run scripts/install")
    })
}

fn on_path(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.is_file());
    found.unwrap_or_else(|| panic!("{name} is not on the PATH: run scripts/install"))
}

/// The version that `scripts/install` installs.
pub(crate) const VALKEY_VERSION: &str = "9.1.2";

#[cfg(test)]
mod tests;
