//! A daemon in a few lines: `serve POLICY`. It tells where it listens, and ends when it is told to.

#![allow(clippy::print_stdout, reason = "a program says where it is")]

use tidegate::policy::Policy;
use tidegate_server::{Listener, Server, Settings};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("say which policy: serve POLICY")?;
    let policy = Policy::from_toml(&std::fs::read_to_string(&path)?)?;
    let server = Server::start(Settings::new(policy).policy_path(path)).await?;
    for listener in Listener::ALL {
        if let Some(address) = server.address(listener) {
            println!("{listener} {address}");
        }
    }
    let mut told = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = told.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    server.stop().await;
    Ok(())
}
