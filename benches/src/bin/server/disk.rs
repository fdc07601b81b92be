//! Checks over HTTP whose charges are synced to the disk, compared with a bare fsync.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::load::{Shape, load};
use super::parts::CHECK;
use super::{Options, Target, servers};

/// 64 callers that each wait until their charge is on the disk. Between the rounds a bare fsync is
/// measured, in the same folder.
pub fn measure(options: &Options) -> Result<Vec<Target>, String> {
    let folder = Folder::new()?;
    let policy = folder.0.join("policy.toml");
    let rule = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\n\
                quota = { max = 1000000000, per = \"day\" }\ndurability = \"fsync\"\n";
    fs::write(&policy, rule).map_err(|error| error.to_string())?;
    let store = format!("file:{}", folder.0.join("store").display());
    let server = servers::tidegate_with("http", &policy, &["--store".to_owned(), store])?;
    let in_memory = servers::tidegate("http", &policy)?;
    let shape = Shape { connections: 64, pipeline: 1, keys: 10_000, time: options.round() };
    // Without the first round, which makes the keys.
    load(server.address, CHECK, shape)?;
    load(in_memory.address, CHECK, shape)?;
    let (mut p99s, mut rates, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory_p99s = Vec::new();
    for _ in 0..options.rounds() {
        syncs.extend(fsyncs(&folder.0)?);
        let loaded = load(server.address, CHECK, shape)?;
        p99s.push(loaded.p99.as_secs_f64() * 1e6);
        rates.push(loaded.per_second);
        let loaded = load(in_memory.address, CHECK, shape)?;
        memory_p99s.push(loaded.p99.as_secs_f64() * 1e6);
    }
    let mut syncs: Vec<f64> = syncs.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    let (p99, rate) = (part_of(&mut p99s, 50), part_of(&mut rates, 50));
    let (sync_p50, sync_p99) = (part_of(&mut syncs, 50), part_of(&mut syncs, 99));
    println!("HTTP with a store on disk, 64 connections");
    println!("  tidegate /v1/check         {:>8.1} k/s, p99 {p99:.0} us", rate / 1e3);
    let memory_p99 = part_of(&mut memory_p99s, 50);
    println!("  the same without the disk  p99 {memory_p99:.0} us");
    println!("  a bare fsync of 4 KiB      p50 {sync_p50:.0} us, p99 {sync_p99:.0} us");
    let beyond = (p99 - memory_p99) / sync_p50;
    println!(
        "  p99 in fsyncs (p99): {:.2}; beyond that without the disk, in fsyncs (p50): {beyond:.2}",
        p99 / sync_p99
    );
    Ok(vec![Target {
        name: "HTTP check on disk, p99 in fsyncs (p50)".into(),
        measured: p99 / sync_p50,
        wanted: 3.0,
        is_least: false,
    }])
}

/// The value that so many percent are not above.
fn part_of(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

/// How long it takes to append 4 KiB and sync them, alone: `fdatasync`, as in the log.
fn fsyncs(folder: &Path) -> Result<Vec<Duration>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut file = File::create(folder.join("bare")).map_err(failed)?;
    let mut times = Vec::new();
    for _ in 0..200 {
        file.write_all(&[7; 4_096]).map_err(failed)?;
        let begun = Instant::now();
        file.sync_data().map_err(failed)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// A folder on the disk of the current directory, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::current_dir().map_err(|error| error.to_string())?;
        let path = path.join(format!("tidegate-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
