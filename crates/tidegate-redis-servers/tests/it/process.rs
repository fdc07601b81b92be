//! Servers end with the process that started them.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use tidegate_redis_servers::{Connection, Program, Server, until};

/// Only in the child process of the test below.
const IS_CHILD: &str = "TIDEGATE_TEST_IS_CHILD";

#[test]
fn a_server_is_killed_with_the_test_process() {
    if env::var_os(IS_CHILD).is_some() {
        let server = Server::start(Program::Valkey9);
        println!("\naddress={}", server.address());
        loop {
            thread::park();
        }
    }
    let name = "process::a_server_is_killed_with_the_test_process";
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(IS_CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.into_iter().find_map(|line| Some(line.strip_prefix("address=")?.to_owned()));
    let address: SocketAddr = address.expect("the child starts a server").parse().unwrap();
    let info = Connection::open(address).unwrap().command(&["INFO", "server"]).unwrap().text();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().to_owned();
    let folder = Connection::open(address).unwrap().command(&["CONFIG", "GET", "dir"]).unwrap();
    assert!(Path::new("/proc").join(&pid).exists());

    child.kill().unwrap();
    child.wait().unwrap();
    until("the server is gone", || Connection::open(address).is_err());
    // The killed process could not do it.
    fs::remove_dir_all(folder.array()[1].text()).unwrap();
}
