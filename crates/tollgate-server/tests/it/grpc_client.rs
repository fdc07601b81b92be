//! A client of gRPC that can also say what no client should.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate::policy::Policy;
use tollgate_proto::rls::rate_limit_descriptor::Entry;
use tollgate_proto::rls::{
    self, Message, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tollgate_server::{Door, Server, Settings};

/// A daemon with a policy, as a file of any kind says it.
pub(crate) async fn daemon(file_name: &str, policy: &str) -> Server {
    let parsed = Policy::load(file_name, policy.as_bytes());
    let policy = parsed.unwrap_or_else(|errors| panic!("{errors}")).policy;
    Server::start(Settings::on_free_ports(policy)).await.unwrap()
}

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// An error of gRPC: its number, and what it says.
pub(crate) type Failed = (u16, String);

impl Client {
    pub(crate) async fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address(Door::Grpc).unwrap()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
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
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap());
        framed.put_slice(message);
        let (response, body) = self.send(path, "application/grpc", framed.freeze()).await;
        assert_eq!(response.status(), 200);
        let trailers = body.trailers().cloned().unwrap_or_default();
        let told = |name| trailers.get(name).or(response.headers().get(name));
        let number = told("grpc-status").unwrap().to_str().unwrap().parse().unwrap();
        if number != 0 {
            let message = told("grpc-message").map_or("", |it| it.to_str().unwrap());
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
        let request = Request::post(format!("http://tollgate{path}"))
            .header("content-type", kind)
            .header("te", "trailers")
            .body(Full::new(body))
            .unwrap();
        self.sender.ready().await.unwrap();
        let (head, body) = self.sender.send_request(request).await.unwrap().into_parts();
        (Response::from_parts(head, ()), body.collect().await.unwrap())
    }
}

/// A call about descriptors, each of some entries.
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
