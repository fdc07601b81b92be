//! The program and its client.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::ai::Ai;
use crate::support::{GOVERNORS, Http, Scratch, TIMEOUT};

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate-proposals");

/// The running program.
pub(crate) struct Program {
    child: Child,
    pub(crate) http: Http,
}

/// The program, perhaps not running yet.
pub(crate) struct Spawned(Child);

impl Spawned {
    /// Kills it with SIGKILL.
    pub(crate) async fn killed(mut self) {
        self.0.kill().await.unwrap();
    }
}

impl Program {
    pub(crate) fn spawned(scratch: &Scratch, ai: SocketAddr, more: &[(&str, &str)]) -> Spawned {
        let child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--governance-interval", "1"])
            .env("PROPOSALS_STORE", scratch.store())
            .env("PROPOSALS_GOVERNORS", GOVERNORS)
            .env("PROPOSALS_HOST_SECRET", "host-secret")
            .env("PROPOSALS_COOLDOWN", "off")
            .env("INTERPRETER_URL", format!("http://{ai}/interpret"))
            .env_remove("RUST_LOG")
            .envs(more.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        Spawned(child.unwrap())
    }

    pub(crate) async fn started(scratch: &Scratch, ai: SocketAddr, more: &[(&str, &str)]) -> Self {
        let Spawned(mut child) = Self::spawned(scratch, ai, more);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(TIMEOUT, lines.next_line()).await.expect("its start in time");
        let Some(line) = line.unwrap() else {
            let mut log = String::new();
            child.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
            panic!("it did not start: {log}");
        };
        let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, http: Http::new(address) }
    }

    /// Kills it with SIGKILL; returns its log.
    pub(crate) async fn killed(mut self) -> String {
        self.child.kill().await.unwrap();
        self.log().await
    }

    /// Stops it by a signal; returns its log.
    async fn stopped(mut self, signal: &str) -> String {
        let pid = self.child.id().unwrap().to_string();
        Command::new("kill").args([signal, &pid]).status().await.unwrap();
        let log = self.log().await;
        let status = timeout(TIMEOUT, self.child.wait()).await.expect("its end in time");
        assert!(status.unwrap().success(), "{log}");
        log
    }

    /// What it logs until it ends.
    async fn log(&mut self) -> String {
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        timeout(TIMEOUT, stderr.read_to_string(&mut log)).await.expect("its end in time").unwrap();
        log
    }

    /// Runs the client.
    async fn client(&self, who: &str, arguments: &[&str]) -> Output {
        Command::new(BINARY)
            .args(arguments)
            .env("PROPOSALS_URL", format!("http://{}", self.http.address))
            .env("PROPOSALS_SECRET", format!("{who}-secret"))
            .output()
            .await
            .unwrap()
    }

