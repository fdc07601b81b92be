//! Pipelines and transactions.

use redis::Value;

use super::{Daemon, POLICY, array, error};

/// Commands of all kinds, and their replies without the parts that depend on the time.
fn traffic() -> (Vec<u8>, Vec<String>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    let mut add = |words: &[&str], reply: &str| {
        bytes.extend(array(words));
        expected.push(reply.to_owned());
    };
    for round in 0..40 {
        let left = (39 - round).to_string();
        add(&["CL.THROTTLE", "k", "39", "1", "86400"], &format!("0 40 {left}"));
        add(&["CL.THROTTLE", "k", "-1", "1", "86400"], "ERR");
        add(&["PING"], "PONG");
        let is_allowed = round < 3;
        add(&["TG.CHECK", "default", "ATTR", "user", "ada"], if is_allowed { "1" } else { "0" });
        add(&["TG.CHECK", "default", "ATTR", "user"], "ERR");
        add(&["TG.CHECK", "nowhere"], "1");
        add(&["NONSENSE"], "ERR");
    }
    for _ in 0..5 {
        add(&["CL.THROTTLE", "k", "39", "1", "86400"], "1 40 0");
    }
    (bytes, expected)
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(values) if matches!(values[0], Value::Int(_)) => {
            let number = |value: &Value| match value {
                Value::Int(number) => number.to_string(),
                other => panic!("{other:?}"),
            };
            values[..3].iter().map(number).collect::<Vec<_>>().join(" ")
        }
        Value::Array(fields) => match (&fields[0], &fields[1]) {
            (Value::BulkString(name), Value::Int(allowed)) if name == b"allowed" => {
                allowed.to_string()
            }
            other => panic!("{other:?}"),
        },
        Value::SimpleString(text) => text.clone(),
        value => error(value)[..3].to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_are_in_order_however_the_input_is_split() {
    let (bytes, expected) = traffic();
    for piece in [1, 7, 100, 4_096, bytes.len()] {
        let daemon = Daemon::start().await;
        let mut client = daemon.client();
        for piece in bytes.chunks(piece) {
            client.send(piece);
        }
        for (number, expected) in expected.iter().enumerate() {
            assert_eq!(&short(&client.reply()), expected, "{number} in pieces of {piece}");
        }
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_store_replies_in_order_and_keeps_its_charges() {
    let folder = std::env::temp_dir().join(format!("tidegate-resp-{}", std::process::id()));
    let settings = || {
        let file = tidegate::policy::Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
        tidegate_server::Settings::on_free_ports(file).store_folder(Some(&folder))
    };
    let daemon = Daemon::of(settings()).await;
    let mut client = daemon.client();
    let mut bytes = Vec::new();
    for number in 0..150 {
        bytes.extend(array(&["TG.CHECK", "tokens", "ATTR", "team", "search"]));
        bytes.extend(array(&["ECHO", &number.to_string()]));
    }
    client.send(&bytes);
    let mut other = daemon.client();
    assert_eq!(other.ask(&["PING"]), Value::SimpleString("PONG".into()));
    for number in 0..150 {
        assert_eq!(short(&client.reply()), if number < 100 { "1" } else { "0" }, "{number}");
        assert_eq!(client.reply(), Value::BulkString(number.to_string().into_bytes()));
    }
    daemon.stop().await;
    let daemon = Daemon::of(settings()).await;
    let left = daemon.client().ask(&["TG.CHECK", "tokens", "ATTR", "team", "search"]);
    assert_eq!(short(&left), "0");
    daemon.stop().await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_run_at_exec() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let throttle = ["CL.THROTTLE", "k", "1", "1", "3600"];
    client.send(&array(&["MULTI"]));
    (0..3).for_each(|_| client.send(&array(&throttle)));
    client.send(&[array(&["TG.CHECK", "default", "ATTR"]), array(&["PING"])].concat());
    client.send(&array(&["EXEC"]));
    assert_eq!(client.reply(), Value::Okay);
    let queued: Vec<_> = (0..5).map(|_| short(&client.reply())).collect();
    assert!(queued.iter().all(|it| it == "QUEUED"), "{queued:?}");
    let Value::Array(replies) = client.reply() else { panic!("no array") };
    assert_eq!(replies.len(), 5);
    let is_limited = |reply: &Value| matches!(reply, Value::Array(it) if it[0] == Value::Int(1));
    assert_eq!(
        replies.iter().map(is_limited).collect::<Vec<_>>(),
        [false, false, true, false, false]
    );
    assert!(matches!(&replies[3], Value::ServerError(_)), "{replies:?}");
    assert_eq!(replies[4], Value::SimpleString("PONG".into()));
    // Discarded or invalid transactions are not charged.
    for (commands, last) in [
        (vec![vec!["MULTI"], vec!["CL.THROTTLE", "d", "9", "1", "60"], vec!["DISCARD"]], "ok"),
        (
            vec![
                vec!["MULTI"],
                vec!["CL.THROTTLE", "d", "9", "1", "60"],
                vec!["GET", "x"],
                vec!["EXEC"],
            ],
            "execabort",
        ),
        (vec![vec!["MULTI"], vec!["CL.THROTTLE", "d"], vec!["EXEC"]], "execabort"),
        (vec![vec!["MULTI"], vec!["HELLO", "3"], vec!["EXEC"]], "execabort"),
        (vec![vec!["MULTI"], vec!["MULTI"], vec!["EXEC"]], "array([])"),
        (vec![vec!["EXEC"]], "exec without multi"),
        (vec![vec!["DISCARD"]], "discard without multi"),
    ] {
        let mut reply = String::new();
        commands.iter().for_each(|words| reply = format!("{:?}", client.ask(words)));
        assert!(reply.to_lowercase().contains(last), "{commands:?}: {reply}");
    }
    assert_eq!(
        client.ask(&["CL.THROTTLE", "d", "9", "1", "60"]),
        Value::Array([0, 10, 9, -1, 60].map(Value::Int).to_vec())
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_closes_connections_after_their_replies() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    // After this reply the connection is being served.
    assert_eq!(client.ask(&["PING"]), Value::SimpleString("PONG".into()));
    daemon.stop().await;
    assert_eq!(client.rest(), b"");
}
