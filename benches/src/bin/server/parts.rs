//! The measurements over RESP and HTTP, and of the start.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::load::{Loaded, Reply, Shape, Talk, fill, load};
use super::servers::{self, Server};
use super::{Options, Target};

const CL_THROTTLE: Talk = Talk {
    request: |out, key| command(out, &["CL.THROTTLE", &name(key), "999999", "1", "3600"]),
    reply: Reply::Lines(6),
};
const INCR_EXPIRE: Talk = Talk {
    request: |out, key| {
        let name = name(key);
        command(out, &["INCR", &name]);
        command(out, &["EXPIRE", &name, "3600"]);
    },
    reply: Reply::Lines(2),
};
const PING: Talk = Talk { request: |out, _| command(out, &["PING"]), reply: Reply::Lines(1) };
/// The digest of [`SCRIPT`] is the same on every server.
const BUCKET: Talk = Talk {
    request: |out, key| {
        command(out, &["EVALSHA", SCRIPT_DIGEST, "1", &name(key), "999999", "3600000"]);
    },
    reply: Reply::Lines(1),
};

/// A usual bucket script: the time at which it is full again, in milliseconds, with an expiry.
const SCRIPT: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
if full_at < now then full_at = now end
local next = full_at + ARGV[2]
if next - now > ARGV[1] * ARGV[2] then return 0 end
redis.call('SET', KEYS[1], next, 'PX', next - now)
return 1";
const SCRIPT_DIGEST: &str = include_str!("script.sha1");

pub const CHECK: Talk = Talk {
    request: |out, key| {
        let body = format!("{{\"attributes\":{{\"user\":\"{}\"}}}}", name(key));
        post(out, "/v1/check", &body);
    },
    reply: Reply::Http,
};
const HTTP_THROTTLE: Talk = Talk {
    request: |out, key| {
        let body = format!(
            "{{\"key\":\"{}\",\"max_burst\":1000000,\"count_per_period\":1,\"period\":3600}}",
            name(key)
        );
        post(out, "/throttle", &body);
    },
    reply: Reply::Http,
};

fn name(key: u32) -> String {
    format!("user:{key:07}")
}

fn command(out: &mut Vec<u8>, parts: &[&str]) {
    let _ = write!(out, "*{}\r\n", parts.len());
    for part in parts {
        let _ = write!(out, "${}\r\n{part}\r\n", part.len());
    }
}

