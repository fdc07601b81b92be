//! Envoy's rate limit service beside a handler of tonic that decides nothing.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_proto::rls::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, SERVICE, SHOULD_RATE_LIMIT,
    rate_limit_descriptor::Entry, rate_limit_response::DescriptorStatus,
};
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server as TonicServer};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::servers::{self, Server};
use super::{Options, Target, parts};

/// Says yes to everything, as the code that tonic generates would.
#[derive(Clone, Copy, Debug)]
struct Bare;

impl UnaryService<RateLimitRequest> for Bare {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let statuses = request.get_ref().descriptors.iter();
        let statuses = statuses.map(|_| DescriptorStatus { code: 1, ..Default::default() });
        let answer = RateLimitResponse {
            overall_code: 1,
            statuses: statuses.collect(),
            ..Default::default()
        };
        ready(Ok(Response::new(answer)))
    }
}

impl tower::Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec: ProstCodec<RateLimitResponse, RateLimitRequest> = ProstCodec::default();
            Ok(Grpc::new(codec).unary(Self, request).await)
        })
    }
}

impl NamedService for Bare {
    const NAME: &'static str = SERVICE;
}

/// Serves [`Bare`] at the address in the first argument, until it is killed.
pub fn serve_bare(address: Option<String>) -> ExitCode {
    let Some(Ok(address)) = address.map(|address| address.parse()) else {
        return ExitCode::from(2);
    };
    let serving = TonicServer::builder().add_service(Bare).serve(address);
    match runtime().block_on(serving) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub fn measure(options: &Options) -> Result<Vec<Target>, String> {
    let policy = parts::policy()?;
    let tidegate = servers::tidegate("grpc", &policy)?;
    let address = servers::free_address();
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let bare = Server::start(&own, &["--bare-grpc".into(), address.to_string()], address)?;
    let mut taken = [const { Vec::new() }; 2];
    let before = [tidegate.processor_time(), bare.processor_time()];
    let mut calls = [0; 2];
    for _ in 0..options.rounds() {
        for (place, server) in [&tidegate, &bare].into_iter().enumerate() {
            let (count, per_second) = load(server.address, options)?;
            calls[place] += count;
            taken[place].push(per_second);
        }
    }
    let median = |all: &mut Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let [ours, theirs] = taken.each_mut().map(median);
    let us = |server: &Server, place: usize| {
        let taken = server.processor_time() - before[place];
        taken.as_secs_f64() * 1e6 / f64::from(calls[place])
    };
    let (our_us, their_us) = (us(&tidegate, 0), us(&bare, 1));
    println!("gRPC, 2 connections x 32 calls in flight, {} keys", options.keys());
    println!("  tidegate ShouldRateLimit   {:>8.0} k/s, {our_us:.2} us of processor", ours / 1e3);
    println!(
        "  bare tonic handler         {:>8.0} k/s, {their_us:.2} us of processor",
        theirs / 1e3
    );
    Ok(vec![Target {
        name: "gRPC ShouldRateLimit, times a bare handler of tonic".into(),
        measured: ours / theirs,
        wanted: 0.85,
        is_least: true,
    }])
}

/// Calls in a row on two connections, 32 at a time on each: how many, and how many per second.
fn load(address: SocketAddr, options: &Options) -> Result<(u32, f64), String> {
    runtime().block_on(async {
        let begun = Instant::now();
        let ends = begun + options.round();
        let mut tasks = Vec::new();
        for connection in 0..2_u32 {
            let endpoint = Endpoint::try_from(format!("http://{address}"));
            let channel = endpoint.map_err(|error| error.to_string())?.connect().await;
            let channel = channel.map_err(|error| error.to_string())?;
            for call in 0..32 {
                let seed = connection * 32 + call;
                tasks.push(tokio::spawn(calls(channel.clone(), seed, options.keys(), ends)));
            }
        }
        let mut count = 0;
        for task in tasks {
            count += task.await.map_err(|error| error.to_string())??;
        }
        Ok((count, f64::from(count) / begun.elapsed().max(Duration::from_millis(1)).as_secs_f64()))
    })
}

async fn calls(channel: Channel, seed: u32, keys: u32, ends: Instant) -> Result<u32, String> {
    let mut client = Client::new(channel);
    let mut random = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut count = 0;
    while Instant::now() < ends {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let entry =
            Entry { key: "user".into(), value: format!("user:{:07}", random % keys).into() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let request = RateLimitRequest {
            domain: "default".into(),
            descriptors: vec![descriptor],
            ..Default::default()
        };
        client.ready().await.map_err(|error| error.to_string())?;
        let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
        let path = http::uri::PathAndQuery::from_static(SHOULD_RATE_LIMIT);
        let answer = client.unary(Request::new(request), path, codec).await;
        let answer = answer.map_err(|status| status.to_string())?;
        if answer.get_ref().overall_code != 1 {
            return Err(format!("refused: {:?}", answer.get_ref()));
        }
        count += 1;
    }
    Ok(count)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a thread is there")
}
