//! The commands.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use tidegate::clock::SystemClock;
use tidegate_listen::terminated;

use crate::args::{BoundArgs, Cli, Command, LimitArgs, PingArgs, ServeArgs};
use crate::client::{self, Tally};
use crate::{
    Access, AccessEntry, ConnectionLimits, LimitNumbers, Limits, RequestLimiter, Server,
    ServerSettings, Service, SettingError, Timeouts, policy_from_file,
};

/// Runs the command of this process.
///
/// The exit code is 0, 1 if a ping was denied, or 2 if the command failed.
pub fn main() -> ExitCode {
    let command = match Cli::read() {
        Ok(Cli { command }) => command,
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() {
                note_environment();
            }
            return ExitCode::from(u8::from(error.use_stderr()) * EXIT_FAILED);
        }
    };
    let done = match command {
        Command::Serve(args) => serve(&args).map(|()| ExitCode::SUCCESS),
        Command::Ping(args) => ping(&args),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "error: {error}");
        ExitCode::from(EXIT_FAILED)
    })
}

fn ping(args: &PingArgs) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let Tally { succeeded, denied } = client::ping(args, &mut out)
        .map_err(|error| format!("{}: {error}", args.socket.display()))?;
    out.flush()?;
    writeln!(io::stderr(), "{succeeded} succeeded, {denied} denied")?;
    Ok(if denied == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve(args: &ServeArgs) -> Result<(), Box<dyn Error>> {
    // A log that cannot be written is no reason to stop.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(args.log)
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .init();
    let clock = SystemClock::new();
    let limiter = limiter(&args.limits, clock)?;
    let service = Service::new(access(args)?, limiter, clock);
    let BoundArgs { max_connections, max_connections_per_user, .. } = args.bounds;
    let limits = ConnectionLimits::new(max_connections, max_connections_per_user)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the file exists, so that a process that sees it can stop this one gracefully.
        let until = terminated();
        let server = Server::bind(&settings(args), limits, service).await;
        let server = server.map_err(|error| format!("--socket: {error}"))?;
        server.run(until).await;
        Ok(())
    })
}

fn limiter(args: &LimitArgs, clock: SystemClock) -> Result<RequestLimiter, SettingError> {
    if args.no_limit {
        return Ok(RequestLimiter::open());
    }
    if let Some(path) = &args.policy {
        return Ok(RequestLimiter::new(policy_from_file(path)?, clock));
    }
    let user = LimitNumbers { max: args.user_max, per: args.user_per, burst: args.user_burst };
    let global =
        LimitNumbers { max: args.global_max, per: args.global_per, burst: args.global_burst };
    let policy = Limits { user, global, overrides: args.user_override.clone() }.policy()?;
    Ok(RequestLimiter::new(policy, clock))
}

fn access(args: &ServeArgs) -> Result<Access, SettingError> {
    if args.allow_everybody {
        Ok(Access::Everybody)
    } else if args.is_allowing() {
        Access::only(&args.allow_user, &args.allow_group).map_err(|error| {
            let setting = match error.entry() {
                AccessEntry::User => "--allow-user",
                AccessEntry::Group => "--allow-group",
            };
            SettingError::new(setting, error.reason())
        })
    } else {
        Ok(Access::own_user_and_root())
    }
}

fn settings(args: &ServeArgs) -> ServerSettings {
    let bounds = &args.bounds;
    let accepts_others = args.allow_everybody || args.is_allowing();
    ServerSettings {
        socket: args.socket.clone(),
        mode: args.mode.unwrap_or(if accepts_others { 0o666 } else { 0o600 }),
        timeouts: Timeouts {
            frame: bounds.frame_timeout,
            idle: bounds.idle_timeout,
            write: bounds.write_timeout,
            close: bounds.close_timeout,
        },
    }
}

/// Reports variables of the environment, where an invalid value may come from.
fn note_environment() {
    for (name, value) in std::env::vars_os() {
        if let Some(name) = name.to_str().filter(|name| name.starts_with("TIDEGATE_LOCAL_")) {
            let value = value.to_string_lossy();
            let _ = writeln!(io::stderr(), "note: the environment has {name}={value:?}");
        }
    }
}

const EXIT_FAILED: u8 = 2;
