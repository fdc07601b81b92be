//! The connection to a server, and what it can do.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tidegate_engine::shared::RecordKey;

use crate::commands::{COMMIT, COMMIT_AND_PASS, Dialect, READ_IF_CHANGED};
use crate::error::ConnectFailure;
use crate::facts::{ServerFacts, info_field};
use crate::route::Route;
use crate::settings::Settings;

/// A connection, and what the server at its other end can do.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: MultiplexedConnection,
    /// A second one to the same process: commands that block it, and wait for what was done before.
    pub(crate) waiting: MultiplexedConnection,
    pub(crate) dialect: Dialect,
    pub(crate) server: ServerFacts,
}

impl Link {
    /// Connects to the server that has the records, and prepares it.
    pub(crate) async fn connect(
        route: &Route,
        settings: &Settings,
    ) -> Result<Self, ConnectFailure> {
        let (name, timeout) = (settings.control_name(), CONNECT_TIMEOUT.max(settings.deadline));
        let mut connection = route.connect(&name, timeout).await?;
        let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
        let mut server = ServerFacts::read(&info).ok_or_else(|| {
            ConnectFailure("the server does not say its version (INFO)".to_owned())
        })?;
        if server.program == "redis" && server.version < [7, 0, 0] {
            let [major, minor, patch] = server.version;
            let text = format!("Redis {major}.{minor}.{patch} is too old: 7.0 is needed");
            return Err(ConnectFailure(text));
        }
        match (info_field(&info, "cluster_enabled") == Some("1"), route.is_cluster()) {
            (true, false) => {
                let text = "the server is a node of a cluster: the address needs redis+cluster://";
                return Err(ConnectFailure(text.to_owned()));
            }
            (false, true) => {
                let text = "the server is no node of a cluster: the address needs redis://";
                return Err(ConnectFailure(text.to_owned()));
            }
            _ => {}
        }
        if info_field(&info, "role").is_some_and(|role| role != "master") {
            return Err(ConnectFailure("the server is a replica".to_owned()));
        }
        refuse_earlier_form(route, &mut connection, settings).await?;
        let names: [String; 3] = load_scripts().query_async(&mut connection).await?;
        let [commit_sha, pass_sha, read_sha] = names;
        let has_ifeq = match server.program {
            "valkey" => server.version >= [8, 1, 0],
            _ => server.version >= [8, 4, 0],
        };
        let prefix = format!("{}:", settings.namespace);
        let dialect = Dialect { prefix, has_ifeq, commit_sha, pass_sha, read_sha };
        let mut waiting = route.connect(&name, timeout).await?;
        prepare_waiting(&mut waiting, &mut server, &info).await?;
        // A batch has its own deadline.
        connection.set_response_timeout(Duration::from_secs(3_600));
        waiting.set_response_timeout(Duration::from_secs(3_600));
        Ok(Self { connection, waiting, dialect, server })
    }
}

/// Refuses a namespace with records of an earlier version: if they were passed over, all limits would
/// start fresh. In a cluster that version had them under names without a hash tag.
async fn refuse_earlier_form(
    route: &Route,
    connection: &mut MultiplexedConnection,
    settings: &Settings,
) -> Result<(), ConnectFailure> {
    let Settings { namespace, .. } = settings;
    let found = redis::cmd("GET").arg(settings.control_name()).query_async(connection).await;
    let found: Value = match found {
        // Transactions fail, and name it.
        Err(error) if error.code() == Some("WRONGTYPE") => return Ok(()),
        found => found?,
    };
    let untagged = namespace.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let earlier = match (&found, untagged) {
        (Value::BulkString(value), _) if value.starts_with(EARLIER_FORM) => Some(&**namespace),
        (Value::Nil, Some(untagged)) if route.is_cluster() => {
            let name = format!("{untagged}:{}", RecordKey::control());
            let is_there = route.has_value(&name, CONNECT_TIMEOUT.max(settings.deadline)).await?;
            is_there.then_some(untagged)
        }
        _ => None,
    };
    match earlier {
        None => Ok(()),
        Some(namespace) => Err(ConnectFailure(format!(
            "the names that begin with {namespace}: are records of an earlier version of tidegate, which \
             this one cannot read: delete them, and all limits start fresh; or set another namespace"
        ))),
    }
}

/// Loads the scripts; the responses are their names.
pub(crate) fn load_scripts() -> Pipeline {
    let mut pipeline = redis::pipe();
    for script in [COMMIT, COMMIT_AND_PASS, READ_IF_CHANGED] {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script);
    }
    pipeline
}

/// Checks that a second connection is to the same process, and finds out what can be waited for.
async fn prepare_waiting(
    connection: &mut MultiplexedConnection,
    server: &mut ServerFacts,
    info: &str,
) -> Result<(), ConnectFailure> {
    let other: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    if info_field(&other, "run_id").unwrap_or_default() != server.run_id {
        let text = "two connections lead to different servers: the address has to name one of them";
        return Err(ConnectFailure(text.to_owned()));
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("WAIT").arg(0).arg(1);
    pipeline.cmd("WAITAOF").arg(0).arg(0).arg(1);
    pipeline.add_command(read_appendfsync());
    let responses = connection.send_packed_commands(&pipeline, 0, 3).await?;
    let is_done =
        |at: usize| responses.get(at).is_some_and(|value| !matches!(value, Value::ServerError(_)));
    (server.can_wait, server.has_waitaof) = (is_done(0), is_done(1));
    server.can_read_settings = is_done(2);
    server.update(info, responses.get(2).and_then(appendfsync));
    Ok(())
}

/// Reads a setting that not every user may read.
pub(crate) fn read_appendfsync() -> Cmd {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("appendfsync");
    command
}

/// The setting `appendfsync` in a response; `None` if it may not be read.
pub(crate) fn appendfsync(response: &Value) -> Option<&str> {
    let value = match response {
        Value::Array(pair) => pair.get(1)?,
        Value::Map(pairs) => pairs.first().map(|(_, value)| value)?,
        _ => return None,
    };
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What the values of an earlier version begin with.
const EARLIER_FORM: &[u8] = b"tgr1";

/// How long connecting, and each command on the way to it, may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
