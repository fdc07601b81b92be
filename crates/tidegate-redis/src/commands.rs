//! The commands of a batch, and what their responses mean.

use std::io::Write;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisWrite, ServerError, Value};
use smallvec::SmallVec;
use tidegate_engine::shared::RecordKey;

use crate::batch::{Batch, Group, Pending};
use crate::frame::{self, Cell, Foreign};
use crate::key_map::KeySet;

/// Commits groups of keys, each group at once, if its values are those that were seen.
///
/// For each group: how many keys, a stamp; for each key: what its value has to begin with (nothing:
/// no value), its new value (nothing: unchanged), for how many milliseconds it is kept (nothing: for good). Responds for each
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
          redis.call('SET', KEYS[k + i], ARGV[at + 1], 'PX', ARGV[at + 2])
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
      redis.call('SET', KEYS[i], ARGV[at + 1], 'PX', ARGV[at + 2])
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
    /// How many of its commands come first, and have responses that do not matter.
    pub(crate) skipped: usize,
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

    /// The name of the turn at a key.
    pub(crate) fn turn_name(&self, key: &RecordKey) -> String {
        format!("{}turn:{key}", self.prefix)
    }

    /// The commands of a batch, behind some that come first; they pass the turns at some keys on. Values are
    /// kept for so much longer than they are needed.
    pub(crate) fn encode(
        &self,
        first: Pipeline,
        batch: &Batch,
        turns: &KeySet,
        longer: Duration,
    ) -> Encoded {
        let mut encoded = Encoded {
            skipped: first.len(),
            pipeline: first,
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
        encoded.reads = batch.reads.iter().map(|key| encoded.add(get(key))).collect();
        let mut script: Vec<&Group> = Vec::new();
        for group in &batch.groups {
            let pending: SmallVec<[&Pending; 4]> =
                group.keys.iter().filter_map(|key| batch.pending.get(key)).collect();
            if !turns.is_empty() && group.keys.iter().any(|key| turns.contains(key)) {
                let index = encoded.add(self.pass(group, turns, batch, longer));
                encoded.replies.push(Reply::Script(index, 0));
            } else if !pending.iter().any(|it| it.writes()) {
                let index = encoded.count();
                group.keys.iter().for_each(|key| {
                    encoded.add(get(key));
                });
                encoded.replies.push(Reply::Compare(index));
            } else if let Some(command) = self.set(group, &pending, longer) {
                let index = encoded.add(command);
                encoded.replies.push(Reply::Set(index));
            } else {
                encoded.replies.push(Reply::Script(usize::MAX, script.len()));
                script.push(group);
            }
        }
        self.add_scripts(&mut encoded, &script, batch, longer);
        encoded
    }

    /// One key by one command, where the server can do that.
    fn set(&self, group: &Group, pending: &[&Pending], longer: Duration) -> Option<Cmd> {
        let ([key], [pending]) = (&*group.keys, pending) else { return None };
        let expected = &pending.expected;
        if expected.stamp.is_some() && !self.has_ifeq {
            return None;
        }
        let mut command = Cmd::with_capacity(8, SET_BYTES);
        command.arg("SET");
        self.add_name(&mut command, key);
        pending.after(group.stamp).write(&mut command);
        if expected.stamp.is_some() {
            command.arg("IFEQ");
            expected.write(&mut command);
        } else {
            command.arg("NX");
        }
        command.arg("GET");
        if let Some(kept_ms) = kept_ms(pending, longer) {
            command.arg("PX").arg(kept_ms);
        }
        Some(command)
    }

    /// A group with turns that are passed on.
    fn pass(&self, group: &Group, turns: &KeySet, batch: &Batch, longer: Duration) -> Cmd {
        let passed = group.keys.iter().filter(|key| turns.contains(*key));
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.pass_sha).arg(group.keys.len() + passed.clone().count());
        group.keys.iter().for_each(|key| self.add_name(&mut command, key));
        for key in passed {
            command.arg(self.turn_name(key));
        }
        self.add_group(&mut command, group, batch, longer);
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
        batch: &Batch,
        longer: Duration,
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
                self.add_name(&mut command, key);
            }
            for group in &groups[first..end] {
                self.add_group(&mut command, group, batch, longer);
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
    fn add_group(&self, command: &mut Cmd, group: &Group, batch: &Batch, longer: Duration) {
        command.arg(group.keys.len()).arg(&frame::head(group.stamp)[..]);
        for pending in group.keys.iter().filter_map(|key| batch.pending.get(key)) {
            command.arg(&pending.expected.head()[..]);
            if pending.writes() {
                pending.after(group.stamp).write(command);
            } else {
                command.arg("");
            }
            match kept_ms(pending, longer) {
                Some(kept_ms) => command.arg(kept_ms),
                None => command.arg(""),
            };
        }
    }
}

