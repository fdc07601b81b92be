//! A daemon in a few lines: `serve POLICY`. Prints its addresses, and stops at SIGTERM or ctrl-c.

#![allow(clippy::print_stdout, reason = "prints its addresses")]

use std::path::Path;

use tidegate_server::{Listener, Server, Settings, load};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve POLICY")?;
    let file = load(Path::new(&path))?;
    let server = Server::start(Settings::new(file).policy_path(path)).await?;
    for listener in Listener::ALL {
        if let Some(address) = server.address(listener) {
            println!("{listener} {address}");
        }
    }
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    server.stop().await;
    Ok(())
}
