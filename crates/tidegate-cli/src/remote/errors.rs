//! Why a daemon cannot be reached over HTTP, and what to do about it.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;

use http::StatusCode;
use rustls::{AlertDescription, CertificateError};

use super::reply::HttpReply;
use super::url::{DaemonUrl, Scheme};
use crate::call_error::CallError;
use crate::format;

/// The other end of a connection, and what the client has for it.
pub(super) struct Peer<'a> {
    pub(super) url: &'a DaemonUrl,
    /// The file with the authority; `None`: the certificates of the system.
    pub(super) ca: Option<&'a Path>,
    pub(super) has_certificate: bool,
    pub(super) token_file: Option<&'a Path>,
}

impl Peer<'_> {
    pub(super) fn unknown_host(&self, host: &str, error: &io::Error) -> CallError {
        CallError::new(format!("cannot find the host `{}`: {error}", format::visible(host)))
            .hint("check the name in --at")
    }

    pub(super) fn plain_secret(&self, address: IpAddr) -> CallError {
        CallError::new(format!(
            "{} is plain text and {address} is another machine: the secret of a token is not sent there",
            self.url
        ))
        .hint("use https://; the daemon needs --tls-cert and --tls-key")
    }

    pub(super) fn connect_error(&self, error: &io::Error) -> CallError {
        let hint = match error.kind() {
            ErrorKind::ConnectionRefused => {
                "no daemon listens there: is its admin listener on, at this port and at an address \
                 that can be reached from here (`--admin ADDRESS` of `tidegate serve`)?"
            }
            _ => "check the address in --at, and the way to it",
        };
        CallError::new(format!("cannot connect to {}: {error}", self.url)).hint(hint)
    }

    pub(super) fn timed_out(&self, what: &str) -> CallError {
        CallError::new(format!("{} did not {what} in time", self.url))
            .hint("check the address in --at, and the way to it")
    }

    pub(super) fn too_large(&self, most_bytes: usize) -> CallError {
        CallError::new(format!("the response of {} has more than {most_bytes} bytes", self.url))
    }

    /// The error of a TLS handshake.
    pub(super) fn handshake_error(&self, error: &io::Error) -> CallError {
        match tls_error_in(error) {
            Some(error) => self.tls_error(error),
            None => CallError::new(format!(
                "{} closed the connection during the TLS handshake: {error}",
                self.url
            ))
            .hint(NOT_TLS),
        }
    }

    /// The error of a request, and that of the connection.
    pub(super) fn exchange_error(
        &self,
        error: &hyper::Error,
        connection: Option<&hyper::Error>,
    ) -> CallError {
        let tls = tls_error_in(error).or_else(|| tls_error_in(connection?));
        if let Some(tls) = tls {
            return self.tls_error(tls);
        }
        if error.is_parse() || connection.is_some_and(hyper::Error::is_parse) {
            let why = format!("the response of {} is not HTTP/1.1", self.url);
            return CallError::new(why).hint(match self.url.scheme {
                Scheme::Http => {
                    "the port may speak TLS: use https://; or it is that of another program"
                }
                Scheme::Https => "is this the port of the admin listener?",
            });
        }
        let why = format!("{} closed the connection without a response", self.url);
        CallError::new(why).hint(match (self.url.scheme, self.has_certificate) {
            (Scheme::Http, _) => "the port may speak TLS: use https://",
            (Scheme::Https, false) => NEEDS_CERTIFICATE,
            (Scheme::Https, true) => {
                "the daemon may not know the authority of --cert; its log has the reason"
            }
        })
    }

    fn tls_error(&self, error: &rustls::Error) -> CallError {
        let url = self.url;
        match error {
            rustls::Error::InvalidCertificate(error) => self.certificate_error(error),
            rustls::Error::AlertReceived(alert) => self.alert(*alert),
            rustls::Error::InvalidMessage(_) => {
                CallError::new(format!("{url} does not speak TLS")).hint(NOT_TLS)
            }
            other => CallError::new(format!("TLS with {url} failed: {other}")),
        }
    }

    /// The daemon's certificate is not accepted.
    fn certificate_error(&self, error: &CertificateError) -> CallError {
        let url = self.url;
        let (why, hint): (String, String) = match error {
            CertificateError::UnknownIssuer => (
                "is not from an authority that is trusted here".into(),
                match self.ca {
                    Some(ca) => {
                        let ca = format::visible(&ca.to_string_lossy());
                        format!("`{ca}` is not its authority: give the right one with --ca FILE")
                    }
                    None => {
                        "give its authority with --ca FILE; without it the certificates of the \
                             system are used"
                            .into()
                    }
                },
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                ("has expired".into(), CLOCK.into())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                ("is not valid yet".into(), CLOCK.into())
            }
            CertificateError::NotValidForName => {
                (format!("is not for `{}`", url.host), OTHER_NAME.into())
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names = format::visible(&presented.join(", "));
                (format!("is not for `{}`, but for {names}", url.host), OTHER_NAME.into())
            }
            other => (format!("is not accepted: {other}"), CLOCK.into()),
        };
        CallError::new(format!("the certificate of {url} {why}")).hint(hint)
    }

    /// The daemon has ended the handshake.
    fn alert(&self, alert: AlertDescription) -> CallError {
        let url = self.url;
        if !self.has_certificate {
            return match alert {
                AlertDescription::CertificateRequired => {
                    CallError::new(format!("{url} needs a client certificate"))
                        .hint("use --cert FILE --key FILE")
                }
                _ => CallError::new(format!("{url} ended the TLS handshake: {alert:?}"))
                    .hint(NEEDS_CERTIFICATE),
            };
        }
        let why = match alert {
            AlertDescription::CertificateExpired => "it has expired".into(),
            AlertDescription::UnknownCA => "it does not know its authority".into(),
            other => format!("{other:?}"),
        };
        CallError::new(format!("{url} rejected the client certificate: {why}"))
            .hint("the certificate of --cert has to be from the authority of the daemon's clients")
    }

    pub(super) fn needs_tls(&self) -> CallError {
        CallError::new(format!("{} speaks TLS, not plain text", self.url)).hint("use https://")
    }

    pub(super) fn not_a_daemon(&self, reply: &HttpReply) -> CallError {
        let kind = match &*reply.content_type {
            "" => "no content type".into(),
            kind => format::visible(kind),
        };
        let why =
            format!("the response of {} is not a daemon's: {}, {kind}", self.url, reply.status);
        CallError::new(why).hint(
            "a proxy may have responded, or another program has this port: give the address of the \
             admin listener",
        )
    }

    /// What to do about a request that the daemon rejected.
    pub(super) fn rejection_hint(&self, status: StatusCode, detail: &str) -> Option<String> {
        match status {
            StatusCode::UNAUTHORIZED => Some(match self.token_file {
                Some(file) => {
                    let file = format::visible(&file.to_string_lossy());
                    format!(
                        "the token of the secret in `{file}` is unknown to the daemon, revoked or over: \
                         `tidegate token list` on its machine shows those that it has"
                    )
                }
                None if self.has_certificate => {
                    "no token of the daemon has a subject of --cert".into()
                }
                None => {
                    "give the secret of a token with --token-file FILE, or a client certificate \
                         with --cert FILE --key FILE"
                        .into()
                }
            }),
            StatusCode::FORBIDDEN if detail.contains("scope") => {
                Some("the scope `inspect` is for looking, `admin` for changes".into())
            }
            StatusCode::NOT_FOUND if detail.starts_with("no such path") => {
                Some("is this the admin listener? The other listeners have no admin API".into())
            }
            _ => None,
        }
    }
}

/// The error of TLS in an error, or in what caused it.
fn tls_error_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // Its source is that of the error in it.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

const NOT_TLS: &str =
    "the port may not speak TLS; http:// is for daemons on this machine, others need --tls-cert";
const NEEDS_CERTIFICATE: &str =
    "the daemon may need a client certificate: use --cert FILE --key FILE";
const CLOCK: &str = "replace it on the daemon's machine, which loads it within seconds; or set the \
                     clock of this machine";
const OTHER_NAME: &str = "use the name in the certificate for --at";
