//! `tidegate ping`: whether a daemon answers.

use std::io;

use serde_json::json;

use crate::args::{Format, PingArgs};
use crate::io::{Exit, Io};
use crate::say;
use crate::socket::Caller;

pub(crate) fn run(args: &PingArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let ping = json!({ "type": "ping", "protocolVersion": 1 });
    let answer = match Caller::connect(&args.socket).and_then(|mut it| it.call(&ping)) {
        Ok(answer) => answer,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::No);
        }
    };
    let is_ok = answer["ok"] == true;
    if args.format == Format::Json {
        writeln!(io.stdout, "{answer}")?;
    } else if is_ok {
        let text = |name: &str| say::visible(answer[name].as_str().unwrap_or("?"));
        writeln!(io.stdout, "tidegate {} is there: {}", text("serviceVersion"), text("time"))?;
    } else {
        let why = answer["error"].as_str().unwrap_or("the daemon does not say why");
        writeln!(io.stderr, "error: {}", say::visible(why))?;
    }
    Ok(if is_ok { Exit::Yes } else { Exit::No })
}
