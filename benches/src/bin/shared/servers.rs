//! Servers on processor 0, and how far away they are.

use std::process::Command;
use std::time::Instant;

use tidegate_redis_servers::{Program, Server};

use crate::load::percentile;

/// Starts a server on processor 0.
pub fn start(program: Program) -> Server {
    let server = Server::start(program);
    pin_server(&server);
    server
}

/// Moves a server that has just started to processor 0.
pub fn pin_server(server: &Server) {
    let process = server.info("process_id").expect("a server knows its process");
    pin(&process, 0);
}

/// Moves this process, and what it starts from now on, to processor 1.
pub fn pin_self() {
    pin(&std::process::id().to_string(), 1);
}

/// Where there is one processor, all share it.
fn pin(process: &str, processor: usize) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if processor > 0 && count < 2 {
        return;
    }
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", &processor.to_string(), process]);
    let output = command.output().expect("taskset is installed");
    assert!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
}

/// The median of round trips without any work, one after the other, in microseconds.
pub fn round_trip_us(server: &Server) -> f64 {
    let mut connection = server.connect().expect("the server accepts connections");
    let mut ping = || {
        let began = Instant::now();
        let reply = connection.command(&["PING"]).expect("the server answers");
        assert!(reply.error().is_none(), "{reply:?}");
        u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX)
    };
    let mut took: Vec<u32> = (0..5_000).map(|_| ping()).collect();
    took.sort_unstable();
    percentile(&took, 0.5)
}

/// The processor time that a server has used, in microseconds.
pub fn server_cpu_us(server: &Server) -> f64 {
    let seconds = |field: &str| -> f64 {
        let text = server.info(field).expect("a server knows its processor time");
        text.parse().expect("a number")
    };
    (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
}

/// The processor time that the threads of this process have used, in microseconds.
pub fn own_cpu_us() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let of_thread = |path: std::path::PathBuf| -> Option<f64> {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.filter_map(|thread| of_thread(thread.ok()?.path())).sum::<f64>() / 1e3
}
