use std::fs;
use std::path::PathBuf;

use super::*;

const MOST: BlockBounds = BlockBounds { per_client: 3, total: 5 };

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn open(&self) -> Result<Blocks, BlocksError> {
        Blocks::in_folder(&self.0, MOST)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn blocks_have_a_direction_and_can_be_taken_back() {
    let blocks = Blocks::in_memory(MOST);
    assert!(!blocks.has("ann", "bob"));
    blocks.block("ann", "bob");
    assert!(blocks.has("ann", "bob") && !blocks.has("bob", "ann") && !blocks.has("ann", "eve"));
    blocks.unblock("ann", "eve");
    blocks.unblock("bob", "ann");
    assert!(blocks.has("ann", "bob"));
    blocks.unblock("ann", "bob");
    assert!(!blocks.has("ann", "bob"));
    assert_eq!(blocks.read().total, 0);
}

#[test]
fn blocks_are_bounded_per_client_and_in_total() {
    let blocks = Blocks::in_memory(MOST);
    for sender in ["1", "1", "2", "3", "4"] {
        blocks.block("ann", sender);
    }
    assert!(blocks.has("ann", "3") && !blocks.has("ann", "4"), "three for one client");
    for sender in ["1", "2", "3"] {
        blocks.block("bob", sender);
    }
    assert!(blocks.has("bob", "2") && !blocks.has("bob", "3"), "five in total");
    blocks.unblock("ann", "1");
    blocks.block("bob", "3");
    assert!(blocks.has("bob", "3"), "one has become free");
}

#[test]
fn blocks_survive_a_restart() {
    let folder = Folder::new("blocks-restart");
    let blocks = folder.open().unwrap();
    blocks.block("ann", "bob");
    blocks.block("ann", "eve");
    blocks.unblock("ann", "bob");
    assert!(matches!(folder.open(), Err(BlocksError::InUse { .. })), "one process at a time");
    drop(blocks);
    let blocks = folder.open().unwrap();
    assert!(!blocks.has("ann", "bob") && blocks.has("ann", "eve"));
    drop(blocks);
    // A crash has cut the last line; damage elsewhere is reported.
    let path = folder.0.join("blocks");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}+ 0123")).unwrap();
    let blocks = folder.open().unwrap();
    assert!(blocks.has("ann", "eve"));
    blocks.block("ann", "bob");
    drop(blocks);
    assert!(folder.open().unwrap().has("ann", "bob"), "not appended to half a line");
    fs::write(&path, format!("{whole}nonsense\n{whole}")).unwrap();
    let error = folder.open().unwrap_err().to_string();
    assert!(error.contains("damaged in line 2"), "{error}");
}

#[test]
fn the_file_does_not_grow_with_every_change() {
    let folder = Folder::new("blocks-growth");
    let blocks = folder.open().unwrap();
    for _ in 0..5_000 {
        blocks.block("ann", "bob");
        blocks.unblock("ann", "bob");
    }
    blocks.block("ann", "bob");
    assert!(fs::metadata(folder.0.join("blocks")).unwrap().len() < 100_000);
    drop(blocks);
    assert!(folder.open().unwrap().has("ann", "bob"));
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let folder = Folder::new("blocks-file");
    fs::write(&folder.0, "a file").unwrap();
    let error = folder.open().unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot use {}: ", folder.0.display())), "{error}");
    fs::remove_file(&folder.0).unwrap();
}
