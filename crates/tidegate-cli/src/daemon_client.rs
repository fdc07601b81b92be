//! Client of a running daemon: over its local socket, or over HTTP.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::args::DaemonArgs;
use crate::call_error::CallError;
use crate::remote::RemoteClient;
use crate::socket::SocketClient;

/// The way to a daemon.
pub(crate) enum DaemonClient {
    Local(SocketClient),
    Remote(Box<RemoteClient>),
}

/// An admin request to a daemon.
pub(crate) struct DaemonRequest {
    pub(crate) method: &'static str,
    /// Below `/admin/v1/`, percent-encoded.
    pub(crate) path: String,
    /// A table, text in TOML, or null.
    pub(crate) body: Value,
}

/// The response of a daemon to an admin request.
pub(crate) struct DaemonReply {
    /// Null if it has none.
    pub(crate) body: Value,
    /// Why the daemon rejected the request.
    pub(crate) error: Option<String>,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

/// The response of a daemon to a ping.
pub(crate) struct Pong {
    /// As JSON.
    pub(crate) fields: Value,
    /// Why the daemon does not serve the client.
    pub(crate) error: Option<String>,
    /// What else is worth knowing.
    pub(crate) notes: Vec<String>,
}

impl DaemonClient {
    /// Connects to the daemon that the arguments name. Warnings are printed.
    pub(crate) fn connect(args: &DaemonArgs, warnings: &mut dyn Write) -> Result<Self, CallError> {
        match address(args, |name| std::env::var_os(name))? {
            DaemonAddress::Socket(path) => SocketClient::connect(path).map(Self::Local),
            DaemonAddress::Url(at) => {
                let remote = RemoteClient::new(at, &args.remote, warnings)?;
                Ok(Self::Remote(Box::new(remote)))
            }
        }
    }

    /// Sends an admin request and reads the response.
    pub(crate) fn admin(&mut self, request: &DaemonRequest) -> Result<DaemonReply, CallError> {
        let DaemonRequest { method, path, body } = request;
        match self {
            Self::Local(socket) => {
                let mut response = socket.admin(method, path, body)?;
                let error = (response["ok"] != true).then(|| reason(&response));
                Ok(DaemonReply { body: response["body"].take(), error, hint: None })
            }
            Self::Remote(remote) => {
                let reply = remote.admin(method, path, body)?;
                Ok(DaemonReply { body: reply.body, error: reply.error, hint: reply.hint })
            }
        }
    }

    /// Reads what the keys of a request have used of their limits.
    pub(crate) fn usage(
        &mut self,
        domain: &str,
        attributes: &Value,
    ) -> Result<DaemonReply, CallError> {
        let Self::Local(socket) = self else {
            let why = "the usage of given keys is read over the local socket";
            let hint = "--over lists the keys near a limit from elsewhere; or use POST /v1/usage";
            return Err(CallError::new(why).hint(hint));
        };
        let body = socket.call(&json!({
            "type": "usage", "protocolVersion": 1, "domain": domain, "attributes": attributes,
        }))?;
        let error = (body["ok"] != true).then(|| reason(&body));
        Ok(DaemonReply { body, error, hint: None })
    }

