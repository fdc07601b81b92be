//! Nodes in processes of their own charge, reserve and lease, while the server, the nodes and the way
//! between them fail. Afterwards the books are checked: nothing was admitted above a limit in
//! any interval, nothing that was acknowledged is lost, nothing is charged twice, nothing stays on
//! hold.
//!
//! `TIDEGATE_FAULTS=60 cargo test -p tidegate-redis --test it programme` is the long form;
//! `TIDEGATE_SEED` repeats another order of faults.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tidegate::clock::{Clock, MonotonicClock};
use tidegate_redis_servers::{Appendfsync, Cluster, Cut, Fault, Program, Proxy, Server, until};

use crate::cluster;
use crate::support::{Node, builder};
use books::Books;
pub(crate) use books::{Admitted, check_rate};

mod books;
mod worker;

/// What the nodes do is limited by these rules.
const POLICY: &str = r#"
[[rule]]
name     = "rate"
domain   = "rate"
key      = ["user"]
bucket   = { rate = "40/s", burst = 20 }
on_error = "deny"

[[rule]]
name   = "sum"
domain = "sum"
key    = ["user"]
quota  = { max = 1_000_000_000, per = "year" }
reserve_for = "3s"

[[rule]]
name   = "total"
domain = "sum"
quota  = { max = 1_000_000_000, per = "year" }
reserve_for = "3s"

[[rule]]
name   = "jobs"
domain = "jobs"
slots  = { max = 2, expires = "1s" }
on_error = "deny"
"#;

/// How many users there are.
const USERS: usize = 3;

/// A node in a process of its own, and the way from it to the server; to a cluster there are many.
struct Member {
    url: String,
    proxy: Option<Proxy>,
    log: PathBuf,
    process: Child,
}

impl Member {
    fn behind_proxy(server: &Server, log: PathBuf) -> Self {
        let proxy = Proxy::start(server.address());
        let url = proxy.url();
        Self { process: spawn(&url, &log), url, proxy: Some(proxy), log }
    }

    fn of_cluster(cluster: &Cluster, log: PathBuf) -> Self {
        let url = cluster::url(cluster);
        Self { process: spawn(&url, &log), url, proxy: None, log }
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("it has one")
    }

    /// Kills the process, and starts another one in its place.
    fn replace(&mut self) {
        self.kill();
        self.process = spawn(&self.url, &self.log);
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// How much it has done: the length of its log.
    fn progress(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |it| it.len())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(url: &str, log: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "programme::worker::work_until_killed", "--ignored", "--nocapture"])
        .env(worker::URL, url)
        .env(worker::LOG, log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The faults of a programme, in some order.
struct Faults {
    random: u64,
    /// When the server's clock was set, by the machine's, in microseconds.
    clock_set_us: Vec<u64>,
}

impl Faults {
    fn below(&mut self, end: u64) -> u64 {
        // The generator of Numerical Recipes; its high bits are good enough.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn pause(&mut self) {
        thread::park_timeout(Duration::from_millis(100 + self.below(400)));
    }

    /// Makes one fault of a cluster, and ends it. A server is away for less than the time after which
    /// a replica takes its place: that may lose what was acknowledged.
    fn make_in_cluster(&mut self, cluster: &Cluster, members: &mut [Member]) -> &'static str {
        let count = u64::try_from(members.len()).unwrap();
        let which = usize::try_from(self.below(count)).unwrap();
        let primaries: Vec<&Server> = cluster::primaries(cluster).collect();
        let primary = primaries[which % primaries.len()];
        match self.below(6) {
            0..=2 => {
                members[which].replace();
                "a node is killed"
            }
            3 => {
                members[which].signal("-STOP");
                self.pause();
                members[which].signal("-CONT");
                "a node is paused"
            }
            4 => {
                primary.pause();
                self.pause();
                primary.resume();
                "a server is paused"
            }
            _ => {
                primary.command(&["SCRIPT", "FLUSH"]);
                "scripts are gone"
            }
        }
    }

    /// Makes one fault, and ends it.
    fn make(&mut self, server: &Server, members: &mut [Member]) -> &'static str {
        let count = u64::try_from(members.len()).unwrap();
        let which = usize::try_from(self.below(count)).unwrap();
        match self.below(13) {
            0 | 1 => {
                server.kill();
                self.pause();
                server.restart();
                "the server is killed"
            }
            2 => {
                server.pause();
                self.pause();
                server.resume();
                "the server is paused"
            }
            3 => {
                members[which].replace();
                "a node is killed"
            }
            4 => {
                members[which].signal("-STOP");
                self.pause();
                members[which].signal("-CONT");
                "a node is paused"
            }
            5 => {
                members.iter().for_each(|it| it.proxy().cut(Cut::Reset));
                "connections are reset"
            }
            6 => {
                members[which].proxy().cut(Cut::Close);
                "a connection is closed"
            }
            7 => {
                members[which].proxy().lose_replies("SET", 2);
                members[which].proxy().lose_replies("EVALSHA", 2);
                "replies are lost"
            }
            8 | 9 => {
                let fault = if self.below(2) == 0 { Fault::Hold } else { Fault::Discard };
                members[which].proxy().set(fault);
                self.pause();
                members[which].proxy().set(Fault::Pass);
                "a link is half open"
            }
            10 => {
                server.command(&["SCRIPT", "FLUSH"]);
                "scripts are gone"
            }
            11 => {
                server.command(&["CONFIG", "SET", "maxmemory", "1"]);
                self.pause();
                server.command(&["CONFIG", "SET", "maxmemory", "0"]);
                "the server is full"
            }
            _ => {
                self.clock_set_us.push(machine_us());
                server.step_clock(if self.below(2) == 0 { -10 } else { 10 });
                "the clock is set"
            }
        }
    }
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |it| it.parse().expect("a number"))
}

