//! The socket's file: its mode, its owner, its removal.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use tidegate_local_service::{BindError, SocketFile};
use tokio::runtime::Runtime;

use crate::harness::{Folder, Running, command};

fn bind(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), BindError> {
    runtime().block_on(SocketFile::bind(path, mode))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The error output of a command that fails to listen.
fn bind_error(socket: &Path) -> String {
    let output = command().arg("serve").arg("--socket").arg(socket).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn file_has_its_final_mode_from_the_start() {
    let folder = Folder::new();
    let socket = folder.socket();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(metadata) = fs::symlink_metadata(&socket) {
                    seen.insert(metadata.permissions().mode() & 0o7777);
                }
            }
            seen
        });
        for _ in 0..500 {
            drop(bind(&socket, 0o600).unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(Vec::from_iter(watcher.join().unwrap()), [0o600]);
    });
    assert_eq!(folder.names(), Vec::<String>::new());
}

/// While it is created it is in a folder that other users cannot enter.
#[test]
fn folder_of_the_new_socket_is_private() {
    let folder = Folder::new();
    let socket = folder.socket();
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                for name in folder.names() {
                    let Ok(metadata) = fs::symlink_metadata(folder.path().join(&name)) else {
                        continue;
                    };
                    if metadata.is_dir() {
                        assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
                        seen += 1;
                    } else if name.ends_with(".lock") {
                        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
                    }
                }
            }
            seen
        });
        for _ in 0..300 {
            drop(bind(&socket, 0o666).unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    println!("seen {seen} times");
}

#[test]
fn default_mode_depends_on_the_access_list() {
    for (args, mode) in [
        (&[][..], 0o600),
        (&["--allow-everybody"], 0o666),
        (&["--allow-user", "uid:1"], 0o666),
        (&["--allow-group", "gid:1"], 0o666),
        (&["--allow-everybody", "--mode", "0660"], 0o660),
        (&["--mode", "666"], 0o666),
    ] {
        let running = Running::start(args);
        let metadata = fs::symlink_metadata(running.folder.socket()).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{args:?}");
    }
}

#[test]
fn socket_of_a_dead_process_is_replaced() {
    let folder = Running::start(&[]).kill();
    let socket = folder.socket();
    let dead = fs::symlink_metadata(&socket).unwrap();
    assert!(dead.file_type().is_socket());
    let running = Running::start_in(folder, command(), &[]);
    assert_ne!(fs::symlink_metadata(&socket).unwrap().ino(), dead.ino());
    assert!(running.call().ping());
    let (status, _) = running.stop(Signal::SIGTERM);
    assert!(status.success());
}

#[test]
fn socket_of_a_live_process_is_kept() {
    let running = Running::start(&[]);
    let message = bind_error(&running.folder.socket());
    assert!(message.contains("another process listens on"), "{message}");
    assert!(running.call().ping());
    // A program that uses no lock.
    let folder = Folder::new();
    let _listener = UnixListener::bind(folder.socket()).unwrap();
    let message = bind_error(&folder.socket());
    assert!(message.contains("another process listens on"), "{message}");
    assert!(folder.socket().exists());
}

#[test]
fn one_of_many_concurrent_starts_replaces_a_dead_socket() {
    for _ in 0..20 {
        // A socket of this process might stay open in children of other tests.
        let folder = Running::start(&[]).kill();
        let socket = folder.socket();
        let barrier = Barrier::new(8);
        let start = || {
            let runtime = runtime();
            barrier.wait();
            runtime.block_on(SocketFile::bind(&socket, 0o600))
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = made.iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        assert!(
            made.iter()
                .flat_map(|it| it.as_ref().err())
                .all(|it| matches!(it, BindError::InUse(_)))
        );
        assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }
}

#[test]
fn files_that_are_no_sockets_are_kept() {
    let folder = Folder::new();
    let file = folder.write("s.sock", "precious");
    assert!(bind_error(&file).contains("not a socket"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    assert!(bind_error(&link).contains("not a socket"));
    assert!(bind_error(folder.path()).contains("not a socket"));
    assert_eq!(folder.names().len(), 2);
}

#[test]
fn file_replaced_by_another_process_is_not_removed() {
    let folder = Folder::new();
    let socket = folder.socket();
    let (_listener, file) = bind(&socket, 0o600).unwrap();
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "another").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "another");
}

#[test]
fn invalid_path_is_reported() {
    let folder = Folder::new();
    let long = folder.path().join("x".repeat(120));
    assert!(bind_error(&long).contains("choose a shorter path"));
    let missing = folder.path().join("missing").join("s.sock");
    assert!(bind_error(&missing).contains("--socket: cannot open"));
    assert_eq!(folder.names(), Vec::<String>::new(), "no files are left");
}
