//! `tidegate serve`: runs the daemon.

use std::io::{self, Write};
use std::time::Duration;

use tidegate::policy::{Parsed, Policy};
use tidegate::redis::Redis;
use tidegate_server::{Listener, Server, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Access, LogFormat, ServeArgs, is_stdin};
use crate::input;
use crate::io::{Exit, Io};

mod core_dumps;
mod log_filter;
mod logging;
mod notify;
mod store;

/// Serves until a signal stops the daemon.
pub(crate) fn run(args: &ServeArgs, io: &mut Io<'_>) -> Result<Exit, io::Error> {
    logging::init(args.log, args.log_level);
    // Before any secret is read.
    if args.core_dumps != Some(true) {
        core_dumps::disable();
    }
    let file = match &args.policy {
        None => Parsed::from_code(demo()),
        Some(path) => match input::policy(path, args.yaml.options(), io.stdin) {
            Ok(parsed) => {
                for warning in &parsed.warnings {
                    match args.log {
                        LogFormat::Text => writeln!(io.stderr, "{warning}")?,
                        LogFormat::Json => tracing::warn!(warning = warning.to_string(), "policy"),
                    }
                }
                parsed
            }
            Err(why) => return cannot_start(args, io, &why.to_string()),
        },
    };
    let (settings, redis) = match settings(args, file) {
        Ok(settings) => settings,
        Err(why) => return cannot_start(args, io, &format!("error: {why}")),
    };
    let runtime = match runtime(args.threads) {
        Ok(runtime) => runtime,
        Err(error) => {
            return cannot_start(args, io, &format!("error: cannot start threads: {error}"));
        }
    };
    let served = runtime.block_on(serve(args, settings, redis, io));
    shut_down(runtime);
    tidegate_listen::log::report_left_out();
    served
}

/// Reports why the daemon cannot start: as text for people, or as an event where events are JSON.
fn cannot_start(args: &ServeArgs, io: &mut Io<'_>, error: &str) -> Result<Exit, io::Error> {
    match args.log {
        LogFormat::Text => writeln!(io.stderr, "{error}")?,
        LogFormat::Json => tracing::error!(error, "cannot start"),
    }
    Ok(Exit::Error)
}

/// Ends the threads without waiting for a stuck one: the store is synced by then.
fn shut_down(runtime: Runtime) {
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
}

/// How long to wait until other daemons know that this one is gone.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for threads to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

async fn serve(
    args: &ServeArgs,
    settings: Settings,
    redis: Option<Redis>,
    io: &mut Io<'_>,
) -> io::Result<Exit> {
    // Before the daemon reports that it is ready: a signal may follow at once.
    let mut signals = Signals::listen()?;
    let server = match Server::start(settings).await {
        Ok(server) => server,
        Err(error) => return cannot_start(args, io, &format!("error: {error}")),
    };
    if let Some(redis) = &redis {
        set_node_address(redis, &server);
    }
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
    let stop = async {
        server.stop().await;
        if let Some(redis) = &redis {
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, redis.leave()).await;
        }
    };
    // A second signal stops at once.
    let is_stopped = tokio::select! {
        () = stop => true,
        _ = signals.second_stop() => false,
    };
    if !is_stopped {
        tracing::warn!("stopped at once by a second signal");
        return Ok(Exit::Failure);
    }
    tracing::info!("stopped");
    Ok(Exit::Success)
}

/// Sets the address that other daemons list for this one: that of HTTP, or of another listener that is
/// on.
fn set_node_address(redis: &Redis, server: &Server) {
    let listeners = [Listener::Http, Listener::Admin, Listener::Grpc, Listener::Resp];
    if let Some(address) = listeners.into_iter().find_map(|it| server.address_text(it)) {
        // An address of a socket is short enough.
        let _ = redis.set_node_address(&address);
    }
}

/// The signals that the daemon handles.
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

