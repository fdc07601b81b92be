//! The command line: the desk itself, and its client.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_listen::{ListenSocket, log, terminated};

use crate::desk::Desk;
use crate::server::{MAX_GRACE, serve};
use crate::settings::ServeArgs;
use call::{ClientArgs, DeskRequest};

mod call;
mod format;

/// The proposal desk of a game: governors propose changes, an AI interprets them, and all vote.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-proposals",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the desk
    #[command(after_long_help = "\
Example:
  PROPOSALS_GOVERNORS=ada:secret-a,bob:secret-b PROPOSALS_HOST_SECRET=secret-h \\
      tidegate-proposals serve --store desk --interpreter-url http://127.0.0.1:9000/interpret

SIGTERM and SIGINT shut it down gracefully. RUST_LOG sets the log level; the log is on standard
error.")]
    Serve(Box<ServeArgs>),
    /// Send a request to the desk
    #[command(flatten)]
    Call(DeskCommand),
}

/// The requests to the desk.
#[derive(Debug, Subcommand)]
enum DeskCommand {
    /// Submit a proposal, and wait until it is interpreted
    Propose {
        /// Its tier, from 1 up: tiers 1 to 4 cost 1 token, 5 and 6 cost 2, others 3
        #[arg(long)]
        tier: u64,
        /// The text of the proposal
        text: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Confirm the interpretation of your proposal, which opens the vote
    Confirm {
        /// The proposal's id
        id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Cancel your proposal before it is confirmed, and release its tokens
    Cancel {
        /// The proposal's id
        id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Vote, or change your vote
    Vote {
        /// The proposal's id
        id: String,
        /// The vote
        #[arg(value_parser = ["yes", "no"])]
        vote: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Enrol a governor, who gets the tokens of this window (the game itself only)
    Enrol {
        /// The governor's name
        governor: String,
        /// The governor's secret, of at least 16 characters
        #[arg(
            long,
            value_name = "SECRET",
            env = "PROPOSALS_GOVERNOR_SECRET",
            hide_env_values = true
        )]
        governor_secret: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Report that a round of the game was played (the game itself only)
    Round {
        /// Its number, the next in sequence
        round: u64,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Count the votes and close the window, if it is due (the game itself only)
    Tally {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show proposals
    Proposals {
        /// Only proposals with this status: interpreting, interpreted, voting, passed, failed,
        /// cancelled or expired
        #[arg(long)]
        status: Option<String>,
        /// Only proposals of this governor
        #[arg(long)]
        governor: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the open window
    Window {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the tokens and proposals left, for each governor
    Balances {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the event log
    Audit {
        /// Only events of this governor
        #[arg(long)]
        governor: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
}

impl DeskCommand {
    fn request(self) -> (DeskRequest, ClientArgs) {
        match self {
            Self::Propose { tier, text, client } => (DeskRequest::Propose { tier, text }, client),
            Self::Confirm { id, client } => (DeskRequest::Act { id, act: "confirm" }, client),
            Self::Cancel { id, client } => (DeskRequest::Act { id, act: "cancel" }, client),
            Self::Vote { id, vote, client } => (DeskRequest::Vote { id, vote }, client),
            Self::Enrol { governor, governor_secret: secret, client } => {
                (DeskRequest::Enrol { governor, secret }, client)
            }
            Self::Round { round, client } => (DeskRequest::Round { round }, client),
            Self::Tally { client } => (DeskRequest::Tally, client),
            Self::Proposals { status, governor, client } => {
                (DeskRequest::Proposals { status, governor }, client)
            }
            Self::Window { client } => (DeskRequest::Window, client),
            Self::Balances { client } => (DeskRequest::Balances, client),
            Self::Audit { governor, client } => (DeskRequest::Audit { governor }, client),
        }
    }
}

/// Runs the command of this process.
///
/// The exit code is 0, 1 if the desk denied or rejected the request, or 2 if the command failed.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => run_desk(*args).map(|()| ExitCode::SUCCESS),
        Command::Call(command) => {
            let (request, client) = command.request();
            call::run(&request, &client)
        }
    };
    done.unwrap_or_else(|error| {
        // If stderr fails too, there is nowhere else to report it.
        let _ = writeln!(io::stderr(), "error: {error}");
        ExitCode::from(EXIT_FAILED)
    })
}

fn run_desk(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    log::init()?;
    let (listen, connections) = (args.listen, args.connections());
    let settings = args.settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Its client needs a runtime.
    let desk = {
        let _inside = runtime.enter();
        Desk::open(&settings).map_err(|error| format!("{}: {error}", settings.store.display()))?
    };
    runtime.block_on(async {
        let socket = ListenSocket::bind(listen)
            .await
            .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
        let address = socket.local_addr()?;
        let signalled = terminated();
        writeln!(io::stdout(), "listening on {address}")?;
        let stop = async {
            signalled.await;
            desk.close();
        };
        serve(socket, desk.router(), connections, stop).await;
        desk.finish(MAX_GRACE).await;
        tracing::info!("stopped");
        Ok(())
    })
}

const EXIT_FAILED: u8 = 2;
