//! The program itself: configured by its environment, used over sockets, stopped by signals.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::{SECRET, TIMEOUT, health, send, update};
use crate::server::{as_strs, environment};
use crate::stand_in::StandIn;

/// A running webhook.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    pub(crate) async fn start(variables: &[(&str, &str)]) -> Self {
        let mut child = command(variables)
            .env("WEBHOOK_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap();
        let line = line.expect("a first line");
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        Self { child, address: address.expect(&line).parse().unwrap() }
    }

    /// Sends a signal; returns the exit code and the log.
    pub(crate) async fn ended_by(mut self, signal: &str) -> (Option<i32>, String) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
        let mut log = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        timeout(TIMEOUT, stderr.read_to_string(&mut log)).await.unwrap().unwrap();
        (timeout(TIMEOUT, self.child.wait()).await.unwrap().unwrap().code(), log)
    }
}

/// The program with only this environment.
fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-webhook"));
    command.env_clear().envs(variables.iter().copied()).kill_on_drop(true);
    command
}

pub(crate) async fn output(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    timeout(TIMEOUT, command(variables).args(arguments).output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn program_limits_reports_health_and_logs_no_secrets() {
    let (mut agent, mut chat) = (StandIn::new().await, StandIn::new().await);
    let environment = environment(&agent, &chat);
    // A new hour during the test would allow more.
    let variables =
        [&[("RATE_LIMIT_ALGORITHM", "bucket"), ("RUST_LOG", "debug")], &*as_strs(&environment)];
    let program = Program::start(&variables.concat()).await;
    for update_id in 0..21 {
        send(program.address, &update(update_id, 7)).await.is_ok();
    }
    for _ in 0..20 {
        agent.next().await;
    }
    assert_eq!(chat.next().await.path, "/bot123:token/sendMessage");
    assert_eq!(health(program.address).await["ok"], true);
    let (status, log) = program.ended_by("-TERM").await;
    assert_eq!(status, Some(0));
    assert!(log.contains("rate limit reached user=7 update_id=20"), "{log}");
    assert!(log.contains("stopped"), "{log}");
    assert!(agent.is_idle() && chat.is_idle());
    for secret in [SECRET, "123:token"] {
        assert!(!log.contains(secret), "the log contains {secret}: {log}");
    }
}

#[tokio::test]
async fn insecure_settings_are_logged_at_the_start() {
    let (agent, chat) = (StandIn::new().await, StandIn::new().await);
    let mut environment = environment(&agent, &chat);
    environment.retain(|(name, _)| *name != "TELEGRAM_WEBHOOK_SECRET");
    environment.push(("TELEGRAM_WEBHOOK_AUTH", "off".to_owned()));
    let program = Program::start(&as_strs(&environment)).await;
    crate::http::post(program.address, "", update(1, 7).to_string().as_bytes()).await.is_ok();
    let (status, log) = program.ended_by("-INT").await;
    assert_eq!(status, Some(0));
    assert!(log.contains("TELEGRAM_WEBHOOK_AUTH is off: any client may send updates"), "{log}");
    assert!(log.contains("TELEGRAM_API_BASE is not https"), "{log}");
}

#[tokio::test]
async fn invalid_value_prevents_the_start_and_is_named() {
    let (agent, chat) = (StandIn::new().await, StandIn::new().await);
    let environment = environment(&agent, &chat);
    for (name, value) in [
        ("RATE_LIMIT_MAX", "many"),
        ("RATE_LIMIT_MAX", "0"),
        ("RATE_LIMIT_MAX", "-1"),
        ("RATE_LIMIT_WINDOW_MS", "1h"),
        ("RATE_LIMIT_WINDOW_MS", "0"),
        ("RATE_LIMIT_WINDOW_MS", "-3600000"),
        ("RATE_LIMIT_ALGORITHM", "leaky"),
        ("RATE_LIMIT_USERS", "ada=1"),
        ("RATE_LIMIT_STORE", "redis://localhost"),
        ("ALLOWED_USER_IDS", ""),
        ("AGENT_URL", "agent"),
    ] {
        let variables = [&*as_strs(&environment), &[(name, value)]].concat();
        let output = output(&variables, &[]).await;
        assert_eq!(output.status.code(), Some(1), "{name}={value}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.starts_with(&format!("error: {name} is {value:?}: expected ")),
            "{message}"
        );
        assert_eq!(output.stdout, b"", "{name}={value}");
    }
    let message = String::from_utf8(output(&[], &[]).await.stderr).unwrap();
    assert!(message.starts_with("error: TELEGRAM_BOT_TOKEN is not set: "), "{message}");
    let variables = [&*as_strs(&environment), &[("RUST_LOG", "warning")]].concat();
    let message = String::from_utf8(output(&variables, &[]).await.stderr).unwrap();
    assert!(message.starts_with("error: RUST_LOG is \"warning\": "), "{message}");
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let (agent, chat) = (StandIn::new().await, StandIn::new().await);
    let taken = agent.address.to_string();
    let environment = environment(&agent, &chat);
    let variables = [&*as_strs(&environment), &[("WEBHOOK_LISTEN", &*taken)]].concat();
    let message = String::from_utf8(output(&variables, &[]).await.stderr).unwrap();
    assert!(message.contains(&format!("error: cannot listen on {taken}: ")), "{message}");
}

#[tokio::test]
async fn help_and_readme_list_every_setting() {
    let output = output(&[], &["--help"]).await;
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    let readme = include_str!("../../README.md");
    for variable in tidegate_webhook::VARIABLES {
        assert!(help.contains(variable.name), "{help}");
        let default = variable.default.map_or(variable.unset.to_owned(), |it| format!("`{it}`"));
        let row = format!("| `{}` | {default} | ", variable.name);
        assert!(readme.contains(&row), "the README lacks {row}");
    }
}
