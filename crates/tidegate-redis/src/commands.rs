//! The commands of a batch, and what their responses mean.

use std::io::Write;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisWrite, ServerError, Value};
use smallvec::SmallVec;
use tidegate_engine::shared::RecordKey;

use crate::batch::{Batch, Group, Pending, Times};
use crate::frame::{Cell, Foreign};
use crate::intent::Found;
use crate::key_map::KeySet;

/// Commits groups of keys, each group at once, if its values are those that were seen.
///
/// For each group: how many keys, a stamp; for each key: what its value has to begin with (nothing:
/// no value), its new value (nothing: unchanged), when it expires (nothing: never). Responds for each
/// group with 1 if it was committed, 2 if it was before, and else with the values that are there. No two
/// groups have a key in common, so one `MGET` reads all; it takes a value of another type for none, which
/// `GET` does not.
pub(crate) const COMMIT: &str = "\
local out, k, a = {}, 0, 1
local all = redis.call('MGET', unpack(KEYS))
while k < #KEYS do
  local n, head = tonumber(ARGV[a]), ARGV[a + 1]
  local same, done, now = true, false, {}
  for i = 1, n do
    local v = all[k + i]
    if not v then
      v = redis.pcall('GET', KEYS[k + i])
      if type(v) == 'table' then v = '?' end
    end
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

/// Commits one group as above, and passes the turns at some of its keys on, each with the value of its
/// key: the last names are those of the turns, the last arguments the numbers of their keys. A turn that
/// cannot be passed on is no failure of the commit.
pub(crate) const COMMIT_AND_PASS: &str = "\
local n, head = tonumber(ARGV[1]), ARGV[2]
local same, done, now = true, false, {}
for i = 1, n do
  local v = redis.pcall('GET', KEYS[i])
  if type(v) == 'table' then v = '?' end
  local at = 3 + (i - 1) * 3
  local h = v and string.sub(v, 1, 12) or ''
  if h ~= ARGV[at] then same = false end
  if ARGV[at + 1] ~= '' and h == head then done = true end
  now[i] = v
end
if done then return {2} end
if not same then return {now} end
for i = 1, n do
  local at = 3 + (i - 1) * 3
  if ARGV[at + 1] ~= '' then
    if ARGV[at + 2] == '' then
      redis.call('SET', KEYS[i], ARGV[at + 1])
    else
      redis.call('SET', KEYS[i], ARGV[at + 1], 'PXAT', ARGV[at + 2])
    end
    now[i] = ARGV[at + 1]
  end
end
for t = n + 1, #KEYS do
  local v = now[tonumber(ARGV[2 + n * 3 + t - n])]
  if v then
    redis.pcall('DEL', KEYS[t])
    redis.pcall('RPUSH', KEYS[t], v)
    redis.pcall('PEXPIRE', KEYS[t], 1000)
  end
end
return {1}
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
    pub(crate) pass_sha: String,
    pub(crate) read_sha: String,
    /// How much longer values are kept than they are needed.
    pub(crate) kept_longer: Duration,
    /// Whether one call of a script may have keys of several groups; in a cluster they are not in one
    /// slot.
    pub(crate) shares_calls: bool,
}

