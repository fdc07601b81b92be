//! `tidegate serve`: the daemon, from its settings to its end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate_server::{Listener, Server, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{ServeArgs, is_stdin};
use crate::input;
use crate::io::{Exit, Io};

mod logging;
mod notify;

/// Serves until somebody asks it to stop.
pub(crate) fn run(args: &ServeArgs, io: &mut Io<'_>) -> Result<Exit, io::Error> {
    let policy = match &args.policy {
        None => demo(),
        Some(path) => match input::policy(path, io.stdin) {
            Ok(parsed) => {
                for warning in parsed.warnings {
                    writeln!(io.stderr, "{warning}")?;
                }
                parsed.policy
            }
            Err(why) => {
                writeln!(io.stderr, "{why}")?;
                return Ok(Exit::NoAnswer);
            }
        },
    };
    let settings = match settings(args, policy) {
        Ok(settings) => settings,
        Err(why) => {
            writeln!(io.stderr, "error: {why}")?;
            return Ok(Exit::NoAnswer);
        }
    };
    logging::begin(args.log, args.log_level);
    let runtime = match runtime(args.threads) {
        Ok(runtime) => runtime,
        Err(error) => {
            writeln!(io.stderr, "error: cannot start threads: {error}")?;
            return Ok(Exit::NoAnswer);
        }
    };
    let served = runtime.block_on(serve(args, settings, io));
    end(runtime);
    served
}

/// Ends the threads, but waits for none that is stuck: what had to be made safe is safe.
fn end(runtime: Runtime) {
    runtime.shutdown_timeout(THREADS_MOST);
}

/// How long threads may take to come to their end.
const THREADS_MOST: Duration = Duration::from_secs(1);

async fn serve(args: &ServeArgs, settings: Settings, io: &mut Io<'_>) -> io::Result<Exit> {
    // Whoever is told that the daemon is there may ask it to stop at once.
    let mut signals = Signals::listen()?;
    let server = match Server::start(settings).await {
        Ok(server) => server,
        Err(error) => {
            writeln!(io.stderr, "error: {error}")?;
            return Ok(Exit::NoAnswer);
        }
    };
    print_listeners(args, &server, io.stderr)?;
    notify::ready();
    let signal = loop {
        match signals.next().await {
            "SIGHUP" => server.reload(),
            signal => break signal,
        }
    };
    tracing::info!(signal, "stopping");
    notify::shutdown();
    // Somebody who asks twice does not want to wait.
    let is_stopped = tokio::select! {
        () = server.stop() => true,
        _ = signals.second_stop() => false,
    };
    if !is_stopped {
        tracing::warn!("stopped at once, as asked");
        return Ok(Exit::No);
    }
    tracing::info!("stopped");
    Ok(Exit::Yes)
}

/// Signals that mean something to a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    async fn second_stop(&mut self) {
        while self.next().await == "SIGHUP" {}
    }
}

/// As many threads as there are processors, unless somebody says otherwise.
fn runtime(threads: Option<usize>) -> io::Result<Runtime> {
    let threads = match threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, Into::into),
    };
    // One thread that has nobody to share with is faster.
    let mut builder =
        if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads.max(1)).enable_all().build()
}

/// What holds: flags and environment, else the policy's `[server]` table, else what is usual.
fn settings(args: &ServeArgs, policy: Policy) -> Result<Settings, String> {
    let has_socket = policy.server().unix().is_some();
    let store = args.store.clone().or_else(|| policy.server().store().map(Into::into));
    let mut settings = Settings::new(policy);
    if !has_socket {
        let socket = tidegate_server::default_socket();
        settings = settings.listen(Listener::Unix, Some(&socket.to_string_lossy()));
    }
    let addresses = [
        (Listener::Http, &args.http),
        (Listener::Grpc, &args.grpc),
        (Listener::Resp, &args.resp),
        (Listener::Unix, &args.unix),
        (Listener::Admin, &args.admin),
    ];
    for (listener, address) in addresses {
        if let Some(address) = address {
            settings = settings
                .listen(listener, Some(address.as_str()).filter(|address| *address != "off"));
        }
    }
    if let Some(token) = &args.admin_token {
        settings = settings.admin_token(token);
    }
    if let Some(path) = args.policy.as_deref().filter(|path| !is_stdin(path)) {
        settings = settings.policy_path(path);
    }
    let folder = store.as_deref().map_or(Ok(None), folder)?;
    Ok(settings.store_folder(folder.as_deref()))
}

