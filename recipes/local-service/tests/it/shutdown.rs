//! Shutdown: requests that have arrived get responses, whatever the service was doing.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::Signal;
use tidegate_proto::ipc::{FRAME_BYTES_MAX, encode_text};

use crate::harness::{Caller, PING, Running};

const MANY: [&str; 5] =
    ["--no-limit", "--max-connections", "2000", "--max-connections-per-user", "1900"];

/// The number of responses until the service closes the connection.
fn responses(mut caller: Caller) -> usize {
    std::iter::from_fn(|| caller.next()).inspect(|it| assert!(it.contains("\"ok\":true"))).count()
}

/// The service is suspended while requests arrive, so that all of them precede the signal: on
/// connections that it has served, on some that it has accepted, and on some that wait in the
/// listener's queue.
#[test]
fn requests_that_have_arrived_get_responses() {
    for (served, queued, pings) in [(1, 1, 1), (40, 100, 1), (300, 60, 3), (7, 100, 60)] {
        let running = Running::start(&MANY);
        let mut callers: Vec<Caller> = (0..served).map(|_| running.call()).collect();
        assert!(callers.iter_mut().all(Caller::ping));
        running.signal(Signal::SIGSTOP);
        callers.extend((0..queued).map(|_| running.call()));
        let frames = encode_text(PING).unwrap().repeat(pings);
        callers.iter_mut().for_each(|caller| caller.send_bytes(&frames));
        running.signal(Signal::SIGTERM);
        running.signal(Signal::SIGCONT);
        let counts: Vec<usize> = callers.into_iter().map(responses).collect();
        let lost = counts.iter().filter(|count| **count != pings).count();
        assert_eq!(lost, 0, "{lost} of {} lost responses: {counts:?}", counts.len());
        let (status, log) = running.stop(Signal::SIGCONT);
        assert!(status.success(), "{status} {log:#?}");
        assert!(!log.iter().any(|line| line.contains("did not end in time")), "{log:#?}");
    }
}

/// The signal comes at any time, while other threads load the machine.
#[test]
fn each_complete_request_gets_a_response_whenever_the_signal_comes() {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let is_running = || !is_over.load(std::sync::atomic::Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while is_running() {
                    std::hint::spin_loop()
                }
            });
        }
        for round in 0..ROUNDS {
            let running = Running::start(&MANY);
            let mut callers: Vec<Caller> = (0..30 + round * 7).map(|_| running.call()).collect();
            for (number, caller) in callers.iter_mut().enumerate() {
                caller.send_bytes(&encode_text(PING).unwrap().repeat(1 + number % 3));
            }
            running.signal(Signal::SIGTERM);
            for (number, caller) in callers.into_iter().enumerate() {
                assert_eq!(responses(caller), 1 + number % 3, "round {round}, client {number}");
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn largest_frames_that_have_arrived_get_responses() {
    let running = Running::start(&MANY);
    let padding = "x".repeat(FRAME_BYTES_MAX - PING.len() - r#","padding":"""#.len());
    let largest = encode_text(&PING.replace('}', &format!(r#","padding":"{padding}"}}"#))).unwrap();
    running.signal(Signal::SIGSTOP);
    let mut caller = running.call();
    caller.send_bytes(&largest.repeat(2));
    running.signal(Signal::SIGTERM);
    running.signal(Signal::SIGCONT);
    assert_eq!(responses(caller), 2);
}

/// A request that is not complete has not arrived.
#[test]
fn incomplete_request_does_not_delay_the_shutdown() {
    let running = Running::start(&MANY);
    let mut halfway = running.call();
    assert!(halfway.ping());
    let frame = encode_text(PING).unwrap();
    halfway.send_bytes(&[&frame[..], &frame[..9]].concat());
    let (status, log) = running.stop(Signal::SIGTERM);
    assert!(status.success(), "{status} {log:#?}");
    assert!(!log.iter().any(|line| line.contains("did not end in time")), "{log:#?}");
    assert_eq!(responses(halfway), 1);
}

/// A client that sends without end is cut off at once: what it sends after the signal fails.
#[test]
fn busy_client_does_not_delay_the_shutdown() {
    let running = Running::start(&MANY);
    let mut caller = running.call();
    assert!(caller.ping());
    let mut sender: UnixStream = caller.stream.try_clone().unwrap();
    let reader = thread::spawn(move || responses(caller));
    let writer = thread::spawn(move || {
        let frame = encode_text(PING).unwrap();
        let mut sent = 0;
        while sender.write_all(&frame).is_ok() {
            sent += 1;
        }
        sent
    });
    let (status, log) = running.stop(Signal::SIGTERM);
    assert!(status.success(), "{status} {log:#?}");
    assert!(!log.iter().any(|line| line.contains("did not end in time")), "{log:#?}");
    assert_eq!(reader.join().unwrap(), writer.join().unwrap(), "all that was sent got responses");
}

/// Each round starts a process.
const ROUNDS: usize = 8;
