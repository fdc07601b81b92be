//! Ten thousand clients connect and leave; the program's memory does not grow.

use crate::client::TestClient;
use crate::program::Program;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connect_and_leave_and_memory_stays_flat() {
    let program = Program::start(&[]).await;
    connect_and_leave(&program, 0..2_000).await;
    let before = program.resident_kib();
    connect_and_leave(&program, 2_000..10_000).await;
    let after = program.resident_kib();
    // A leak of 256 bytes per connection would be 2 MB.
    assert!(after < before + 1_500, "{before} KiB after 2 000, {after} KiB after 10 000");
}

/// Each sends more than its burst, and half of them leave without closing.
async fn connect_and_leave(program: &Program, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut client = TestClient::join(program.address, number).await;
        for _ in 0..11 {
            client.send_to("absent", b"x").await;
        }
        client.denied().await;
        if number % 2 == 0 { drop(client) } else { client.leave().await }
    }
}
