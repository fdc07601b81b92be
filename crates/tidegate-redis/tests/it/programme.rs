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

use tidegate_redis_servers::{Appendfsync, Cut, Fault, Program, Proxy, Server, until};

use crate::support::{Node, builder};
use books::Books;

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
name   = "jobs"
domain = "jobs"
slots  = { max = 2, expires = "1s" }
on_error = "deny"
"#;

/// How many users there are.
const USERS: usize = 3;

/// A node in a process of its own, and the way from it to the server.
struct Member {
    proxy: Proxy,
    log: PathBuf,
    process: Child,
}

impl Member {
    fn start(server: &Server, log: PathBuf) -> Self {
        let proxy = Proxy::start(server.address());
        let process = spawn(&proxy, &log);
        Self { proxy, log, process }
    }

    /// Kills the process, and starts another one in its place.
    fn replace(&mut self) {
        self.kill();
        self.process = spawn(&self.proxy, &self.log);
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

fn spawn(proxy: &Proxy, log: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "programme::worker::work_until_killed", "--ignored", "--nocapture"])
        .env(worker::URL, proxy.url())
        .env(worker::LOG, log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The faults of a programme, in some order.
struct Faults {
    random: u64,
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
                members.iter().for_each(|it| it.proxy.cut(Cut::Reset));
                "connections are reset"
            }
            6 => {
                members[which].proxy.cut(Cut::Close);
                "a connection is closed"
            }
            7 => {
                members[which].proxy.lose_replies("SET", 2);
                members[which].proxy.lose_replies("EVALSHA", 2);
                "replies are lost"
            }
            8 | 9 => {
                let fault = if self.below(2) == 0 { Fault::Hold } else { Fault::Discard };
                members[which].proxy.set(fault);
                self.pause();
                members[which].proxy.set(Fault::Pass);
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
                server.step_clock(if self.below(2) == 0 { -10 } else { 10 });
                "the clock is set"
            }
        }
    }
}

fn run(program: Program) {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |it| it.parse().expect("a number"))
    };
    let (rounds, seed) = (number("TIDEGATE_FAULTS", 10), number("TIDEGATE_SEED", 1));
    let server = Server::builder(program).appendonly(Appendfsync::Always).steppable_clock().start();
    let log = |number: usize| server.folder().join(format!("node-{number}.log"));
    let mut members: Vec<Member> = (0..3).map(|it| Member::start(&server, log(it))).collect();
    let mut faults = Faults { random: seed };
    let mut made = Vec::new();
    for _ in 0..rounds {
        until_all_work(&members, &made);
        made.push(faults.make(&server, &mut members));
    }
    until_all_work(&members, &made);
    members.iter_mut().for_each(Member::kill);
    let books = Books::read((0..3).map(log));
    let node = Node::with(builder(&server.url()), POLICY);
    books.check(&node);
    books.check_keys(&server);
    assert!(made.len() < 10 || books.operations() > 200, "{} operations", books.operations());
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