/// What a commit led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It took effect.
    Yes,
    /// It did not: these are the values there, in the order of the keys, as far as they are known.
    No(Vec<(RecordKey, Result<Found, Foreign>)>),
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
    /// Adds the name of a key.
    fn add_name(&self, command: &mut Cmd, key: &RecordKey) {
        let mut argument = command.writer_for_next_arg();
        // It is memory, so it does not fail.
        let _ = argument.write_all(self.prefix.as_bytes());
        let _ = argument.write_all(key.text().as_bytes());
    }

    /// The name of the turn at a key. In a cluster it is on the node of the key.
    pub(crate) fn turn_name(&self, key: &RecordKey) -> String {
        let prefix = &self.prefix;
        if prefix.contains('{') {
            format!("{prefix}turn:{key}")
        } else {
            format!("{prefix}turn:{{{prefix}{key}}}")
        }
    }

    /// The commands of a batch, which pass the turns at some keys on. Values expire no earlier than so long after the time given, in
    /// milliseconds since 1970.
    pub(crate) fn encode(&self, (batch, turns): (&Batch, &KeySet), now_ms: u64) -> Encoded {
        let mut encoded = Encoded {
            pipeline: Pipeline::with_capacity(batch.reads.len() + batch.groups.len() + 2),
            count: 0,
            reads: Vec::with_capacity(batch.reads.len()),
            replies: Vec::with_capacity(batch.groups.len()),
            time: None,
            control: None,
        };
        // Not by `MGET`: it takes a value of another type for none.
        let get = |key: &RecordKey| {
            let mut command = redis::cmd("GET");
            self.add_name(&mut command, key);
            command
        };
        encoded.reads = batch.reads.iter().map(|(key, _)| encoded.add(get(key))).collect();
        let mut script: Vec<&Group> = Vec::new();
        for group in &batch.groups {
            let pending: SmallVec<[&Pending; 4]> =
                group.keys.iter().filter_map(|key| batch.pending.get(key)).collect();
            if !turns.is_empty() && group.keys.iter().any(|key| turns.contains(key)) {
                let index = encoded.add(self.pass((group, turns), (batch, self.times(now_ms))));
                encoded.replies.push(Reply::Script(index, 0));
            } else if !pending.iter().any(|it| it.writes()) {
                let index = encoded.count();
                group.keys.iter().for_each(|key| {
                    encoded.add(get(key));
                });
                encoded.replies.push(Reply::Compare(index));
            } else if let Some(command) = self.set(group, &pending, self.times(now_ms)) {
                let index = encoded.add(command);
                encoded.replies.push(Reply::Set(index));
            } else {
                encoded.replies.push(Reply::Script(usize::MAX, script.len()));
                script.push(group);
            }
        }
        self.add_scripts(&mut encoded, &script, (batch, self.times(now_ms)));
        encoded
    }

    fn times(&self, now_ms: u64) -> Times {
        Times { now_ms, kept_longer: self.kept_longer }
    }

    /// One key by one command, where the server can do that.
    fn set(&self, group: &Group, pending: &[&Pending], times: Times) -> Option<Cmd> {
        let ([key], [pending]) = (&*group.keys, pending) else { return None };
        let expected = &pending.expected;
        if expected.stamp.is_some() && !self.has_ifeq {
            return None;
        }
        let mut command = Cmd::with_capacity(8, SET_BYTES);
        command.arg("SET");
        self.add_name(&mut command, key);
        let expires_ms = pending.write(&mut command, group.stamp, times);
        if expected.stamp.is_some() {
            command.arg("IFEQ");
            expected.write(&mut command);
        } else {
            command.arg("NX");
        }
        command.arg("GET");
        if let Some(at_ms) = expires_ms {
            command.arg("PXAT").arg(at_ms);
        }
        Some(command)
    }

    /// A group with turns that are passed on.
    fn pass(&self, (group, turns): (&Group, &KeySet), from: (&Batch, Times)) -> Cmd {
        let passed = group.keys.iter().filter(|key| turns.contains(*key));
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.pass_sha).arg(group.keys.len() + passed.clone().count());
        group.keys.iter().for_each(|key| self.add_name(&mut command, key));
        for key in passed {
            command.arg(self.turn_name(key));
        }
        self.add_group(&mut command, group, from);
        for (index, _) in group.keys.iter().enumerate().filter(|(_, key)| turns.contains(*key)) {
            command.arg(index + 1);
        }
        command
    }

    /// Adds the groups that need a script; several of them in one call.
    fn add_scripts(
        &self,
        encoded: &mut Encoded,
        groups: &[&Group],
        (batch, times): (&Batch, Times),
    ) {
        let mut first = 0;
        while first < groups.len() {
            let mut end = first;
            let mut keys = 0;
            let most_keys = if self.shares_calls { MOST_KEYS } else { 0 };
            while end < groups.len() && (end == first || keys + groups[end].keys.len() <= most_keys)
            {
                keys += groups[end].keys.len();
                end += 1;
            }
            let mut command = redis::cmd("EVALSHA");
            command.arg(&self.commit_sha).arg(keys);
            let names = groups[first..end].iter().flat_map(|group| &group.keys);
            for key in names {
                self.add_name(&mut command, key);
            }
            for group in &groups[first..end] {
                self.add_group(&mut command, group, (batch, times));
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
        command.arg(&self.read_sha).arg(1);
        self.add_name(&mut command, key);
        command.arg(&known.head()[..]);
        command
    }
}

impl Dialect {
    /// The arguments of the script for a group.
    fn add_group(&self, command: &mut Cmd, group: &Group, (batch, times): (&Batch, Times)) {
        let pending = || group.keys.iter().filter_map(|key| batch.pending.get(key));
        let head = pending().find_map(|it| it.new_head(group.stamp));
        command.arg(group.keys.len()).arg(&head.unwrap_or_default()[..]);
        for pending in pending() {
            command.arg(&pending.expected.head()[..]);
            match pending.write(command, group.stamp, times) {
                Some(at_ms) => command.arg(at_ms),
                None => command.arg(""),
            };
        }
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
    ) -> impl Iterator<Item = Result<Found, ReadFailure>> + 'v {
        let values: Vec<&'v Value> =
            self.reads.iter().filter_map(|at| responses.get(*at)).collect();
        values.into_iter().map(found)
    }

    /// What became of a group.
    pub(crate) fn committed(
        &self,
        number: usize,
        (group, batch): (&Group, &Batch),
        responses: &[Value],
    ) -> Committed {
        let none = || Committed::Refused("the response is missing".to_owned());
        let (at, position) = match self.replies.get(number) {
            Some(Reply::Set(at)) => (*at, None),
            Some(Reply::Script(at, position)) => (*at, Some(*position)),
            Some(Reply::Compare(at)) => {
                let values = responses.get(*at..*at + group.keys.len()).unwrap_or_default();
                return compared((group, batch), values.iter().map(found).collect());
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
                    let found = found_values(group, values.iter().map(found).collect());
                    // The stamp of a part may be there in a later form.
                    let is_done = group.part_of.is_some()
                        && found.iter().all(|(_, it)| has_stamp(it, group.stamp));
                    if is_done { Committed::Yes } else { Committed::No(found) }
                }
                _ => none(),
            },
            (None, Value::BulkString(bytes)) if is_expected((group, batch), bytes) => {
                Committed::Yes
            }
            (None, value) => compared((group, batch), vec![found(value)]),
            _ => none(),
        }
    }
}