/// How many faults there are, and in which order.
fn faults() -> (u64, Faults) {
    let faults = Faults { random: number("TIDEGATE_SEED", 1), clock_set_us: Vec::new() };
    (number("TIDEGATE_FAULTS", 10), faults)
}

fn run(program: Program) {
    let server = Server::builder(program).appendonly(Appendfsync::Always).steppable_clock().start();
    let members =
        (0..3).map(|it| Member::behind_proxy(&server, log(&server, it))).collect::<Vec<_>>();
    let clock_set_us = run_with(members, |faults, members| faults.make(&server, members));
    let books = Books::read((0..3).map(|it| log(&server, it)));
    books.check(&Node::with(builder(&server.url()), POLICY), &clock_set_us);
    books.check_keys([&server].into_iter(), "tidegate");
}

fn run_in_cluster(program: Program) {
    let cluster = Cluster::start(program);
    // It fails over when a server is silent for this long, which is not to happen here. A cluster that starts
    // with it may take as long to agree.
    for node in cluster.nodes() {
        let _ = node.command(&["CONFIG", "SET", "cluster-node-timeout", "30000"]).success();
    }
    let folder = &cluster.nodes()[0];
    let members =
        (0..3).map(|it| Member::of_cluster(&cluster, log(folder, it))).collect::<Vec<_>>();
    let clock_set_us =
        run_with(members, |faults, members| faults.make_in_cluster(&cluster, members));
    let books = Books::read((0..3).map(|it| log(folder, it)));
    books.check(&Node::with(builder(&cluster::url(&cluster)), POLICY), &clock_set_us);
    books.check_keys(cluster::primaries(&cluster), "{tidegate}");
}

fn log(server: &Server, number: usize) -> PathBuf {
    server.folder().join(format!("node-{number}.log"))
}

fn run_with(
    mut members: Vec<Member>,
    mut make: impl FnMut(&mut Faults, &mut [Member]) -> &'static str,
) -> Vec<u64> {
    let (rounds, mut faults) = faults();
    let mut made = Vec::new();
    for _ in 0..rounds {
        until_all_work(&members, &made);
        made.push(make(&mut faults, &mut members));
    }
    until_all_work(&members, &made);
    members.iter_mut().for_each(Member::kill);
    faults.clock_set_us
}

/// The machine's time, in microseconds, which no fault sets.
fn machine_us() -> u64 {
    MonotonicClock.wall().as_nanos() / 1_000
}

/// Waits until each node has done something since.
fn until_all_work(members: &[Member], made: &[&str]) {
    let before: Vec<u64> = members.iter().map(Member::progress).collect();
    let last = made.last().unwrap_or(&"the start");
    until(&format!("all nodes work after: {last}"), || {
        members.iter().zip(&before).all(|(it, before)| it.progress() > before + 2_000)
    });
}

#[test]
fn books_are_right_after_faults_with_valkey() {
    run(Program::Valkey9);
}

#[test]
fn books_are_right_after_faults_with_redis() {
    run(Program::Redis7);
}

#[test]
fn books_are_right_after_faults_of_a_cluster() {
    run_in_cluster(Program::Valkey9);
}