impl Encoded {
    pub(crate) fn add(&mut self, command: Cmd) -> usize {
        let index = self.count();
        self.pipeline.add_command(command);
        index
    }

    /// How many responses matter.
    fn count(&self) -> usize {
        self.pipeline.len() - self.skipped
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

    /// What became of a group.
    pub(crate) fn committed(
        &self,
        number: usize,
        group: &Group,
        batch: &Batch,
        responses: &[Value],
    ) -> Committed {
        let none = || Committed::Refused("the response is missing".to_owned());
        let (at, position) = match self.replies.get(number) {
            Some(Reply::Set(at)) => (*at, None),
            Some(Reply::Script(at, position)) => (*at, Some(*position)),
            Some(Reply::Compare(at)) => {
                let values = responses.get(*at..*at + group.keys.len()).unwrap_or_default();
                return compared(group, batch, values.iter().map(cell).collect());
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
                    Committed::No(found_values(group, values.iter().map(cell).collect()))
                }
                _ => none(),
            },
            (None, Value::BulkString(bytes)) if is_expected(group, batch, bytes) => Committed::Yes,
            (None, value) => compared(group, batch, vec![cell(value)]),
            _ => none(),
        }
    }
}

/// Whether the value that was there is the one that was expected, of a group with one key.
fn is_expected(group: &Group, batch: &Batch, value: &[u8]) -> bool {
    let pending = group.keys.first().and_then(|key| batch.pending.get(key));
    pending.is_some_and(|pending| pending.expected.is_value(value))
}

/// Whether the values that were there are those that were expected, or already the new ones.
fn compared(group: &Group, batch: &Batch, found: Vec<Result<Cell, ReadFailure>>) -> Committed {
    if let Some(Err(ReadFailure::Refused(error))) =
        found.iter().find(|it| matches!(it, Err(ReadFailure::Refused(_))))
    {
        return Committed::Refused(error.clone());
    }
    let found = found_values(group, found);
    let is_done = |(key, found): &(RecordKey, Result<Cell, Foreign>)| {
        let expected = batch.pending.get(key).map(|pending| &pending.expected);
        found.as_ref().is_ok_and(|it| Some(it) == expected || it.stamp == Some(group.stamp))
    };
    if found.iter().all(is_done) { Committed::Yes } else { Committed::No(found) }
}

fn found_values(
    group: &Group,
    found: Vec<Result<Cell, ReadFailure>>,
) -> Vec<(RecordKey, Result<Cell, Foreign>)> {
    let found = found.into_iter().map(|found| found.map_err(|_| Foreign));
    group.keys.iter().copied().zip(found).collect()
}

/// For how long the new value of a key is kept, in milliseconds; `None`: for good, or it is unchanged.
fn kept_ms(pending: &Pending, longer: Duration) -> Option<u64> {
    let life = pending.change.as_ref()?.life(longer)?;
    let life_ms = life.as_nanos().div_ceil(1_000_000);
    Some(u64::try_from(life_ms).unwrap_or(u64::MAX).min(LONGEST_MS))
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
pub(crate) fn refusal(error: &ServerError) -> String {
    without_arguments(&format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

/// An error without the arguments of the command, which may be a password: servers repeat them where
/// they do not know the command.
pub(crate) fn without_arguments(error: &str) -> String {
    error.split(", with args").next().unwrap_or_default().to_owned()
}

/// Whether another server of the cluster has to be sent what was refused. None refuses it, then.
pub(crate) fn is_elsewhere(error: &str) -> bool {
    ["MOVED", "ASK", "TRYAGAIN"].contains(&error.split(' ').next().unwrap_or_default())
}

/// Whether the server refuses all writes for now, as one that is full.
pub(crate) fn is_of_all_writes(refusal: &str) -> bool {
    ["OOM ", "MISCONF ", "NOREPLICAS ", "READONLY "].iter().any(|code| refusal.contains(code))
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

/// The longest time that a value is kept, in milliseconds: more than 100 000 years. Servers count in signed
/// numbers of 64 bits.
const LONGEST_MS: u64 = 1 << 52;