fn post(out: &mut Vec<u8>, path: &str, body: &str) {
    let _ = write!(
        out,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// A policy whose limit is never reached in a benchmark.
pub fn policy() -> Result<PathBuf, String> {
    let path = std::env::temp_dir().join(format!("tidegate-bench-{}.toml", std::process::id()));
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\n\
                  bucket = { rate = \"1 per 1h\", burst = 1000000 }\n";
    std::fs::write(&path, policy).map_err(|error| error.to_string())?;
    Ok(path)
}

/// One of the servers that are measured together.
struct Contender<'a> {
    name: &'a str,
    server: &'a Server,
    talk: Talk,
}

/// The median of each contender, in interleaved rounds.
fn medians(
    contenders: &[Contender<'_>],
    shape: Shape,
    rounds: usize,
) -> Result<Vec<Loaded>, String> {
    let mut all: Vec<Vec<Loaded>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contender, loaded) in contenders.iter().zip(&mut all) {
            let result = load(contender.server.address, contender.talk, shape);
            loaded.push(result.map_err(|error| format!("{}: {error}", contender.name))?);
        }
    }
    Ok(all
        .into_iter()
        .map(|mut rounds| {
            rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
            rounds.swap_remove(rounds.len() / 2)
        })
        .collect())
}

pub fn resp(options: &Options) -> Result<Vec<Target>, String> {
    let policy = policy()?;
    let (tidegate, redis) = (servers::tidegate("resp", &policy)?, servers::redis()?);
    load_script(redis.address)?;
    let keys = options.keys();
    fill(tidegate.address, CL_THROTTLE, keys)?;
    let resident = tidegate.resident_mib();
    fill(redis.address, INCR_EXPIRE, keys)?;
    println!(
        "RESP, {keys} keys: tidegate {resident:.0} MiB, redis {:.0} MiB",
        redis.resident_mib()
    );
    let contenders = [
        Contender { name: "tidegate CL.THROTTLE", server: &tidegate, talk: CL_THROTTLE },
        Contender { name: "redis INCR + EXPIRE", server: &redis, talk: INCR_EXPIRE },
        Contender { name: "redis PING", server: &redis, talk: PING },
        Contender { name: "redis bucket by EVALSHA", server: &redis, talk: BUCKET },
    ];
    let mut targets = vec![Target {
        name: format!("resident MiB with {keys} keys"),
        measured: resident,
        wanted: 100.0,
        is_least: false,
    }];
    for pipeline in [1, 16, 64] {
        let shape = Shape { connections: 50, pipeline, keys, time: options.round() };
        let loaded = medians(&contenders, shape, options.rounds())?;
        println!("50 connections, pipeline {pipeline}");
        for (contender, loaded) in contenders.iter().zip(&loaded) {
            let (rate, p99) = (loaded.per_second / 1e3, loaded.p99);
            println!("  {:<26} {rate:>8.0} k/s, p99 of a batch {p99:.1?}", contender.name);
        }
        let ratio = |than: usize| loaded[0].per_second / loaded[than].per_second;
        let wanted: &[(&str, usize, f64)] = match pipeline {
            1 => &[("INCR + EXPIRE", 1, 1.0)],
            16 => &[("INCR + EXPIRE", 1, 3.0), ("a bucket by EVALSHA", 3, 8.0)],
            _ => &[("bare PING", 2, 0.5)],
        };
        targets.extend(wanted.iter().map(|(peer, index, wanted)| Target {
            name: format!("CL.THROTTLE, pipeline {pipeline}, times redis's {peer}"),
            measured: ratio(*index),
            wanted: *wanted,
            is_least: true,
        }));
    }
    Ok(targets)
}

pub fn http(options: &Options) -> Result<Vec<Target>, String> {
    let policy = policy()?;
    let (tidegate, crab) = (servers::tidegate("http", &policy)?, servers::throttlecrab()?);
    let keys = options.keys();
    let shape = Shape { connections: 50, pipeline: 1, keys, time: options.round() };
    let contenders = [
        Contender { name: "tidegate /v1/check", server: &tidegate, talk: CHECK },
        Contender { name: "throttlecrab /throttle", server: &crab, talk: HTTP_THROTTLE },
    ];
    for contender in &contenders {
        fill(contender.server.address, contender.talk, keys)?;
    }
    let resident = tidegate.resident_mib();
    // Processor time has a resolution of 10 ms: it is measured over all rounds.
    let before = contenders.each_ref().map(|it| it.server.processor_time());
    let mut rounds = [const { Vec::new() }; 2];
    for _ in 0..options.rounds() {
        for (contender, rounds) in contenders.iter().zip(&mut rounds) {
            rounds.push(load(contender.server.address, contender.talk, shape)?);
        }
    }
    let mut per_request_us = Vec::new();
    let mut loaded = Vec::new();
    for ((contender, before), mut rounds) in contenders.iter().zip(before).zip(rounds) {
        let taken = contender.server.processor_time() - before;
        let requests: u64 = rounds.iter().map(|round: &Loaded| round.requests).sum();
        per_request_us.push(taken.as_secs_f64() * 1e6 / requests as f64);
        rounds.sort_by_key(|round| round.p99);
        loaded.push(rounds.swap_remove(rounds.len() / 2));
    }
    println!("HTTP, 50 connections, {keys} keys, tidegate {resident:.0} MiB");
    for ((contender, loaded), us) in contenders.iter().zip(&loaded).zip(&per_request_us) {
        let (rate, p99) = (loaded.per_second / 1e3, loaded.p99);
        println!(
            "  {:<26} {rate:>8.0} k/s, p99 {p99:.1?}, {us:.2} us of processor",
            contender.name
        );
    }
    Ok(vec![
        Target {
            name: "HTTP check, throttlecrab's processor time to ours".into(),
            measured: per_request_us[1] / per_request_us[0],
            wanted: 1.35,
            is_least: true,
        },
        Target {
            name: "HTTP check, p99 in milliseconds".into(),
            measured: loaded[0].p99.as_secs_f64() * 1e3,
            wanted: 3.0,
            is_least: false,
        },
    ])
}

/// From starting the process to its first response.
pub fn start(options: &Options) -> Result<Vec<Target>, String> {
    let policy = policy()?;
    let mut times = Vec::new();
    for _ in 0..options.rounds() {
        let begun = Instant::now();
        let server = servers::tidegate("http", &policy)?;
        first_response(server.address)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!("start to first response: {median:.1?}");
    Ok(vec![Target {
        name: "start to first response, in milliseconds".into(),
        measured: median.as_secs_f64() * 1e3,
        wanted: 100.0,
        is_least: false,
    }])
}

fn first_response(address: SocketAddr) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
    let mut request = Vec::new();
    (CHECK.request)(&mut request, 1);
    stream.write_all(&request).map_err(failed)?;
    let mut bytes = [0; 1024];
    let read = stream.read(&mut bytes).map_err(failed)?;
    if bytes[..read].starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err("no response".into()) }
}

fn load_script(address: SocketAddr) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let mut request = Vec::new();
    command(&mut request, &["SCRIPT", "LOAD", SCRIPT]);
    stream.write_all(&request).map_err(failed)?;
    let mut bytes = [0; 256];
    let read = stream.read(&mut bytes).map_err(failed)?;
    let reply = String::from_utf8_lossy(&bytes[..read]).into_owned();
    if reply.contains(SCRIPT_DIGEST) { Ok(()) } else { Err(format!("another digest: {reply}")) }
}
