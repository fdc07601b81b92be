//! The settings of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Server;
use crate::certificates::Certificate;
use crate::program::Program;

/// When the log of a server is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appendfsync {
    /// Before a reply is sent.
    Always,
    /// About once per second.
    Everysec,
    /// When the system does it.
    No,
}

impl fmt::Display for Appendfsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        })
    }
}

/// The files for TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the server.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates that client certificates are checked against.
    pub authority: PathBuf,
}

impl TlsFiles {
    /// A new certificate for 127.0.0.1 that is its own authority, and its key, in a folder.
    #[must_use]
    pub fn generate(folder: &Path, name: &str) -> Self {
        let Certificate { path, key } = Certificate::self_signed(folder, name);
        Self { authority: path.clone(), certificate: path, key }
    }
}

/// What kind of process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standalone,
    ClusterNode,
    Sentinel,
}

/// A server that is not started yet.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    pub(super) program: Program,
    pub(super) mode: Mode,
    pub(super) password: Option<String>,
    pub(super) has_unix_socket: bool,
    pub(super) tls: Option<TlsFiles>,
    pub(super) has_steppable_clock: bool,
    /// Lines of the configuration.
    pub(super) lines: Vec<String>,
}

impl ServerBuilder {
    pub(super) fn new(program: Program) -> Self {
        Self {
            program,
            mode: Mode::Standalone,
            password: None,
            has_unix_socket: false,
            tls: None,
            has_steppable_clock: false,
            lines: Vec::new(),
        }
    }

    /// Writes a log of all changes; a restart reads it.
    #[must_use]
    pub fn appendonly(self, fsync: Appendfsync) -> Self {
        self.set("appendonly", "yes").set("appendfsync", &fsync.to_string())
    }

    /// Requires a password of the default user. [`Server::command`] sends it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self = self.set("requirepass", password).set("masterauth", password);
        self.password = Some(password.into());
        self
    }

    /// Adds a user, with rules such as `on >secret ~tg:* +@all`.
    ///
    /// # Panics
    ///
    /// If the name or the rules contain a line end.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.line(format!("user {name} {rules}"))
    }

    /// Bounds the memory for keys, with a policy such as `noeviction` or `allkeys-lru`.
    #[must_use]
    pub fn memory_max(self, bytes: u64, policy: &str) -> Self {
        self.set("maxmemory", &bytes.to_string()).set("maxmemory-policy", policy)
    }

    /// Listens on a socket in its folder, too: [`Server::unix_socket`].
    #[must_use]
    pub fn with_unix_socket(mut self) -> Self {
        self.has_unix_socket = true;
        self
    }

    /// Listens on a port with TLS, too: [`Server::tls_address`]. Client certificates are not required; the
    /// setting `tls-auth-clients` changes that.
    ///
    /// # Panics
    ///
    /// If the program was built without TLS.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        assert!(self.program.has_tls(), "{} was built without TLS", self.program);
        self.tls = Some(files);
        self
    }

    /// Replicates another server.
    #[must_use]
    pub fn replica_of(self, primary: SocketAddr) -> Self {
        let line = format!("replicaof {} {}", primary.ip(), primary.port());
        self.line(line)
    }

    /// Makes [`Server::step_clock`] possible. Reading the time then takes the server longer.
    #[must_use]
    pub fn steppable_clock(mut self) -> Self {
        self.has_steppable_clock = true;
        self
    }

    /// Any other setting of the configuration file that has one value; the last one counts.
    ///
    /// # Panics
    ///
    /// If the name or the value contains a line end.
    #[must_use]
    pub fn set(self, name: &str, value: &str) -> Self {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.line(format!("{name} \"{value}\""))
    }

    /// Speaks TLS with other servers too, where it has it.
    pub(crate) fn tls_between_servers(self) -> Self {
        match &self.tls {
            Some(_) if self.mode == Mode::ClusterNode => {
                self.set("tls-cluster", "yes").set("tls-replication", "yes")
            }
            Some(_) => self.set("tls-replication", "yes"),
            None => self,
        }
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) const fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    pub(crate) fn line(mut self, line: String) -> Self {
        assert!(!line.contains(['\n', '\r', '\0']), "a setting is one line: {line:?}");
        self.lines.push(line);
        self
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the program is not installed, or the server does not start; the message has its log.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Server {
        for _ in 1..ATTEMPTS {
            match Server::try_start(&self) {
                Ok(server) => return server,
                // Another process has bound the port by its number.
                Err(message) if message.contains("already in use") => {}
                Err(message) => panic!("{message}"),
            }
        }
        Server::try_start(&self).unwrap_or_else(|message| panic!("{message}"))
    }
}

/// Attempts to start a server, each with another port.
const ATTEMPTS: u32 = 5;
