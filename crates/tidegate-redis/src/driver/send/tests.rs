use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// A connection, the other end of it, and its task.
async fn connected() -> (MultiplexedConnection, DuplexStream, tokio::task::JoinHandle<()>) {
    let (near, mut far) = tokio::io::duplex(4_096);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (connection, task) =
        MultiplexedConnection::new_with_config(&info, near, config).await.unwrap();
    let task = tokio::spawn(task);
    let responses = tokio::spawn(exchange(connection.clone(), ping(), 0));
    let mut request = [0; 64];
    assert!(far.read(&mut request).await.unwrap() > 0);
    far.write_all(b"+PONG\r\n").await.unwrap();
    assert_eq!(responses.await.unwrap().unwrap().len(), 1);
    (connection, far, task)
}

fn ping() -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING");
    pipeline
}

#[tokio::test]
async fn commands_for_a_connection_that_has_ended_were_not_sent() {
    let (connection, far, _task) = connected().await;
    drop(far);
    // As the driver does before it sends.
    notice_events().await;
    assert!(hand_over(exchange(connection, ping(), 0)).is_err());
}

#[tokio::test]
async fn commands_that_an_open_connection_has_may_have_been_sent() {
    let (connection, far, _task) = connected().await;
    let responses = hand_over(exchange(connection, ping(), 0)).unwrap();
    drop(far);
    assert!(responses.await.is_err(), "it was handed over, and the response is lost");
}

#[tokio::test]
async fn responses_to_the_first_commands_are_skipped() {
    let (connection, mut far, _task) = connected().await;
    let mut pipeline = redis::pipe();
    pipeline.cmd("SCRIPT").cmd("ECHO");
    let responses = hand_over(exchange(connection, pipeline, 1)).unwrap();
    assert!(far.read(&mut [0; 64]).await.unwrap() > 0);
    far.write_all(b"-ERR refused\r\n:7\r\n").await.unwrap();
    assert_eq!(responses.await.unwrap(), [Value::Int(7)]);
}
