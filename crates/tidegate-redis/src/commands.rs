//! The commands of a batch, and what their responses mean.

use std::time::Duration;

use redis::{Cmd, Pipeline, ServerError, Value};
use tidegate::shared::RecordKey;

use crate::batch::{Batch, Change, Group, Pending};
use crate::frame::{self, Cell, Foreign};

/// Commits groups of keys, each group at once, if its values are those that were seen.
///
/// For each group: how many keys, a stamp; for each key: what its value has to begin with (nothing:
/// no value), its new value (nothing: unchanged), when it expires (nothing: never). Responds for each
/// group with 1 if it was committed, 2 if it was before, and else with the values that are there.
pub(crate) const COMMIT: &str = "\
local out, k, a = {}, 0, 1
while k < #KEYS do
  local n, head = tonumber(ARGV[a]), ARGV[a + 1]
  local same, done, now = true, false, {}
  for i = 1, n do
    local v = redis.pcall('GET', KEYS[k + i])
    if type(v) == 'table' then v = '?' end
    local at = a + 2 + (i - 1) * 3
    local h = v and string.sub(v, 1, 12) or ''
    if h ~= ARGV[at] then same = false end
    if ARGV[at + 1] ~= '' and h == head then done = true end
    now[i] = v
  end
  if done then
    out[#out + 1] = 2
  elseif same then
    for i = 1, n do
      local at = a + 2 + (i - 1) * 3
      if ARGV[at + 1] ~= '' then
        if ARGV[at + 2] == '' then
          redis.call('SET', KEYS[k + i], ARGV[at + 1])
        else
          redis.call('SET', KEYS[k + i], ARGV[at + 1], 'PXAT', ARGV[at + 2])
        end
      end
    end
    out[#out + 1] = 1
  else
    out[#out + 1] = now
  end
  k = k + n
  a = a + 2 + n * 3
end
return out
";

/// Reads a value, if it does not begin as the one that is known.
pub(crate) const READ_IF_CHANGED: &str = "\
local v = redis.call('GET', KEYS[1])
if v and string.sub(v, 1, 12) == ARGV[1] then return 1 end
return v
";

/// How values are committed.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// What all names begin with.
    pub(crate) prefix: String,
    /// Whether the server compares by itself: `SET … IFEQ`.
    pub(crate) has_ifeq: bool,
    /// The names of the scripts.
    pub(crate) commit_sha: String,
    pub(crate) read_sha: String,
    /// How much longer values are kept than they are needed.
    pub(crate) kept_longer: Duration,
}

/// What a commit led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It took effect.
    Yes,
    /// It did not: these are the values there, in the order of the keys, as far as they are known.
    No(Vec<(RecordKey, Result<Cell, Foreign>)>),
    /// The server has refused it, and nothing changed.
    Refused(String),
    /// The scripts are not there any more; nothing changed.
    NoScript,
}

/// Where a group's response is in those of the batch.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// The response of one `SET`.
    Set(usize),
    /// The first of the responses of as many `GET` as there are keys.
    Compare(usize),
    /// One element of the response of a script.
    Script(usize, usize),
}

/// A batch as commands.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) pipeline: Pipeline,
    count: usize,
    reads: Vec<usize>,
    replies: Vec<Reply>,
    /// Where the server's time is in the responses.
    pub(crate) time: Option<usize>,
    /// Where the record of the policy is.
    pub(crate) control: Option<usize>,
}