    /// What the client prints.
    pub(crate) async fn prints(&self, who: &str, arguments: &[&str]) -> String {
        let output = self.client(who, arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn whole_flow_by_the_client() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let printed = program.prints("ada", &["propose", "--tier", "4", "cap 1"]).await;
    let id = printed.split("  ").next().unwrap();
    assert!(printed.contains("interpreted  ada  tier 4  0 yes 0 no  cap 1, as I see it"));
    assert!(program.prints("ada", &["confirm", id]).await.contains("  voting  "));
    for who in ["ada", "bob", "cy"] {
        program.prints(who, &["vote", id, "yes"]).await;
    }
    let other = program.prints("bob", &["propose", "--tier", "1", "another"]).await;
    let other = other.split("  ").next().unwrap();
    let cancelled = program.prints("bob", &["cancel", other]).await;
    assert!(cancelled.ends_with("(cancelled by its governor)\n"), "{cancelled}");
    let early = program.client("host", &["tally"]).await;
    assert_eq!(early.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(early.stderr).unwrap(),
        "denied: The window spans 1 rounds of the game; 0 of them were played.\n"
    );
    let round = program.prints("host", &["round", "1"]).await;
    assert_eq!(round, "window 1: 1 of 1 rounds, 3 proposals each, the tally is due\n");
    let tally = program.prints("host", &["tally"]).await;
    let expected = format!(
        "{id}  passed  3 yes 0 no\nwindow 1 closed; the cap is 1 from the next window on\n"
    );
    assert_eq!(tally, expected);
    let balances = program.prints("cy", &["balances"]).await;
    assert!(balances.starts_with("ada  3 tokens  1 of 1 proposals left\n"), "{balances}");
    let audit = program.prints("cy", &["audit", "--governor", "bob"]).await;
    assert!(audit.contains("token.refunded  bob  +1  cancelled by its governor\n"), "{audit}");
    let json = program.prints("cy", &["proposals", "--status", "passed", "--format", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["proposals"][0]["id"], id);
    assert!(program.prints("cy", &["window"]).await.starts_with("window 2: 0 of 1 rounds"));
    let unknown = program.client("unknown", &["balances"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let log = program.stopped("-TERM").await;
    assert!(log.ends_with("stopped\n"), "{log}");
}

#[tokio::test]
async fn stop_cancels_queued_proposals_and_releases_their_tokens() {
    let (scratch, mut ai) = (Scratch::new(), Ai::slow().await);
    let calls = [("INTERPRETER_CALLS", "1")];
    let program = Program::started(&scratch, ai.address, &calls).await;
    let pending = ["ada", "bob"].map(|who| {
        let http = program.http.clone();
        tokio::spawn(async move { http.propose(who, 1, "a change").await })
    });
    let call = ai.next().await;
    for who in ["ada", "bob"] {
        program.http.until(who, "interpreting", 1).await;
    }
    let stopping = tokio::spawn(program.stopped("-INT"));
    let called = call.body["governor"].as_str().unwrap().to_owned();
    let [ada, bob] = pending;
    let (first, second) = if called == "ada" { (ada, bob) } else { (bob, ada) };
    let cancelled = second.await.unwrap();
    assert_eq!(cancelled.status, 503);
    assert!(cancelled.detail().ends_with("the desk is stopping."), "{cancelled:?}");
    // A call in progress completes.
    call.agree();
    first.await.unwrap().ok();
    stopping.await.unwrap();
    let program = Program::started(&scratch, ai.address, &[]).await;
    let other = if called == "ada" { "bob" } else { "ada" };
    assert_eq!(program.http.left(&called).await.0, 1);
    assert_eq!((program.http.left(other).await.0, program.http.sum(other).await), (2, 2));
}

#[tokio::test]
async fn folder_belongs_to_one_desk_at_a_time() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let _program = Program::started(&scratch, ai, &[]).await;
    let Spawned(child) = Program::spawned(&scratch, ai, &[]);
    let output = timeout(TIMEOUT, child.wait_with_output()).await.expect("its end in time");
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use"), "{output:?}");
}

#[tokio::test]
async fn invalid_settings_prevent_the_start_and_are_named() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    for (name, value, named) in [
        ("PROPOSALS_GOVERNORS", "s3cret", "--governors"),
        ("PROPOSALS_HOST_SECRET", "ada-secret", "the host has the secret of a governor"),
        ("PROPOSALS_HOST_SECRET", "", "--host-secret"),
        ("INTERPRETER_URL", "ftp://x/", "--interpreter-url"),
        ("INTERPRETER_TIMEOUT", "0s", "--interpreter-timeout"),
        ("INTERPRETER_CALLS", "0", "--interpreter-calls"),
        ("PINWHEEL_GOVERNANCE_INTERVAL", "0", "--governance-interval"),
        ("PROPOSALS_PER_WINDOW", "11", "--proposals-per-window"),
        ("PROPOSALS_PER_WINDOW", "0", "--proposals-per-window"),
        ("PROPOSALS_COOLDOWN", "-1s", "--cooldown"),
        ("PROPOSALS_CONFIRM_WITHIN", "soon", "--confirm-within"),
        ("PROPOSALS_CONFIRM_WITHIN", "1ms", "a governor needs time to read it: at least 10s"),
        ("PROPOSALS_CONFIRM_WITHIN", "9999ms", "at least 10s"),
        ("PROPOSALS_CONNECTIONS", "0", "--connections"),
        ("PROPOSALS_CONNECTIONS_PER_ADDRESS", "many", "--connections-per-address"),
        ("PROPOSALS_LISTEN", "here", "--listen"),
        ("RUST_LOG", "warning", "error: RUST_LOG is \"warning\": "),
    ] {
        let output = Command::new(BINARY)
            .arg("serve")
            .env("PROPOSALS_STORE", scratch.store())
            .env("PROPOSALS_GOVERNORS", GOVERNORS)
            .env("PROPOSALS_HOST_SECRET", "host-secret")
            .env("INTERPRETER_URL", format!("http://{ai}/interpret"))
            .env(name, value)
            .output();
        let output = output.await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(named), "{name}={value}: {message}");
    }
    let output = Command::new(BINARY).args(["serve", "--help"]).output().await.unwrap();
    let help = String::from_utf8_lossy(&output.stdout);
    for name in ["PINWHEEL_GOVERNANCE_INTERVAL", "PROPOSALS_COOLDOWN", "INTERPRETER_URL"] {
        assert!(help.contains(name), "{help}");
    }
}
