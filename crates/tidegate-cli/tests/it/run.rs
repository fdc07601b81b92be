//! Runs the real binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that stdout has all of these.
    #[track_caller]
    pub(crate) fn out(self, snippets: &[&str]) -> Self {
        for snippet in snippets {
            assert!(self.out.contains(snippet), "no {snippet:?} in stdout:\n{self:#?}");
        }
        self
    }

    /// Asserts that stderr has all of these.
    #[track_caller]
    pub(crate) fn err(self, snippets: &[&str]) -> Self {
        for snippet in snippets {
            assert!(self.err.contains(snippet), "no {snippet:?} in stderr:\n{self:#?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn silent_err(self) -> Self {
        assert_eq!(self.err, "");
        self
    }

    #[track_caller]
    pub(crate) fn silent_out(self) -> Self {
        assert_eq!(self.out, "");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// The command in a folder, without variables of the environment that change its output.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = with_default_signals(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder).env_remove("TIDEGATE_FORMAT").env_remove("TIDEGATE_STRICT");
    command
}

/// A program that no signal of these leaves alone. Tests in the background of a shell, or under
/// `nohup`, ignore some of them, and a process inherits that.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", program]);
    command
}

/// Kills a process that runs too long, so that everything that waits for it ends.
pub(crate) struct Watchdog {
    /// Dropped when the process need not be watched any more.
    _over: mpsc::Sender<()>,
}

impl Watchdog {
    pub(crate) fn of(child: &Child) -> Self {
        let (over, is_over) = mpsc::channel();
        let pid = child.id().to_string();
        std::thread::spawn(move || {
            if is_over.recv_timeout(MAX_RUN) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        });
        Self { _over: over }
    }
}

/// Far longer than any process of a test runs, on any machine.
const MAX_RUN: Duration = Duration::from_secs(600);

pub(crate) fn tidegate<S: AsRef<OsStr>>(args: &[S]) -> Ended {
    tidegate_in(&root(), args, b"")
}

pub(crate) fn tidegate_in<S: AsRef<OsStr>>(folder: &Path, args: &[S], stdin: &[u8]) -> Ended {
    finish(command(folder).args(args), stdin)
}

pub(crate) fn finish(command: &mut Command, stdin: &[u8]) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fresh folder with some files.
pub(crate) fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    folder
}

/// A policy without errors or warnings.
pub(crate) const GOOD: &str = r#"
[[rule]]
name   = "messages"
domain = "relay"
key    = ["connection"]
bucket = { rate = "1/s", burst = 10 }
"#;