impl Dialect {
    pub(crate) fn name(&self, key: &RecordKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The commands of a batch. Values expire no earlier than so long after the time given, in
    /// milliseconds since 1970.
    pub(crate) fn encode(&self, batch: &Batch, stamp: u64, now_ms: u64) -> Encoded {
        let mut encoded = Encoded {
            pipeline: Pipeline::new(),
            count: 0,
            reads: Vec::new(),
            replies: Vec::new(),
            time: None,
            control: None,
        };
        // Not by `MGET`: it takes a value of another type for none.
        let get = |key: &RecordKey| {
            let mut command = redis::cmd("GET");
            command.arg(self.name(key));
            command
        };
        encoded.reads = batch.reads.iter().map(|key| encoded.add(get(key))).collect();
        let mut script: Vec<&Group> = Vec::new();
        for group in &batch.groups {
            let pending: Vec<&Pending> =
                group.keys.iter().filter_map(|key| batch.pending.get(key)).collect();
            if pending.iter().all(|it| it.change.is_none()) {
                let index = encoded.count();
                group.keys.iter().for_each(|key| {
                    encoded.add(get(key));
                });
                encoded.replies.push(Reply::Compare(index));
            } else if let Some(command) = self.set(group, &pending, (stamp, now_ms)) {
                let index = encoded.add(command);
                encoded.replies.push(Reply::Set(index));
            } else {
                encoded.replies.push(Reply::Script(usize::MAX, script.len()));
                script.push(group);
            }
        }
        self.add_scripts(&mut encoded, &script, (batch, stamp, now_ms));
        encoded
    }

    /// One key by one command, where the server can do that.
    fn set(&self, group: &Group, pending: &[&Pending], (stamp, now_ms): (u64, u64)) -> Option<Cmd> {
        let ([key], [Pending { expected, change: Some(change) }]) = (&*group.keys, pending) else {
            return None;
        };
        if expected.stamp.is_some() && !self.has_ifeq {
            return None;
        }
        let mut command = redis::cmd("SET");
        command.arg(self.name(key)).arg(frame::value(stamp, change.record.as_deref()));
        if expected.stamp.is_some() {
            command.arg("IFEQ").arg(expected.value());
        } else {
            command.arg("NX");
        }
        command.arg("GET");
        if let Some(at_ms) = self.expires_at_ms(change, now_ms) {
            command.arg("PXAT").arg(at_ms);
        }
        Some(command)
    }

    /// Adds the groups that need a script; several of them in one call.
    fn add_scripts(
        &self,
        encoded: &mut Encoded,
        groups: &[&Group],
        (batch, stamp, now_ms): (&Batch, u64, u64),
    ) {
        let mut first = 0;
        while first < groups.len() {
            let mut end = first;
            let mut keys = 0;
            while end < groups.len() && (end == first || keys + groups[end].keys.len() <= MOST_KEYS)
            {
                keys += groups[end].keys.len();
                end += 1;
            }
            let mut command = redis::cmd("EVALSHA");
            command.arg(&self.commit_sha).arg(keys);
            let names = groups[first..end].iter().flat_map(|group| &group.keys);
            for key in names {
                command.arg(self.name(key));
            }
            for group in &groups[first..end] {
                command.arg(group.keys.len()).arg(frame::head(stamp));
                for pending in group.keys.iter().filter_map(|key| batch.pending.get(key)) {
                    self.add_key(&mut command, pending, (stamp, now_ms));
                }
            }
            let index = encoded.add(command);
            for reply in &mut encoded.replies {
                if let Reply::Script(at @ usize::MAX, position) = reply
                    && (first..end).contains(position)
                {
                    (*at, *position) = (index, *position - first);
                }
            }
            first = end;
        }
    }

    /// Reads a value if it is not the one that is known.
    pub(crate) fn read_if_changed(&self, key: &RecordKey, known: &Cell) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.read_sha).arg(1).arg(self.name(key)).arg(known.head());
        command
    }
}

impl Dialect {
    fn add_key(&self, command: &mut Cmd, pending: &Pending, (stamp, now_ms): (u64, u64)) {
        command.arg(pending.expected.head());
        match &pending.change {
            None => command.arg("").arg(""),
            Some(change) => {
                command.arg(frame::value(stamp, change.record.as_deref()));
                match self.expires_at_ms(change, now_ms) {
                    Some(at_ms) => command.arg(at_ms),
                    None => command.arg(""),
                }
            }
        };
    }
}

impl Dialect {
    /// When a value expires, if it does. One that says that a record was removed is kept for a while,
    /// so that a late write does not take it for a new one.
    fn expires_at_ms(&self, change: &Change, now_ms: u64) -> Option<u64> {
        let keep_for = if change.record.is_none() { Some(Duration::ZERO) } else { change.keep_for };
        let keep_for = keep_for?.saturating_add(self.kept_longer);
        let keep_ms = u64::try_from(keep_for.as_millis()).unwrap_or(u64::MAX);
        // The server takes no later time than that of a signed number.
        Some(now_ms.saturating_add(keep_ms).min(LATEST_MS))
    }
}

