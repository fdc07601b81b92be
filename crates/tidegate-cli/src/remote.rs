//! Client of a daemon's admin listener, over HTTP/1.1 with or without TLS.
//!
//! Each request has a connection of its own. Responses are bounded in size and time.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::args::RemoteArgs;
use crate::call_error::CallError;
use errors::Peer;
use reply::HttpReply;
pub(crate) use reply::RemoteReply;
use tls::ClientTls;
use url::{DaemonUrl, Scheme};

mod errors;
mod reply;
mod secret;
mod tls;
mod url;

/// A client of the daemon at a URL.
pub(crate) struct RemoteClient {
    runtime: Runtime,
    url: DaemonUrl,
    /// `None` for plain text.
    tls: Option<ClientTls>,
    token: Option<ClientToken>,
}

/// The token of the client.
struct ClientToken {
    /// The value of the header `Authorization`.
    bearer: HeaderValue,
    file: PathBuf,
}

/// A request, before its headers.
struct RemoteRequest<'a> {
    method: &'a str,
    /// Below the URL of the daemon.
    path: &'a str,
    body: &'a Value,
    needs_token: bool,
}

impl RemoteClient {
    /// A client of the daemon at a URL. Nothing is sent yet; warnings about the files are printed.
    pub(crate) fn new(
        at: &str,
        args: &RemoteArgs,
        warnings: &mut dyn Write,
    ) -> Result<Self, CallError> {
        let url = DaemonUrl::parse(at)?;
        let tls = match url.scheme {
            Scheme::Https => Some(ClientTls::new(&url, args, warnings)?),
            Scheme::Http => {
                for (flag, file) in [("--ca", &args.ca), ("--cert", &args.cert)] {
                    if file.is_some() {
                        let why = format!("{flag} is for TLS, but {url} is plain text");
                        return Err(CallError::new(why).hint("use https://"));
                    }
                }
                None
            }
        };
        let token = match &args.token_file {
            None => None,
            Some(file) => {
                let bearer = secret::read(file, warnings)?;
                Some(ClientToken { bearer, file: file.clone() })
            }
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CallError::new(format!("cannot start the client of HTTP: {error}")))?;
        Ok(Self { runtime, url, tls, token })
    }

    /// Sends an admin request and reads the response.
    pub(crate) fn admin(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<RemoteReply, CallError> {
        let path = &format!("/admin/v1/{path}");
        let reply = self.send(&RemoteRequest { method, path, body, needs_token: true })?;
        reply.decode(&self.peer())
    }

    /// The version of the daemon if the client may know it, whether it is ready, and notes.
    pub(crate) fn ping(&self) -> Result<(Value, Vec<String>), CallError> {
        let get = |path, needs_token| {
            self.send(&RemoteRequest { method: "GET", path, body: &Value::Null, needs_token })
        };
        let readiness = get("/readyz", false)?.readiness(&self.peer())?;
        let mut notes = Vec::new();
        let is_ready = readiness["ready"] == true;
        if !is_ready {
            notes.push("not ready: the daemon is stopping".to_owned());
        }
        for (name, why) in readiness.as_object().into_iter().flatten() {
            if let Value::String(why) = why {
                notes.push(format!("{name}: {why}"));
            }
        }
        let mut fields = json!({ "ok": true, "at": self.url.to_string(), "ready": is_ready });
        if let Some(degraded) = readiness.get("degraded") {
            fields["degraded"] = degraded.clone();
        }
        // The listener of decisions has no admin API; it responds all the same.
        match get("/admin/v1/status", true).and_then(|reply| reply.decode(&self.peer())) {
            Ok(RemoteReply { body, error: None, .. }) => {
                fields["serviceVersion"] = body["version"].clone();
                fields["time"] = body["time"].clone();
            }
            Ok(RemoteReply { error: Some(why), .. }) if self.token.is_some() => {
                notes.push(format!("the version is not known: {why}"));
            }
            Ok(_) | Err(_) => {}
        }
        Ok((fields, notes))
    }

    fn peer(&self) -> Peer<'_> {
        Peer {
            url: &self.url,
            ca: self.tls.as_ref().and_then(|tls| tls.ca.as_deref()),
            has_certificate: self.tls.as_ref().is_some_and(|tls| tls.has_certificate),
            token_file: self.token.as_ref().map(|token| &*token.file),
        }
    }

    fn send(&self, request: &RemoteRequest<'_>) -> Result<HttpReply, CallError> {
        let http = self.http_request(request)?;
        let has_secret = http.headers().contains_key(AUTHORIZATION);
        self.runtime.block_on(async {
            let peer = self.peer();
            let connected = timeout(CONNECT_TIMEOUT, self.connect(has_secret)).await;
            let tcp = connected.map_err(|_| peer.timed_out("connect"))??;
            match &self.tls {
                None => exchange(&peer, tcp, http).await,
                Some(tls) => {
                    let connector = TlsConnector::from(tls.config.clone());
                    let secured = connector.connect(tls.name.clone(), tcp);
                    let secured = timeout(CONNECT_TIMEOUT, secured).await;
                    let secured = secured.map_err(|_| peer.timed_out("do the TLS handshake"))?;
                    let secured = secured.map_err(|error| peer.handshake_error(&error))?;
                    exchange(&peer, secured, http).await
                }
            }
        })
    }