/// The folder of a store, or none if it is in memory.
fn folder(store: &str) -> Result<Option<PathBuf>, String> {
    match store.split_once(':') {
        None if store == "memory" => Ok(None),
        Some(("file", path)) if !path.is_empty() => Ok(Some(Path::new(path).into())),
        Some(("redis" | "rediss", _)) => {
            Err("a store on Redis is not part of this version\n  = hint: use --store memory or \
                 --store file:PATH"
                .into())
        }
        _ => Err(format!("{store:?} is not a store\n  = hint: use memory or file:PATH")),
    }
}

/// Says where the daemon is, and how to talk to it.
fn print_listeners(args: &ServeArgs, server: &Server, out: &mut dyn Write) -> io::Result<()> {
    if args.policy.is_some() {
        for listener in Listener::ALL {
            if let Some(address) = server.address_text(listener) {
                tracing::info!(listener = listener.name(), address, "listening");
            }
        }
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        out,
        "tidegate {version} with a demo policy: five requests a minute for each user.\n"
    )?;
    for listener in Listener::ALL {
        if let Some(address) = server.address_text(listener) {
            writeln!(out, "  {:<6} {address:<24} {}", listener.name(), about(listener))?;
        }
    }
    if let Some(http) = server.address(Listener::Http) {
        writeln!(
            out,
            "\nAsk it six times within a minute; the sixth answer is a 429:\n\n  \
             curl -i http://{http}/v1/check -d '{{\"attributes\":{{\"user\":\"ada\"}}}}'\n"
        )?;
    }
    writeln!(out, "Then write a policy of your own, and run `tidegate serve policy.toml`.")?;
    out.flush()
}

const fn about(listener: Listener) -> &'static str {
    match listener {
        Listener::Http => "JSON; /metrics, /openapi.json",
        Listener::Grpc => "Envoy's rate limit service",
        Listener::Resp => "Redis clients: CL.THROTTLE, TG.CHECK",
        Listener::Unix => "tidegate ping, tidegate admin",
        Listener::Admin => "changes and looks inside, over HTTP",
    }
}

/// What is served where there is no file.
fn demo() -> Policy {
    Policy::from_toml(DEMO).expect("the demo is in order, as a test says")
}

const DEMO: &str = r#"
[[rule]]
name   = "demo"
key    = ["user"]
window = { max = 5, per = "1m" }
deny   = "five requests a minute are enough for a demo"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_in_order() {
        assert_eq!(demo().rules().len(), 1);
        assert!(demo().warnings().is_empty());
    }

    #[test]
    fn a_thread_that_is_stuck_does_not_keep_the_process() {
        let runtime = runtime(Some(2)).unwrap();
        let (end_it, wait) = std::sync::mpsc::channel::<()>();
        let stuck = runtime.spawn_blocking(move || wait.recv());
        end(runtime);
        assert!(!stuck.is_finished());
        drop(end_it);
    }

    #[test]
    fn stores_are_named_by_what_they_are() {
        assert_eq!(folder("memory"), Ok(None));
        assert_eq!(folder("file:/var/lib/tidegate"), Ok(Some("/var/lib/tidegate".into())));
        for wrong in ["", "file", "file:", "disk:/x", "redis://localhost"] {
            assert!(folder(wrong).unwrap_err().contains("hint"), "{wrong}");
        }
    }
}