impl Encoded {
    pub(crate) fn add(&mut self, command: Cmd) -> usize {
        self.pipeline.add_command(command);
        self.count += 1;
        self.count - 1
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The values of the records that were read, in the order of the batch.
    pub(crate) fn read<'v>(
        &self,
        responses: &'v [Value],
    ) -> impl Iterator<Item = Result<Cell, ReadFailure>> + 'v {
        let values: Vec<&'v Value> =
            self.reads.iter().filter_map(|at| responses.get(*at)).collect();
        values.into_iter().map(cell)
    }

    /// The first response that sends the client to another server, or to this one later.
    pub(crate) fn redirection(responses: &[Value]) -> Option<String> {
        let error = |value: &Value| match value {
            Value::ServerError(error) => Some(refusal(error)),
            _ => None,
        };
        responses.iter().filter_map(error).find(|error| is_redirection(error))
    }

    /// What became of a group.
    pub(crate) fn committed(
        &self,
        number: usize,
        (group, batch): (&Group, &Batch),
        responses: &[Value],
        stamp: u64,
    ) -> Committed {
        let none = || Committed::Refused("the response is missing".to_owned());
        let (at, position) = match self.replies.get(number) {
            Some(Reply::Set(at)) => (*at, None),
            Some(Reply::Script(at, position)) => (*at, Some(*position)),
            Some(Reply::Compare(at)) => {
                let values = responses.get(*at..*at + group.keys.len()).unwrap_or_default();
                return compared((group, batch), values.iter().map(cell).collect(), stamp);
            }
            None => return none(),
        };
        let response = match responses.get(at) {
            Some(Value::ServerError(error)) if error.code() == "NOSCRIPT" => {
                return Committed::NoScript;
            }
            Some(Value::ServerError(error)) if error.code() == "WRONGTYPE" => {
                return Committed::No(group.keys.iter().map(|key| (*key, Err(Foreign))).collect());
            }
            Some(Value::ServerError(error)) => return Committed::Refused(refusal(error)),
            Some(response) => response,
            None => return none(),
        };
        match (position, response) {
            (Some(position), Value::Array(all)) => match all.get(position) {
                Some(Value::Int(_)) => Committed::Yes,
                Some(Value::Array(values)) => {
                    let found = values.iter().map(cell);
                    Committed::No(found_cells(group, found.collect()))
                }
                _ => none(),
            },
            (None, value) => compared((group, batch), vec![cell(value)], stamp),
            _ => none(),
        }
    }
}

/// Whether the values that were there are those that were expected, or already the new ones.
fn compared(
    (group, batch): (&Group, &Batch),
    found: Vec<Result<Cell, ReadFailure>>,
    stamp: u64,
) -> Committed {
    if let Some(Err(ReadFailure::Refused(error))) =
        found.iter().find(|it| matches!(it, Err(ReadFailure::Refused(_))))
    {
        return Committed::Refused(error.clone());
    }
    let found = found_cells(group, found);
    let is_done = |(key, cell): &(RecordKey, Result<Cell, Foreign>)| {
        let expected = batch.pending.get(key).map(|pending| &pending.expected);
        cell.as_ref().is_ok_and(|cell| expected == Some(cell) || cell.stamp == Some(stamp))
    };
    if found.iter().all(is_done) { Committed::Yes } else { Committed::No(found) }
}

fn found_cells(
    group: &Group,
    found: Vec<Result<Cell, ReadFailure>>,
) -> Vec<(RecordKey, Result<Cell, Foreign>)> {
    let found = found.into_iter().map(|cell| cell.map_err(|_| Foreign));
    group.keys.iter().copied().zip(found).collect()
}

/// Why a value was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    Foreign,
    Refused(String),
}

/// A value in a response.
pub(crate) fn cell(value: &Value) -> Result<Cell, ReadFailure> {
    match value {
        Value::Nil | Value::Boolean(false) => Ok(Cell::ABSENT),
        Value::BulkString(bytes) => Cell::read(bytes).map_err(|Foreign| ReadFailure::Foreign),
        Value::ServerError(error) if error.code() != "WRONGTYPE" => {
            Err(ReadFailure::Refused(refusal(error)))
        }
        _ => Err(ReadFailure::Foreign),
    }
}

/// Why the server has refused a command, in its words: a code, and what else it says.
fn refusal(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// Whether another server does what was refused, or this one later. It has not been done.
pub(crate) fn is_redirection(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS"]
        .contains(&code)
}

/// How many keys one call of a script has, unless one group has more.
const MOST_KEYS: usize = 64;

/// The latest time that a value can expire, in milliseconds since 1970.
const LATEST_MS: u64 = 1 << 52;
