//! A primary with two replicas, and three sentinels that replace a lost primary.

use std::net::SocketAddr;

use crate::program::Program;
use crate::replication::Replication;
use crate::resp::Reply;
use crate::server::{Mode, Server, ServerBuilder};
use crate::wait;

/// A primary, two replicas, and three sentinels of which two must agree that the primary is gone.
#[derive(Debug)]
pub struct Sentinel {
    /// Dropped before the servers that they watch.
    sentinels: Vec<Server>,
    servers: Replication,
}

impl Sentinel {
    /// The name of the primary.
    pub const NAME: &str = "primary";

    /// Starts all of them, and waits until every sentinel knows every other process.
    #[must_use]
    #[track_caller]
    pub fn start(program: Program) -> Self {
        Self::start_with(&Server::builder(program))
    }

    /// Starts all of them; the primary and the replicas have these settings. With TLS, the sentinels have
    /// it too, and name the port with TLS.
    #[must_use]
    #[track_caller]
    pub fn start_with(settings: &ServerBuilder) -> Self {
        let servers = Replication::start_with(settings, 2);
        let primary = servers.primary().peer_address();
        let name = Self::NAME;
        let mut sentinel = Server::builder(servers.primary().program())
            .mode(Mode::Sentinel)
            .line(format!("sentinel monitor {name} {} {} 2", primary.ip(), primary.port()))
            .line(format!("sentinel down-after-milliseconds {name} 1000"))
            .line(format!("sentinel failover-timeout {name} 3000"));
        if let Some(files) = settings.tls_files() {
            sentinel = sentinel.tls(files.clone()).tls_between_servers();
        }
        if let Some(password) = servers.primary().password() {
            sentinel = sentinel.set(&format!("sentinel auth-pass {name}"), password);
        }
        let sentinels: Vec<_> = (0..3).map(|_| sentinel.clone().start()).collect();
        for sentinel in &sentinels {
            // Sentinels speak to each other every two seconds, and read the roles every ten.
            let periods = ["INFO-PERIOD", "PUBLISH-PERIOD", "PING-PERIOD", "ASK-PERIOD"];
            let periods = periods.iter().flat_map(|period| [*period, "200"]);
            let words: Vec<_> = ["SENTINEL", "DEBUG"].into_iter().chain(periods).collect();
            let _ = sentinel.command(&words).success();
        }
        let started = Self { sentinels, servers };
        wait::until("every sentinel knows every process", || {
            started.sentinels.iter().all(knows_every_process)
        });
        started
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The servers that they watch. The first was the primary at the start.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.servers()
    }

    /// The address of the primary, as the first sentinel that runs has it.
    ///
    /// # Panics
    ///
    /// If no sentinel runs.
    #[must_use]
    #[track_caller]
    pub fn primary_address(&self) -> SocketAddr {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        primary_of(sentinel.expect("no sentinel runs")).expect("a sentinel knows the primary")
    }

    /// The primary, as the first sentinel that runs has it.
    ///
    /// # Panics
    ///
    /// If no sentinel runs.
    #[must_use]
    #[track_caller]
    pub fn primary(&self) -> &Server {
        let address = self.primary_address();
        let found = self.servers().find(|server| server.peer_address() == address);
        found.unwrap_or_else(|| panic!("{address} is none of the servers"))
    }

    /// Makes a replica the primary, although the primary works. Returns when it is done.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    #[track_caller]
    pub fn failover(&self) {
        let old = self.primary_address();
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        let sentinel = sentinel.expect("no sentinel runs");
        // There may be no suitable replica for a moment.
        wait::until("the sentinel begins a failover", || {
            let reply = sentinel.command(&["SENTINEL", "FAILOVER", Self::NAME]);
            reply.error().is_none_or(|message| message.starts_with("INPROG"))
        });
        self.until_replaced(old);
    }

    /// Waits until the sentinels agree on a primary other than this one, and until it is one.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    #[track_caller]
    pub fn until_replaced(&self, old: SocketAddr) {
        wait::until("the sentinels agree on a new primary", || {
            let running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
            let primaries: Vec<_> = running.map(primary_of).collect();
            primaries.iter().all(|it| it.is_some_and(|it| it != old) && *it == primaries[0])
        });
        // They may change their minds until then.
        wait::until("the replica is a primary", || {
            self.primary().info("role").as_deref() == Some("master")
        });
    }
}

fn primary_of(sentinel: &Server) -> Option<SocketAddr> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinel::NAME];
    let Ok(Reply::Array(parts)) = sentinel.try_command(&words) else { return None };
    let [ip, port] = parts.as_slice() else { return None };
    format!("{}:{}", ip.text(), port.text()).parse().ok()
}

fn knows_every_process(sentinel: &Server) -> bool {
    let reply = sentinel.command(&["SENTINEL", "MASTER", Sentinel::NAME]).success();
    let field = |name: &str| {
        let mut pairs = reply.array().chunks(2);
        pairs.find_map(|pair| (pair[0].text() == name).then(|| pair[1].text()))
    };
    let has = |name, value| field(name).as_deref() == Some(value);
    has("num-slaves", "2") && has("num-other-sentinels", "2") && has("flags", "master")
}
