//! A disk that fills up, as a small file system of its own.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tokio::time::timeout;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{Scratch, TIMEOUT};

/// A file system of so many KiB, unmounted at the end.
struct SmallDisk(Scratch);

impl SmallDisk {
    /// `None` where the test may not mount one; in CI it may.
    fn new(size_kib: u64) -> Option<Self> {
        let scratch = Scratch::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size_kib}k"), "tmpfs"])
            .arg(&scratch.0)
            .output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        let is_ci = std::env::var_os("CI").is_some();
        assert!(is_mounted || !is_ci, "mounting a tmpfs needs root");
        is_mounted.then_some(Self(scratch))
    }

    /// Fills it to the last byte.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.0.0.join("ballast");
        let mut len = 0;
        for piece in [4_096, 512, 64, 1] {
            while append(&path, &vec![1; piece]) {
                len += piece;
            }
        }
        assert!(len > 0);
        path
    }
}

fn append(path: &Path, bytes: &[u8]) -> bool {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.is_ok_and(|mut file| file.write_all(bytes).is_ok())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).output();
    }
}

#[tokio::test]
async fn desk_on_a_full_disk_denies_and_opens_again() {
    let Some(disk) = SmallDisk::new(3_000) else { return };
    let ai = Ai::quick().await;
    let cooldown = [("PROPOSALS_COOLDOWN", "1h")];
    let program = Program::started(&disk.0, ai, &cooldown).await;
    let http = &program.http;
    let before = http.proposed("ada", 1, "before").await;
    let ballast = disk.fill();
    // Space is allocated ahead, so that some more is accepted.
    let long = "x".repeat(4_000);
    let mut rounds = 0;
    loop {
        rounds += 1;
        let proposed = http.propose("bob", 1, &long).await;
        if proposed.status == 503 {
            break;
        }
        if proposed.status == 201 {
            let id = proposed.body["id"].as_str().unwrap().to_owned();
            let _ = http.act("bob", &id, "cancel").await;
        }
        let last = http.get("host", "/v1/window").await.ok()["rounds"]["last"].as_u64().unwrap();
        let round = http.post("host", "/v1/rounds", json!({ "round": last + 1 })).await;
        if round.status == 503 {
            break;
        }
        assert!(rounds < 100_000, "the disk has 3 MB");
    }
    assert_eq!(http.propose("cy", 1, "in the outage").await.status, 503);
    assert_eq!(http.get("ada", "/healthz").await.status, 503);
    let log = program.killed().await;
    assert!(log.contains("store unavailable") && log.contains("os error 28"), "{log}");
    // It opens on the full disk, as soon as there is nothing to write, or else when there is room.
    std::fs::remove_file(&ballast).unwrap();
    let program = Program::started(&disk.0, ai, &cooldown).await;
    let http = &program.http;
    assert_eq!(http.status(&before).await, "interpreted");
    http.act("ada", &before, "confirm").await.ok();
    http.proposed("cy", 1, "after the outage").await;
    assert_eq!((http.left("cy").await.0, http.sum("cy").await), (1, 1));
    for who in ["ada", "bob", "cy"] {
        let left = i64::try_from(http.left(who).await.0).unwrap();
        assert_eq!(left, http.sum(who).await, "{who}");
    }
}

#[tokio::test]
async fn running_desk_recovers_when_the_disk_has_room_again() {
    let Some(disk) = SmallDisk::new(2_500) else { return };
    let ai = Ai::quick().await;
    let cooldown = [("PROPOSALS_COOLDOWN", "1h")];
    let program = Program::started(&disk.0, ai, &cooldown).await;
    let http = &program.http;
    let ballast = disk.fill();
    let mut round = 0;
    loop {
        round += 1;
        if http.post("host", "/v1/rounds", json!({ "round": round })).await.status == 503 {
            break;
        }
    }
    assert_eq!(http.propose("ada", 1, "in the outage").await.status, 503);
    std::fs::remove_file(&ballast).unwrap();
    let healthy = async {
        while http.get("ada", "/healthz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, healthy).await.expect("the disk in time");
    for who in ["ada", "bob", "cy"] {
        let left = i64::try_from(http.left(who).await.0).unwrap();
        assert_eq!(left, http.sum(who).await, "{who}");
    }
    // The attempt in the outage left no cooldown.
    let id = http.proposed("ada", 1, "after the outage").await;
    http.act("ada", &id, "confirm").await.ok();
    program.killed().await;
    let program = Program::started(&disk.0, ai, &cooldown).await;
    assert_eq!(program.http.status(&id).await, "voting");
}
