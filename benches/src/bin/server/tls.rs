//! TLS: what it costs on kept connections, and what new connections cost those that are kept.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tidegate_redis_servers::Authority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::grpc::{call, calls, runtime};
use super::servers::{self, Server};
use super::{Options, Target, parts};

/// A listener, and how to reach it.
struct Reachable {
    server: Server,
    /// The authority of its certificate; `None`: no TLS.
    authority: Option<PathBuf>,
}

/// How many calls are in flight: on each of some connections.
#[derive(Clone, Copy)]
struct Load {
    connections: u32,
    calls: u32,
}

pub fn measure(options: &Options) -> Result<Vec<Target>, String> {
    let authority = Authority::new("bench");
    let own = authority.server("tidegate");
    let policy = parts::policy()?;
    let files = ["--tls-cert".into(), text(&own.path), "--tls-key".into(), text(&own.key)];
    let plain = Reachable { server: servers::tidegate("grpc", &policy)?, authority: None };
    let tls = Reachable {
        server: servers::tidegate_with("grpc", &policy, &files)?,
        authority: Some(authority.path().into()),
    };
    println!("\nTLS on kept gRPC connections: processor time of the daemon per call");
    let mut targets = Vec::new();
    for load in [Load { connections: 2, calls: 32 }, Load { connections: 16, calls: 1 }] {
        targets.push(processor_time(options, load, [&plain, &tls])?);
    }
    targets.push(latency(options, &tls)?);
    Ok(targets)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The processor time of a call with TLS, times that without; the median of interleaved rounds.
fn processor_time(
    options: &Options,
    load: Load,
    reachable: [&Reachable; 2],
) -> Result<Target, String> {
    let mut taken = [const { Vec::new() }; 2];
    for _ in 0..options.rounds() {
        for (index, it) in reachable.into_iter().enumerate() {
            let (count, used) = kept(options, load, it)?;
            taken[index].push(used.as_secs_f64() * 1e6 / f64::from(count.max(1)));
        }
    }
    let [without, with] = taken.each_mut().map(|all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    });
    let Load { connections, calls } = load;
    let name = format!("{connections} connections x {calls} calls in flight");
    println!("  {name:<40} {without:>8.2} us without TLS, {with:>8.2} us with it");
    Ok(Target {
        name: format!("gRPC with TLS, {connections} x {calls}, times without"),
        measured: with / without,
        wanted: 1.25,
        is_least: false,
    })
}

/// Calls on kept connections: their number, and the processor time that they took.
fn kept(options: &Options, load: Load, at: &Reachable) -> Result<(u32, Duration), String> {
    runtime().block_on(async {
        let mut channels = Vec::new();
        for _ in 0..load.connections {
            channels.push(connect(at.server.address, at.authority.as_deref()).await?);
        }
        let before = at.server.processor_time();
        let ends = Instant::now() + options.round();
        let mut tasks = Vec::new();
        for (connection, channel) in (0_u32..).zip(&channels) {
            for number in 0..load.calls {
                let seed = connection * load.calls + number;
                tasks.push(tokio::spawn(calls(channel.clone(), seed, options.keys(), ends)));
            }
        }
        let mut count = 0;
        for task in tasks {
            count += task.await.map_err(|error| error.to_string())??;
        }
        Ok((count, at.server.processor_time() - before))
    })
}

async fn connect(address: SocketAddr, authority: Option<&Path>) -> Result<Channel, String> {
    let scheme = if authority.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::try_from(format!("{scheme}://{address}"));
    let mut endpoint = endpoint.map_err(|error| error.to_string())?;
    if let Some(path) = authority {
        let pem = std::fs::read(path).map_err(|error| error.to_string())?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(pem))
            .domain_name("localhost");
        endpoint = endpoint.tls_config(tls).map_err(|error| error.to_string())?;
    }
    endpoint.connect().await.map_err(|error| format!("{error:?}"))
}

/// The 99th percentile of calls on kept connections while new ones arrive, times that before.
fn latency(options: &Options, at: &Reachable) -> Result<Target, String> {
    let Some(authority) = &at.authority else { return Err("the daemon has no TLS".into()) };
    let mut ratios = Vec::new();
    println!(
        "p99 of 4 kept connections, a call every 2 ms on each, without and with {NEW} new ones"
    );
    for _ in 0..options.rounds() {
        let (quiet, busy, flood) = runtime().block_on(async {
            let mut channels = Vec::new();
            for _ in 0..4 {
                channels.push(connect(at.server.address, Some(authority)).await?);
            }
            let quiet = paced(&channels, Until::Time(options.round()), options.keys()).await?;
            let begun = Instant::now();
            let flood = start_flood(at.server.address, authority)?;
            let busy = paced(&channels, Until::End(flood), options.keys()).await?;
            Ok::<_, String>((p99(quiet), p99(busy), begun.elapsed()))
        })?;
        println!("  {quiet:>8.0?} without, {busy:>8.0?} with, {NEW} handshakes in {flood:.0?}");
        ratios.push(busy.as_secs_f64() / quiet.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(Target {
        name: format!("p99 of kept TLS connections with {NEW} new ones, times without"),
        measured: ratios[ratios.len() / 2],
        wanted: 2.0,
        is_least: false,
    })
}

/// When to stop.
enum Until {
    Time(Duration),
    /// When this process ends, which must succeed.
    End(Child),
}

/// The latencies of calls on these connections, one every 2 ms on each.
async fn paced(channels: &[Channel], until: Until, keys: u32) -> Result<Vec<Duration>, String> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let tasks: Vec<_> = (0_u32..)
        .zip(channels)
        .map(|(seed, channel)| {
            let (channel, stopped) = (channel.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut ticks = tokio::time::interval(Duration::from_millis(2));
                let (mut taken, mut number) = (Vec::new(), seed);
                while !*stopped.borrow() {
                    let due = ticks.tick().await;
                    number = number.wrapping_mul(0x9e37_79b9).wrapping_add(1);
                    call(&channel, number % keys).await?;
                    // From when it was due, so that a slow call counts for those that it delays.
                    taken.push(due.elapsed());
                }
                Ok::<_, String>(taken)
            })
        })
        .collect();
    match until {
        Until::Time(time) => tokio::time::sleep(time).await,
        Until::End(mut child) => loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => break,
                Some(status) => return Err(format!("the new connections failed: {status}")),
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        },
    }
    let _ = stop.send(true);
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.map_err(|error| error.to_string())??);
    }
    Ok(all)
}

fn p99(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() * 99 / 100).copied().unwrap_or_default()
}

/// This program as clients that only connect. They have what processor time the measuring leaves, as
/// if they were on other machines.
fn start_flood(address: SocketAddr, authority: &Path) -> Result<Child, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Command::new("nice")
        .args(["-n", "19"])
        .arg(own)
        .args(["--flood", &address.to_string()])
        .arg(authority)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())
}

/// Makes new connections, all at once, and ends when all have TLS.
pub fn flood(address: Option<String>, authority: Option<String>) -> ExitCode {
    let (Some(Ok(address)), Some(authority)) = (address.map(|it| it.parse()), authority) else {
        return ExitCode::from(2);
    };
    let connected = runtime().block_on(async {
        let tasks: Vec<_> = (0..NEW)
            .map(|_| {
                let authority = authority.clone();
                tokio::spawn(async move { connect(address, Some(Path::new(&authority))).await })
            })
            .collect();
        let mut channels = Vec::new();
        for task in tasks {
            channels.push(task.await.map_err(|error| error.to_string())??);
        }
        Ok::<_, String>(channels.len())
    });
    match connected {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// How many new connections there are.
const NEW: usize = 1_000;