    /// Reports whether the daemon responds.
    pub(crate) fn ping(&mut self) -> Result<Pong, CallError> {
        match self {
            Self::Local(socket) => {
                let fields = socket.call(&json!({ "type": "ping", "protocolVersion": 1 }))?;
                let error = (fields["ok"] != true).then(|| reason(&fields));
                Ok(Pong { fields, error, notes: Vec::new() })
            }
            Self::Remote(remote) => {
                let (fields, notes) = remote.ping()?;
                Ok(Pong { fields, error: None, notes })
            }
        }
    }
}

/// Why a daemon rejected what came over its socket.
fn reason(response: &Value) -> String {
    response["error"].as_str().unwrap_or("the daemon gave no reason").to_owned()
}

/// Where a daemon is.
#[derive(Debug, PartialEq, Eq)]
enum DaemonAddress<'a> {
    Socket(Option<&'a Path>),
    Url(&'a str),
}

/// Where the daemon is. An address on the command line has precedence over one in the environment;
/// two of the same kind are an error, so that no change reaches another daemon than was meant.
fn address(
    args: &DaemonArgs,
    environment: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<DaemonAddress<'_>, CallError> {
    let is_set = |name: &str, value: &OsStr| environment(name).is_some_and(|set| set == value);
    let remote = &args.remote;
    let socket = args.socket.as_deref();
    let is_url = match (socket, &remote.at) {
        (None, at) => at.is_some(),
        (Some(_), None) => false,
        (Some(socket), Some(at)) => {
            let by_default =
                (is_set("TIDEGATE_UNIX", socket.as_os_str()), is_set("TIDEGATE_AT", at.as_ref()));
            match by_default {
                (true, false) => true,
                (false, true) => false,
                (false, false) => {
                    return Err(CallError::new("--at and --socket exclude each other")
                        .hint("--at is for a daemon elsewhere, --socket for one on this machine"));
                }
                (true, true) => {
                    return Err(CallError::new(
                        "TIDEGATE_AT and TIDEGATE_UNIX are both set in the environment",
                    )
                    .hint("give the daemon with --at URL or --socket PATH"));
                }
            }
        }
    };
    if let Some(at) = remote.at.as_deref().filter(|_| is_url) {
        return Ok(DaemonAddress::Url(at));
    }
    let token_file = remote.token_file.as_deref().map(Path::as_os_str);
    let is_unused = |file: &OsStr| !is_set("TIDEGATE_TOKEN_FILE", file);
    for (flag, is_given) in [
        ("--token-file", token_file.is_some_and(is_unused)),
        ("--ca", remote.ca.is_some()),
        ("--cert", remote.cert.is_some()),
        ("--key", remote.cert_key.is_some()),
    ] {
        if is_given {
            return Err(CallError::new(format!("{flag} has no effect on the local socket"))
                .hint("give the URL of the daemon with --at https://HOST:PORT"));
        }
    }
    Ok(DaemonAddress::Socket(socket))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DaemonAddress, address};
    use crate::args::{DaemonArgs, RemoteArgs};

    fn args(socket: Option<&str>, at: Option<&str>, token_file: Option<&str>) -> DaemonArgs {
        let token_file = token_file.map(Into::into);
        let at = at.map(Into::into);
        let remote = RemoteArgs { at, token_file, ca: None, cert: None, cert_key: None };
        DaemonArgs { socket: socket.map(Into::into), remote }
    }

    #[test]
    fn an_address_on_the_command_line_has_precedence_over_the_environment() {
        let (socket, at) = ("/s", "https://a");
        let both = args(Some(socket), Some(at), None);
        let set = |names: &'static [(&'static str, &'static str)]| {
            move |name: &str| {
                names.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            }
        };
        let by_default = address(&both, set(&[("TIDEGATE_UNIX", "/s")])).unwrap();
        assert_eq!(by_default, DaemonAddress::Url(at));
        let by_default = address(&both, set(&[("TIDEGATE_AT", "https://a")])).unwrap();
        assert_eq!(by_default, DaemonAddress::Socket(Some(Path::new(socket))));
        for names in [
            &[("TIDEGATE_AT", "https://a"), ("TIDEGATE_UNIX", "/s")][..],
            &[],
            &[("TIDEGATE_AT", "https://b"), ("TIDEGATE_UNIX", "/t")],
        ] {
            assert!(address(&both, set(names)).is_err(), "{names:?}");
        }
        let nothing = args(None, None, None);
        assert_eq!(address(&nothing, set(&[])).unwrap(), DaemonAddress::Socket(None));
    }

    #[test]
    fn a_token_file_of_the_environment_does_not_matter_on_the_socket() {
        let args = args(None, None, Some("t"));
        assert!(address(&args, |name| (name == "TIDEGATE_TOKEN_FILE").then(|| "t".into())).is_ok());
        let error = address(&args, |_| None).unwrap_err().to_string();
        assert!(error.contains("--token-file") && error.contains("--at"), "{error}");
    }
}
