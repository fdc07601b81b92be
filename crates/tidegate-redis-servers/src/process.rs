//! Processes that end with this one.

use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait;

/// A running process. It is killed with this value, and with the process that started it.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a command. `setpriv` asks the kernel to kill it with its parent, then becomes the program.
    pub(crate) fn start(command: &Command, log: fs::File) -> io::Result<Self> {
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        spawn(wrapped).map(Self)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it runs, or is stopped.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Stops it until [`resume`](Self::resume); returns when it is stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        wait::until("the process is stopped", || self.state() == Some('T'));
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap_or_else(|error| panic!("cannot send {signal}: {error}"));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(i32::MAX))
    }

    /// The letter of its state: what follows the name, which is in brackets.
    fn state(&self) -> Option<char> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    /// Kills it, also if it is stopped, and waits until it is gone.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process from a thread that lives as long as this process.
///
/// The kernel sends the signal of `--pdeathsig` when the *thread* that started a process ends, and a test
/// may end before others that use the same server.
fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, result) in jobs {
                let _ = result.send(command.spawn());
            }
        });
        sender
    });
    let (sender, result) = mpsc::channel();
    let is_gone = |_| io::Error::other("the thread that starts processes is gone");
    spawner.send((command, sender)).map_err(|_| is_gone(mpsc::RecvError))?;
    result.recv().map_err(is_gone)?
}
