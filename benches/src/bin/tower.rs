//! Measures the layers and the bare decisions in one process: the price of middleware.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::{Request, Response};
use tidegate::policy::Policy;
use tidegate::{Bucket, Limiter, StoreEngine};
use tidegate_tower::{ClientIp, Dialect, LimitLayer, Peer, PolicyLayer};
use tower::{Layer, Service};

const HELP: &str = "\
Measures the layers and the bare decisions: medians of interleaved rounds.

A request has a peer and a path; the inner service responds at once. A layer adds
the time with it minus the time without it.

usage: tower [--quick] [--assert]

  --quick    fewer rounds, for a first impression
  --assert   exit with 1 if a target was missed
";

/// The maximum that a layer may add, in bare decisions.
const MOST: f64 = 3.0;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_set = |flag: &str| args.iter().any(|arg| arg == flag);
    if let Some(unknown) = args.iter().find(|arg| !["--quick", "--assert"].contains(&arg.as_str()))
    {
        print!("{HELP}");
        return if unknown == "--help" { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let rounds = if is_set("--quick") { 7 } else { 51 };
    let mut missed = 0;
    let mut all = 0;
    for (keys, name) in [(1, "one client"), (1 << 20, "a million clients")] {
        let measured = measured(keys, rounds);
        let [bare, limiter, engine] = [measured[0], measured[1], measured[2]];
        println!("{name}: no layer {bare:.0} ns, limiter {limiter:.0} ns, engine {engine:.0} ns");
        let layers = ["limiter, headers", "limiter, none", "engine, headers", "engine, none"];
        for (index, layer) in layers.iter().enumerate() {
            let decision = if index < 2 { limiter } else { engine };
            let added = measured[3 + index] - bare;
            let ratio = added / decision;
            let verdict = if ratio > MOST { "missed" } else { "reached" };
            missed += usize::from(ratio > MOST);
            all += 1;
            println!("  {layer:18} adds {added:5.0} ns {ratio:6.2} x at most {MOST} {verdict}");
        }
    }
    println!("{missed} of {all} targets missed");
    ExitCode::from(u8::from(is_set("--assert") && missed > 0))
}

/// Nanoseconds: without a layer, both decisions, and the four layers.
fn measured(keys: u32, rounds: usize) -> Vec<f64> {
    let limit = Bucket::per_second(1_000_000_000);
    let limiter: Arc<Limiter<IpAddr>> = Arc::new(Limiter::new(limit));
    let engine = StoreEngine::new(
        Policy::from_toml(
            "[[rule]]\nname = \"one\"\nkey = [\"ip\"]\n\
             bucket = { rate = \"1000000000/s\", burst = 1000000000 }\n",
        )
        .expect("valid"),
    );
    let by_limiter = |dialect| {
        LimitLayer::new(Arc::clone(&limiter), ClientIp::peer()).dialect(dialect).layer(Hello)
    };
    let by_engine = |dialect| {
        let layer = PolicyLayer::new(engine.clone(), "default")
            .expect("valid")
            .attribute("ip", ClientIp::peer());
        layer.dialect(dialect).layer(Hello)
    };
    let mut seeds = [1_u64; 7];
    let mut next = |index: usize| {
        let seed = &mut seeds[index];
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let address = u32::try_from(*seed >> 33).unwrap_or(0) % keys;
        SocketAddr::new(IpAddr::V4((0x0a00_0000 + address).into()), 1)
    };
    let mut limited = [by_limiter(Dialect::Ietf11), by_limiter(Dialect::None)];
    let mut policed = [by_engine(Dialect::Ietf11), by_engine(Dialect::None)];
    let mut times = vec![Vec::new(); 7];
    let texts: Vec<String> =
        (0..keys).map(|key| IpAddr::V4((0x0a00_0000 + key).into()).to_string()).collect();
    // All clients are known: new ones cost more.
    for text in &texts {
        let address: IpAddr = text.parse().expect("an address");
        assert!(limiter.check(&address).is_allowed());
        let attributes = [("ip", text.as_str())];
        let request = tidegate::Request::new("default", &attributes);
        assert!(engine.check(&request).block().is_ok_and(|it| it.is_allowed()));
    }
    for _ in 0..rounds {
        for (index, times) in times.iter_mut().enumerate() {
            let started = Instant::now();
            for _ in 0..CALLS {
                let peer = next(index);
                match index {
                    0 => serve(&mut Hello, peer),
                    1 => assert!(limiter.check(black_box(&peer.ip())).is_allowed()),
                    2 => {
                        let index = usize::try_from(u32::from_be_bytes(octets(peer))).unwrap_or(0);
                        let attributes = [("ip", texts[index - 0x0a00_0000].as_str())];
                        let request = tidegate::Request::new("default", black_box(&attributes));
                        assert!(engine.check(&request).block().is_ok_and(|it| it.is_allowed()));
                    }
                    3 | 4 => serve(&mut limited[index - 3], peer),
                    _ => serve(&mut policed[index - 5], peer),
                }
            }
            times.push(started.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn octets(peer: SocketAddr) -> [u8; 4] {
    match peer.ip() {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => unreachable!("all clients are v4"),
    }
}

/// One request through a service.
fn serve<S, B>(service: &mut S, peer: SocketAddr)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut request = Request::new(());
    request.extensions_mut().insert(Peer(peer));
    let mut future = pin!(service.call(black_box(request)));
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => assert!(black_box(response).status().is_success()),
        Poll::Pending => unreachable!("it responds at once"),
    }
}

/// A service that responds at once.
#[derive(Clone, Copy)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        drop(black_box(request));
        let mut response = Response::new(String::new());
        let text = http::HeaderValue::from_static("text/plain");
        response.headers_mut().insert(http::header::CONTENT_TYPE, text);
        ready(Ok(response))
    }
}

/// Requests in one measurement.
const CALLS: u32 = 20_000;
