//! A Redis client library.

use std::collections::HashMap;

use redis::{Client, RedisResult, Value, cmd, pipe};

use super::Daemon;

fn client(daemon: &Daemon, protocol: &str) -> Client {
    let address = daemon.address;
    Client::open(format!("redis://{address}/?protocol={protocol}")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_works_with_both_versions_and_connection_kinds() {
    let daemon = Daemon::start().await;
    for protocol in ["resp2", "resp3"] {
        let client = client(&daemon, protocol);
        let mut connection = client.get_connection().unwrap();
        let throttle = |key: &str| {
            let mut throttle = cmd("CL.THROTTLE");
            throttle.arg(format!("{protocol} {key}")).arg(15).arg(30).arg(60);
            throttle
        };
        let decided: (i64, i64, i64, i64, i64) = throttle("k").query(&mut connection).unwrap();
        assert_eq!(decided, (0, 16, 15, -1, 2));
        let mut many = pipe();
        (0..100).for_each(|_| {
            many.add_command(throttle("k"));
        });
        let decided: Vec<Vec<i64>> = many.query(&mut connection).unwrap();
        assert_eq!(decided.iter().filter(|it| it[0] == 0).count(), 15);
        let wrong: RedisResult<Value> =
            cmd("CL.THROTTLE").arg("k").arg(1).arg(0).arg(1).query(&mut connection);
        assert!(wrong.unwrap_err().to_string().contains("count must be at least 1"));

        let mut shared = client.get_multiplexed_async_connection().await.unwrap();
        let mut check = cmd("TG.CHECK");
        check.arg("default").arg("ATTR").arg("user").arg(protocol);
        let fields: HashMap<String, Value> = check.query_async(&mut shared).await.unwrap();
        assert_eq!(fields["remaining"], Value::Int(2));
        let pong: String = cmd("PING").query_async(&mut shared).await.unwrap();
        assert_eq!(pong, "PONG");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_on_one_connection_get_exactly_the_burst() {
    let daemon = Daemon::start().await;
    let connection = client(&daemon, "resp3").get_multiplexed_async_connection().await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..50 {
                    let mut throttle = cmd("CL.THROTTLE");
                    throttle.arg("shared").arg(299).arg(1).arg(86_400);
                    let decided: Vec<i64> = throttle.query_async(&mut connection).await.unwrap();
                    allowed += i64::from(decided[0] == 0);
                }
                allowed
            })
        })
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 300);
    daemon.stop().await;
}
