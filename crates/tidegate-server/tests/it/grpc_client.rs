//! A gRPC client that can also send invalid input.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate::policy::Policy;
use tidegate_proto::rls::rate_limit_descriptor::Entry;
use tidegate_proto::rls::{
    self, Message, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tidegate_server::{Bounds, Listener, Server, Settings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A daemon with a policy of any file format.
pub(crate) async fn daemon(file_name: &str, policy: &str) -> Server {
    let parsed = Policy::load(file_name, policy.as_bytes());
    let file = parsed.unwrap_or_else(|errors| panic!("{errors}"));
    Server::start(Settings::on_free_ports(file)).await.unwrap()
}

/// A daemon with changed bounds.
pub(crate) async fn daemon_with(policy: &str, change: impl FnOnce(&mut Bounds)) -> Server {
    let file = Policy::parse("policy.toml", policy.as_bytes()).unwrap();
    let mut bounds = Bounds::default();
    change(&mut bounds);
    Server::start(Settings::on_free_ports(file).bounds(bounds)).await.unwrap()
}

#[derive(Clone)]
pub(crate) struct Client {
    sender: SendRequest<AnyBody>,
    /// The secret that it sends with each call.
    pub(crate) token: Option<&'static str>,
}

pub(crate) type AnyBody = BoxBody<Bytes, Infallible>;

/// An error of gRPC: its status and message.
pub(crate) type Failed = (u16, String);

impl Client {
    pub(crate) async fn new(server: &Server) -> Self {
        Self::at(server.address(Listener::Grpc).unwrap()).await
    }

    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self::with(address, |_| {}).await.0
    }

    /// A client with changed HTTP/2 settings, and the task of its connection.
    pub(crate) async fn with(
        address: SocketAddr,
        change: impl FnOnce(&mut http2::Builder<TokioExecutor>),
    ) -> (Self, JoinHandle<hyper::Result<()>>) {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream, change).await
    }

    /// The same over any stream.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        change: impl FnOnce(&mut http2::Builder<TokioExecutor>),
    ) -> (Self, JoinHandle<hyper::Result<()>>) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        change(&mut builder);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        (Self { sender, token: None }, tokio::spawn(connection))
    }

    pub(crate) async fn ask(
        &mut self,
        call: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Failed> {
        let body = self.call(rls::SHOULD_RATE_LIMIT, &call.encode_to_vec()).await?;
        Ok(RateLimitResponse::decode(body).unwrap())
    }

    /// Calls any method with any message.
    pub(crate) async fn call(&mut self, path: &str, message: &[u8]) -> Result<Bytes, Failed> {
        let (response, body) = self.send(path, "application/grpc", framed(message)).await;
        assert_eq!(response.status(), 200);
        let trailers = body.trailers().cloned().unwrap_or_default();
        let field = |name| trailers.get(name).or(response.headers().get(name));
        let number = field("grpc-status").unwrap().to_str().unwrap().parse().unwrap();
        if number != 0 {
            let message = field("grpc-message").map_or("", |it| it.to_str().unwrap());
            return Err((number, message.to_owned()));
        }
        Ok(body.to_bytes().slice(5..))
    }

    /// Sends any body.
    pub(crate) async fn send(
        &mut self,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> (Response<()>, Collected<Bytes>) {
        let (head, body) = self.begin(path, kind, Full::new(body).boxed()).await.into_parts();
        (Response::from_parts(head, ()), body.collect().await.unwrap())
    }

    /// Sends any body, and does not wait for the whole response.
    pub(crate) async fn begin(
        &mut self,
        path: &str,
        kind: &str,
        body: AnyBody,
    ) -> Response<Incoming> {
        let mut request = Request::post(format!("http://tidegate{path}"))
            .header("content-type", kind)
            .header("te", "trailers");
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body).unwrap();
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap()
    }
}

/// A message with its frame.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(message);
    framed.freeze()
}

/// A call with descriptors, each with some entries.
pub(crate) fn call(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..Default::default()
    };
    RateLimitRequest {
        domain: domain.into(),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: 0,
    }
}
