//! `tidegate ping`: checks whether a daemon responds.

use std::io;

use serde_json::json;

use crate::args::{Format, PingArgs};
use crate::format;
use crate::io::{Exit, Io};
use crate::socket::SocketClient;

pub(crate) fn run(args: &PingArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let ping = json!({ "type": "ping", "protocolVersion": 1 });
    let response = match SocketClient::connect(&args.socket).and_then(|mut it| it.call(&ping)) {
        Ok(response) => response,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Failure);
        }
    };
    let is_ok = response["ok"] == true;
    if args.format == Format::Json {
        writeln!(io.stdout, "{response}")?;
    } else if is_ok {
        let text = |name: &str| format::visible(response[name].as_str().unwrap_or("?"));
        writeln!(io.stdout, "pong from tidegate {} at {}", text("serviceVersion"), text("time"))?;
    } else {
        let why = response["error"].as_str().unwrap_or("the daemon gave no reason");
        writeln!(io.stderr, "error: {}", format::visible(why))?;
    }
    Ok(if is_ok { Exit::Success } else { Exit::Failure })
}
