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
fn blocks_are_bounded_per_client() {
    let blocks = Blocks::in_memory(MOST);
    for sender in ["1", "1", "2", "3"] {
        blocks.block("ann", sender);
    }
    assert_eq!((blocks.len(), blocks.refused()), (3, 0));
    blocks.block("ann", "4");
    assert!(blocks.has("ann", "3") && !blocks.has("ann", "4"), "three for one client");
    assert_eq!((blocks.len(), blocks.refused()), (3, 1));
    blocks.block("ann", "2");
    assert_eq!(blocks.refused(), 1, "one that is there is not refused");
    blocks.unblock("ann", "1");
    blocks.block("ann", "4");
    assert!(blocks.has("ann", "4"), "one has become free");
}

#[test]
fn strangers_cannot_take_the_room_of_others() {
    let most = BlockBounds { per_client: 100, total: 10_000 };
    let blocks = Blocks::in_memory(most);
    blocks.block("early", "bob");
    // Together they would fill the table five times.
    for round in 0..100 {
        for stranger in 0..500 {
            blocks.block(&format!("stranger {stranger}"), &format!("{round}"));
        }
    }
    assert!(blocks.refused() > 0 && blocks.len() == most.total);
    let newcomers: Vec<String> = (0..50).map(|it| format!("newcomer {it}")).collect();
    for newcomer in &newcomers {
        for sender in 0..10 {
            blocks.block(newcomer, &format!("{sender}"));
        }
    }
    let has_all = |newcomer| (0..10).all(|sender| blocks.has(newcomer, &format!("{sender}")));
    assert!(newcomers.iter().all(|newcomer| has_all(newcomer)));
    assert!(blocks.has("early", "bob"), "only those with the most make room");
    assert_eq!((blocks.len(), blocks.dropped()), (most.total, 500));
}

#[test]
fn every_client_has_a_block_while_there_are_no_more_clients_than_blocks() {
    let most = BlockBounds { per_client: 10, total: 100 };
    let blocks = Blocks::in_memory(most);
    for client in 0..200 {
        for sender in 0..20 {
            blocks.block(&format!("{client}"), &format!("{sender}"));
            assert!(blocks.len() <= most.total);
        }
    }
    let of =
        |client| (0..20).filter(|it| blocks.has(&format!("{client}"), &format!("{it}"))).count();
    assert!((0..100).all(|client| of(client) == 1) && (100..200).all(|client| of(client) == 0));
    assert_eq!(blocks.read().by_count.len(), 100);
}

#[test]
fn blocks_in_a_file_stay_within_the_bounds() {
    let folder = Folder::new("blocks-bounds");
    let generous = BlockBounds { per_client: 100, total: 1_000 };
    let blocks = Blocks::in_folder(&folder.0, generous).unwrap();
    for client in ["ann", "bob", "cid"] {
        for sender in 0..4 {
            blocks.block(client, &format!("{sender}"));
        }
    }
    assert_eq!(blocks.len(), 12);
    drop(blocks);
    let blocks = folder.open().unwrap();
    assert_eq!((blocks.len(), blocks.refused() + blocks.dropped()), (5, 7));
    let of = |client| (0..4).filter(|sender| blocks.has(client, &format!("{sender}"))).count();
    assert!(["ann", "bob", "cid"].into_iter().all(|client| (1..=3).contains(&of(client))));
    // One that made room is gone from the file, too.
    for client in ["dee", "eve"] {
        blocks.block(client, "1");
    }
    let kept = |blocks: &Blocks| {
        let clients = ["ann", "bob", "cid", "dee", "eve"].into_iter();
        let pairs = clients.flat_map(|client| (0..4).map(move |sender| (client, sender)));
        pairs
            .filter(|(client, sender)| blocks.has(client, &format!("{sender}")))
            .collect::<Vec<_>>()
    };
    let before = kept(&blocks);
    assert!(before.contains(&("dee", 1)) && before.contains(&("eve", 1)));
    drop(blocks);
    let blocks = folder.open().unwrap();
    assert_eq!((kept(&blocks), blocks.refused(), blocks.dropped()), (before, 0, 0));
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