    /// A connection to the first address that accepts one. A secret goes in plain text to addresses
    /// of this machine only.
    async fn connect(&self, has_secret: bool) -> Result<TcpStream, CallError> {
        let peer = self.peer();
        let (host, port) = (&*self.url.host, self.url.port);
        let found = tokio::net::lookup_host((host, port)).await;
        let found: Vec<SocketAddr> =
            found.map_err(|error| peer.unknown_host(host, &error))?.collect();
        if self.tls.is_none() && has_secret {
            let is_local = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
            if let Some(remote) = found.iter().find(|address| !is_local(address)) {
                return Err(peer.plain_secret(remote.ip()));
            }
        }
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in found.iter().take(MOST_ADDRESSES) {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    // Without it requests are only slower.
                    let _ = tcp.set_nodelay(true);
                    return Ok(tcp);
                }
                Err(error) => failed = error,
            }
        }
        Err(peer.connect_error(&failed))
    }

    fn http_request(&self, request: &RemoteRequest<'_>) -> Result<Request<Full<Bytes>>, CallError> {
        let RemoteRequest { method, path, body, needs_token } = request;
        let (kind, body) = match body {
            Value::Null => (None, Bytes::new()),
            Value::String(text) => (Some("application/toml"), text.clone().into()),
            table => (Some("application/json"), table.to_string().into()),
        };
        let mut http = Request::builder()
            .method(*method)
            .uri(format!("{}{path}", self.url.prefix))
            .header(HOST, &self.url.authority)
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if let Some(kind) = kind {
            http = http.header(CONTENT_TYPE, kind);
        }
        if let Some(token) = self.token.as_ref().filter(|_| *needs_token) {
            http = http.header(AUTHORIZATION, token.bearer.clone());
        }
        http.body(Full::new(body))
            .map_err(|error| CallError::new(format!("the request cannot be sent: {error}")))
    }
}

/// Sends one request over a connection and reads the response.
async fn exchange<S>(
    peer: &Peer<'_>,
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<HttpReply, CallError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchanged = timeout(RESPONSE_TIMEOUT, async {
        let mut http = http1::Builder::new();
        let http = http.max_buf_size(MOST_HEAD_BYTES).handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = http.map_err(|error| peer.exchange_error(&error, None))?;
        let connection = tokio::spawn(connection);
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => {
                // The connection may know better what went wrong.
                let connection = connection.await.ok().and_then(Result::err);
                return Err(peer.exchange_error(&error, connection.as_ref()));
            }
        };
        let (head, body) = response.into_parts();
        if body.size_hint().lower() > MOST_BODY_BYTES as u64 {
            return Err(peer.too_large(MOST_BODY_BYTES));
        }
        let body = Limited::new(body, MOST_BODY_BYTES).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return peer.too_large(MOST_BODY_BYTES);
            }
            CallError::new(format!("the response of {} is incomplete: {error}", peer.url))
        })?;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        Ok(HttpReply {
            status: head.status,
            content_type: content_type.unwrap_or_default().to_owned(),
            body: body.to_bytes(),
        })
    });
    exchanged.await.map_err(|_| peer.timed_out("respond"))?
}

/// How long to wait for a connection, and then for its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take from its first byte to the last one of the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 16;
const MOST_HEAD_BYTES: usize = 64 << 10;
/// The policy and its rules, as JSON with descriptions, may be several times as large as the file.
const MOST_BODY_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::errors::Peer;
    use super::url::DaemonUrl;
    use super::{RESPONSE_TIMEOUT, exchange};

    /// What the client reports after a server has responded with this and nothing more.
    async fn error_after(sent: &[u8]) -> String {
        let url = DaemonUrl::parse("http://127.0.0.1:9090").unwrap();
        let peer = Peer { url: &url, ca: None, has_certificate: false, token_file: None };
        let (client, mut server) = tokio::io::duplex(64 << 10);
        let silent = async {
            assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
            server.write_all(sent).await.unwrap();
            std::future::pending::<()>().await;
        };
        let request = Request::get("/").body(Full::<Bytes>::default()).unwrap();
        tokio::select! {
            reply = exchange(&peer, client, request) => reply.err().expect("an error").to_string(),
            () = silent => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_left_after_a_minute() {
        for sent in
            [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"]
        {
            let started = Instant::now();
            let error = error_after(sent).await;
            assert!(error.contains("did not respond in time"), "{error}");
            assert!(started.elapsed() >= RESPONSE_TIMEOUT);
            assert!(started.elapsed() < RESPONSE_TIMEOUT * 2);
        }
    }
}