/// Whether the value that was there is the one that was expected, of a group with one key.
fn is_expected((group, batch): (&Group, &Batch), value: &[u8]) -> bool {
    let pending = group.keys.first().and_then(|key| batch.pending.get(key));
    pending.is_some_and(|pending| pending.expected.is_value(value))
}

/// Whether the values that were there are those that were expected, or already the new ones.
fn compared((group, batch): (&Group, &Batch), found: Vec<Result<Found, ReadFailure>>) -> Committed {
    if let Some(Err(ReadFailure::Refused(error))) =
        found.iter().find(|it| matches!(it, Err(ReadFailure::Refused(_))))
    {
        return Committed::Refused(error.clone());
    }
    let found = found_values(group, found);
    let is_done = |(key, found): &(RecordKey, Result<Found, Foreign>)| {
        let expected = batch.pending.get(key).map(|pending| &pending.expected);
        let is_expected = matches!(found, Ok(Found::Cell(cell)) if expected == Some(cell));
        is_expected || has_stamp(found, group.stamp)
    };
    if found.iter().all(is_done) { Committed::Yes } else { Committed::No(found) }
}

fn has_stamp(found: &Result<Found, Foreign>, stamp: u64) -> bool {
    match found {
        Ok(Found::Cell(cell)) => cell.stamp == Some(stamp),
        Ok(Found::Intent(intent)) => intent.stamp == stamp,
        Err(Foreign) => false,
    }
}

fn found_values(
    group: &Group,
    found: Vec<Result<Found, ReadFailure>>,
) -> Vec<(RecordKey, Result<Found, Foreign>)> {
    let found = found.into_iter().map(|found| found.map_err(|_| Foreign));
    group.keys.iter().copied().zip(found).collect()
}

/// Why a value was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    Foreign,
    Refused(String),
}

/// A value in a response.
pub(crate) fn found(value: &Value) -> Result<Found, ReadFailure> {
    match value {
        Value::Nil | Value::Boolean(false) => Ok(Found::Cell(Cell::ABSENT)),
        Value::BulkString(bytes) => Found::read(bytes).map_err(|Foreign| ReadFailure::Foreign),
        Value::ServerError(error) if error.code() != "WRONGTYPE" => {
            Err(ReadFailure::Refused(refusal(error)))
        }
        _ => Err(ReadFailure::Foreign),
    }
}

/// A record in a response.
pub(crate) fn cell(value: &Value) -> Result<Cell, ReadFailure> {
    match found(value)? {
        Found::Cell(cell) => Ok(cell),
        Found::Intent(_) => Err(ReadFailure::Foreign),
    }
}

/// Why the server has refused a command, in its words: a code, and what else it says.
pub(crate) fn refusal(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// Whether another server does what was refused, or this one later. It has not been done.
pub(crate) fn is_redirection(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS"]
        .contains(&code)
}

/// Room for the arguments of a usual `SET`, in bytes.
const SET_BYTES: usize = 224;

/// How many keys one call of a script has, unless one group has more.
const MOST_KEYS: usize = 64;
