//! `tidegate ping`: checks whether a daemon responds.

use std::io;

use crate::args::{Format, PingArgs};
use crate::daemon_client::DaemonClient;
use crate::format;
use crate::io::{Exit, Io};

pub(crate) fn run(args: &PingArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let pong = DaemonClient::connect(&args.daemon, io.stderr).and_then(|mut it| it.ping());
    let pong = match pong {
        Ok(pong) => pong,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Failure);
        }
    };
    let fields = &pong.fields;
    match (args.format, &pong.error) {
        (Format::Json, _) => writeln!(io.stdout, "{fields}")?,
        (Format::Text, Some(why)) => writeln!(io.stderr, "error: {}", format::visible(why))?,
        (Format::Text, None) => {
            let text = |name: &str| format::visible(fields[name].as_str().unwrap_or("?"));
            match fields["serviceVersion"].as_str() {
                Some(version) => {
                    let version = format::visible(version);
                    writeln!(io.stdout, "pong from tidegate {version} at {}", text("time"))?;
                }
                None => writeln!(io.stdout, "pong from {}", text("at"))?,
            }
        }
    }
    for note in &pong.notes {
        writeln!(io.stderr, "note: {}", format::visible(note))?;
    }
    Ok(if pong.error.is_none() { Exit::Success } else { Exit::Failure })
}