/// A runtime with one thread per processor, unless `threads` is set.
fn runtime(threads: Option<usize>) -> io::Result<Runtime> {
    let threads = match threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, Into::into),
    };
    // The single-threaded scheduler is faster.
    let mut builder =
        if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads.max(1)).enable_all().build()
}

/// The settings from flags and environment, else the policy's `[server]` table, else defaults; and the
/// store that several daemons share, if it is one.
fn settings(args: &ServeArgs, file: Parsed) -> Result<(Settings, Option<Redis>), String> {
    let has_socket = file.server.unix().is_some();
    let store = args.store.store.clone().or_else(|| file.server.store().map(Into::into));
    let server = file.server.clone();
    let mut settings = Settings::new(file).yaml_options(args.yaml.options());
    if let Some(is_on) = args.response_metadata {
        settings = settings.response_metadata(is_on);
    }
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
    if let Some(path) = &args.access.tokens {
        settings = settings.tokens(path);
    }
    if let Some(access) = args.access.access {
        settings = settings.open_access(access == Access::Open);
    }
    settings = settings
        .tls_certificate(args.tls.tls_cert.as_deref(), args.tls.tls_key.as_deref())
        .tls_client_ca(args.tls.tls_client_ca.as_deref());
    if let Some(path) = args.policy.as_deref().filter(|path| !is_stdin(path)) {
        settings = settings.policy_path(path);
    }
    match store.as_deref() {
        Some(url) if store::is_shared(url) => {
            let redis = store::redis(url, &args.store, &server)?;
            Ok((settings.redis(redis.clone()), Some(redis)))
        }
        Some(text) => Ok((settings.store_folder(store::folder(text)?.as_deref()), None)),
        None => Ok((settings.store_folder(None), None)),
    }
}

/// Logs the addresses of the listeners, or prints them with an example for the demo policy.
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
    writeln!(out, "tidegate {version} with a demo policy: five requests per minute and user.\n")?;
    for listener in Listener::ALL {
        if let Some(address) = server.address_text(listener) {
            writeln!(out, "  {:<6} {address:<24} {}", listener.name(), about(listener))?;
        }
    }
    if let Some(http) = server.address(Listener::Http) {
        writeln!(
            out,
            "\nSend six requests within a minute; the sixth gets a 429:\n\n  \
             curl -i http://{http}/v1/check -d '{{\"attributes\":{{\"user\":\"ada\"}}}}'\n"
        )?;
    }
    writeln!(out, "Then write your own policy and run `tidegate serve policy.toml`.")?;
    out.flush()
}

const fn about(listener: Listener) -> &'static str {
    match listener {
        Listener::Http => "JSON; /metrics, /openapi.json",
        Listener::Grpc => "Envoy's rate limit service",
        Listener::Resp => "Redis clients: CL.THROTTLE, TG.CHECK",
        Listener::Unix => "tidegate ping, tidegate admin",
        Listener::Admin => "inspect and change the daemon over HTTP",
    }
}

/// The policy that is served without a file.
fn demo() -> Policy {
    Policy::from_toml(DEMO).expect("the demo policy is valid; a test checks it")
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
    fn demo_policy_has_no_errors_or_warnings() {
        assert_eq!(demo().rules().len(), 1);
        assert!(demo().warnings().is_empty());
    }

    #[test]
    fn stuck_thread_does_not_delay_shutdown() {
        let runtime = runtime(Some(2)).unwrap();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let stuck = runtime.spawn_blocking(move || wait.recv());
        shut_down(runtime);
        assert!(!stuck.is_finished());
        drop(release);
    }

    #[test]
    fn store_argument_is_memory_or_a_folder() {
        assert_eq!(store::folder("memory"), Ok(None));
        assert_eq!(store::folder("file:/var/lib/tidegate"), Ok(Some("/var/lib/tidegate".into())));
        for wrong in ["", "file", "file:", "disk:/x"] {
            assert!(store::folder(wrong).unwrap_err().contains("hint"), "{wrong}");
        }
    }
}
