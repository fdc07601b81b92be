//! Lists the keys of states.

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use super::Driver;

impl Driver {
    /// Lists keys, beside the batches.
    pub(super) fn list(&self) {
        for (from, listed) in self.inbox.take_listings() {
            // Without a connection it is dropped, which is a failure.
            let Some(link) = &self.link else { continue };
            let (connection, prefix) = (link.connection.clone(), link.dialect.prefix.clone());
            tokio::spawn(async move {
                let keys = scan(connection, &prefix, from).await;
                let _ = listed.send(keys.map_err(|error| {
                    tracing::warn!(%error, "cannot list the records of the store");
                    Outage::Unavailable
                }));
            });
        }
    }
}

/// Some keys of states, and where the next ones are.
async fn scan(
    mut connection: MultiplexedConnection,
    prefix: &str,
    from: u64,
) -> Result<(Vec<RecordKey>, u64), RedisError> {
    let mut command = redis::cmd("SCAN");
    // Braces and the like are no pattern; the namespace has no other special characters.
    command.arg(from).arg("MATCH").arg(format!("{prefix}state:*")).arg("COUNT").arg(512);
    let (next, names): (u64, Vec<String>) = command.query_async(&mut connection).await?;
    let key = |name: &String| RecordKey::state_from_text(name.strip_prefix(prefix)?);
    Ok((names.iter().filter_map(key).collect(), next))
}
