//! Lists the keys of states: of all servers, one after the other.

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use super::Driver;

/// Where a listing goes on: on a server, from a place of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    /// The number of the server among those that have keys.
    server: u64,
    /// Which server has which slots may change meanwhile: then the listing cannot go on.
    generation: u64,
    at: u64,
}

impl Cursor {
    fn read(cursor: u64) -> Self {
        let generation = cursor >> AT_BITS & GENERATIONS;
        Self { server: cursor >> SERVER_SHIFT, generation, at: cursor & AT_MASK }
    }

    /// `None` if a part is too large.
    fn encode(self) -> Option<u64> {
        let fits = self.server < 1 << (64 - SERVER_SHIFT) && self.at <= AT_MASK;
        let generation = self.generation & GENERATIONS;
        fits.then_some(self.server << SERVER_SHIFT | generation << AT_BITS | self.at)
    }
}

impl Driver {
    /// Lists keys, beside the batches.
    pub(super) fn list(&self) {
        for (from, listed) in self.inbox.take_listings() {
            // Without a connection it is dropped, which is a failure.
            let Some((connection, prefix, cursor)) = self.listed(from) else { continue };
            let cluster = self.lanes.cluster.as_ref().map(|_| self.used_lanes().len() as u64);
            tokio::spawn(async move {
                let keys = scan(connection, &prefix, cursor.map_or(from, |it| it.at)).await;
                let keys = keys.map_err(|error| {
                    tracing::warn!(%error, "cannot list the records of the store");
                    Outage::Unavailable
                });
                let keys = keys.and_then(|(keys, next)| match (cursor, cluster) {
                    (Some(cursor), Some(servers)) => {
                        let next = after(cursor, next, servers).ok_or(Outage::Unavailable)?;
                        Ok((keys, next))
                    }
                    _ => Ok((keys, next)),
                });
                let _ = listed.send(keys);
            });
        }
    }

    /// The connection for a listing.
    fn listed(&self, from: u64) -> Option<(MultiplexedConnection, String, Option<Cursor>)> {
        let (number, cursor) = match &self.lanes.cluster {
            None => (0, None),
            Some(cluster) => {
                let generation = cluster.generation & GENERATIONS;
                let cursor = match from {
                    0 => Cursor { server: 0, generation, at: 0 },
                    from => Cursor::read(from),
                };
                let server = usize::try_from(cursor.server).ok();
                let number = server.and_then(|server| self.used_lanes().get(server).copied());
                (number.filter(|_| cursor.generation == generation)?, Some(cursor))
            }
        };
        let link = self.lanes.all.get(number)?.link.as_ref()?;
        Some((link.connection.clone(), link.dialect.prefix.clone(), cursor))
    }

    fn used_lanes(&self) -> Vec<usize> {
        let lanes = self.lanes.all.iter().enumerate();
        lanes.filter(|(_, lane)| lane.is_used).map(|(number, _)| number).collect()
    }
}

/// Where a listing over several servers goes on; 0 at the end of the last one.
fn after(cursor: Cursor, next: u64, servers: u64) -> Option<u64> {
    match next {
        0 if cursor.server + 1 >= servers => Some(0),
        0 => Cursor { server: cursor.server + 1, at: 0, ..cursor }.encode(),
        at => Cursor { at, ..cursor }.encode(),
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

/// How many bits the place of a server has.
const AT_BITS: u32 = 48;
const AT_MASK: u64 = (1 << AT_BITS) - 1;
const GENERATIONS: u64 = 63;
const SERVER_SHIFT: u32 = 54;

#[cfg(test)]
mod tests {
    use super::{Cursor, after};

    #[test]
    fn a_listing_visits_every_server_to_its_end() {
        let mut cursor = Cursor { server: 0, generation: 5, at: 0 };
        let mut visited = Vec::new();
        for next in [7, 0, 0, 1 << 47, 0] {
            visited.push((cursor.server, cursor.at));
            let next = after(cursor, next, 3).unwrap();
            if next == 0 {
                cursor.server = 9;
                break;
            }
            cursor = Cursor::read(next);
            assert_eq!(cursor.generation, 5);
        }
        assert_eq!(visited, [(0, 0), (0, 7), (1, 0), (2, 0), (2, 1 << 47)]);
        assert_eq!(cursor.server, 9, "it has ended");
        assert_eq!(after(cursor, 1 << 48, 3), None, "a place that does not fit is no other one");
    }
}
