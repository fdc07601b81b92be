//! A lean load generator: connections that send a batch, read all its replies, and send the next.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// The requests that are sent, and the form of replies.
#[derive(Clone, Copy)]
pub struct Talk {
    /// Writes the request for a key.
    pub request: fn(&mut Vec<u8>, u32),
    pub reply: Reply,
}

/// The size of one reply.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// This many lines.
    Lines(usize),
    /// An HTTP/1.1 response with a `content-length`.
    Http,
}

/// The shape of the load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    /// Requests in a batch.
    pub pipeline: usize,
    pub keys: u32,
    pub time: Duration,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub per_second: f64,
    pub p99: Duration,
    pub requests: u64,
}

/// Loads a server for a time.
pub fn load(address: SocketAddr, talk: Talk, shape: Shape) -> Result<Loaded, String> {
    run(async move {
        let begun = Instant::now();
        let ends = begun + shape.time;
        let mut tasks = Vec::new();
        for number in 0..shape.connections {
            tasks.push(tokio::spawn(connection(address, talk, shape, (number, ends))));
        }
        let (mut requests, mut took) = (0, Vec::new());
        for task in tasks {
            let (count, times) = task.await.map_err(|error| error.to_string())??;
            requests += count;
            took.extend(times);
        }
        let elapsed = begun.elapsed();
        took.sort_unstable();
        let p99 = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
        Ok(Loaded { per_second: requests as f64 / elapsed.as_secs_f64(), p99, requests })
    })
}

/// Sends one request for every key.
pub fn fill(address: SocketAddr, talk: Talk, keys: u32) -> Result<(), String> {
    run(async move {
        let mut line = Line::connect(address).await?;
        let pipeline = if matches!(talk.reply, Reply::Http) { 1 } else { 64 };
        let mut batch = Vec::new();
        for first in (0..keys).step_by(pipeline) {
            let last = keys.min(first + pipeline as u32);
            batch.clear();
            (first..last).for_each(|key| (talk.request)(&mut batch, key));
            line.exchange(&batch, talk.reply, (last - first) as usize).await?;
        }
        Ok(())
    })
}

fn run<T>(future: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(future)
}

async fn connection(
    address: SocketAddr,
    talk: Talk,
    shape: Shape,
    (number, ends): (usize, Instant),
) -> Result<(u64, Vec<Duration>), String> {
    let mut line = Line::connect(address).await?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1) | 1;
    let (mut requests, mut took, mut batch) = (0, Vec::new(), Vec::new());
    loop {
        let begun = Instant::now();
        if begun >= ends {
            return Ok((requests, took));
        }
        batch.clear();
        for _ in 0..shape.pipeline {
            // xorshift: any order is fine, as long as it is the same for all servers.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (talk.request)(&mut batch, ((random >> 32) as u32) % shape.keys);
        }
        line.exchange(&batch, talk.reply, shape.pipeline).await?;
        took.push(begun.elapsed());
        requests += shape.pipeline as u64;
    }
}

/// A connection and its read buffer.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    async fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, buffer: vec![0; 1 << 16] })
    }

    async fn exchange(&mut self, batch: &[u8], reply: Reply, count: usize) -> Result<(), String> {
        self.stream.write_all(batch).await.map_err(|error| error.to_string())?;
        let mut left = match reply {
            Reply::Lines(lines) => lines * count,
            Reply::Http => count,
        };
        let mut filled = 0;
        while left > 0 {
            let read = self.stream.read(&mut self.buffer[filled..]).await;
            let read = read.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            match reply {
                Reply::Lines(_) => {
                    let bytes = &self.buffer[..read];
                    if bytes[0] == b'-' {
                        return Err(String::from_utf8_lossy(bytes).into_owned());
                    }
                    left = left.saturating_sub(bytes.iter().filter(|byte| **byte == b'\n').count());
                }
                Reply::Http => {
                    filled += read;
                    if let Some(length) = response_len(&self.buffer[..filled])? {
                        self.buffer.copy_within(length..filled, 0);
                        filled -= length;
                        left -= 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The length of a response, once its head and body have arrived.
fn response_len(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(head_len) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { return Ok(None) };
    if !bytes.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned());
    }
    let head = String::from_utf8_lossy(&bytes[..head_len]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|it| it.trim().parse().ok()).ok_or("no content-length")?;
    let whole = head_len + 4 + length;
    Ok((bytes.len() >= whole).then_some(whole))
}
