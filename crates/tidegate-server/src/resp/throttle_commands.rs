//! `CL.THROTTLE` and `THROTTLE`: limits that come with the call, outside the policy.

use tidegate::policy::ServerConfig;
use tidegate::{Call, CallLimit, Limiter, Timestamp};
use tidegate_proto::resp::{
    Arguments, Replies, ThrottleCall, ThrottleDialect, ThrottleError, parse,
};

use super::commands::{CommandKind, find};
use crate::daemon::Daemon;
use crate::listener::Listener;
use crate::telemetry::Verdicts;

/// The keys of both commands, each in a table of its own.
#[derive(Debug)]
pub(crate) struct ThrottleTables {
    redis_cell: Limiter<[u8], CallLimit>,
    throttlecrab: Limiter<[u8], CallLimit>,
}

impl ThrottleTables {
    /// Each may have as many keys as the policy.
    pub(crate) fn new(server: &ServerConfig) -> Self {
        let max_keys = usize::try_from(server.max_keys()).unwrap_or(usize::MAX);
        let limiter = || {
            let bounded = Limiter::per_call().max_keys(max_keys).when_full(server.when_full());
            bounded.build().expect("every bound of a policy is valid for a limiter")
        };
        Self { redis_cell: limiter(), throttlecrab: limiter() }
    }

    pub(crate) fn of(&self, dialect: ThrottleDialect) -> &Limiter<[u8], CallLimit> {
        match dialect {
            ThrottleDialect::RedisCell => &self.redis_cell,
            ThrottleDialect::Throttlecrab => &self.throttlecrab,
        }
    }

    /// Handles the call in `arguments` and all calls of the same command that follow it.
    pub(super) fn handle(
        &self,
        dialect: ThrottleDialect,
        (input, first_bytes): (&[u8], usize),
        arguments: &mut Arguments,
        replies: &mut Replies<'_>,
    ) -> ThrottleOutcome {
        let mut calls =
            CallBatch { dialect, input, used: 0, found: Some(first_bytes), arguments, error: None };
        let (mut allowed, mut denied) = (0, 0);
        self.of(dialect).check_many_with(&mut calls, |decision| {
            *(if decision.is_allowed() { &mut allowed } else { &mut denied }) += 1;
            replies.integers(&dialect.reply(&decision));
        });
        let mut outcome = ThrottleOutcome { bytes: calls.used, allowed, denied, malformed: 0 };
        if let Some((bytes, error)) = calls.error {
            reply_invalid(dialect, error, replies);
            outcome.bytes += bytes;
            outcome.malformed += 1;
        }
        outcome
    }
}

/// The outcome of a batch of calls.
#[must_use]
pub(super) struct ThrottleOutcome {
    /// The bytes of the input that they were.
    pub(super) bytes: usize,
    allowed: u64,
    denied: u64,
    malformed: u64,
}

impl ThrottleOutcome {
    /// Counts them; each counts with the duration of the whole batch.
    pub(super) fn observe(&self, daemon: &Daemon, dialect: ThrottleDialect, since: Timestamp) {
        let Verdicts { allowed, denied } = match dialect {
            ThrottleDialect::RedisCell => &daemon.metrics.cl_throttle,
            ThrottleDialect::Throttlecrab => &daemon.metrics.throttle,
        };
        for (counter, count) in [
            (allowed, self.allowed),
            (denied, self.denied),
            (&daemon.metrics.listener(Listener::Resp).malformed, self.malformed),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
        daemon.observe_durations(Listener::Resp, since, self.allowed + self.denied);
    }
}

fn reply_invalid(dialect: ThrottleDialect, error: ThrottleError, replies: &mut Replies<'_>) {
    let name = match dialect {
        ThrottleDialect::RedisCell => "cl.throttle",
        ThrottleDialect::Throttlecrab => "throttle",
    };
    match error {
        ThrottleError::ArgumentCount => {
            replies
                .error("ERR", &format!("wrong number of arguments for '{name}' command: {error}"));
        }
        error => replies.error("ERR", &error.to_string()),
    }
}

/// Consecutive calls of one command.
struct CallBatch<'i, 'a> {
    dialect: ThrottleDialect,
    input: &'i [u8],
    /// The bytes of the calls that were returned.
    used: usize,
    /// The length of the command that is already in `arguments`.
    found: Option<usize>,
    arguments: &'a mut Arguments,
    /// The length and the error of the call that ended the batch.
    error: Option<(usize, ThrottleError)>,
}

impl<'i> Iterator for CallBatch<'i, '_> {
    type Item = Call<'i, [u8]>;

    fn next(&mut self) -> Option<Call<'i, [u8]>> {
        let input = &self.input[self.used..];
        let bytes = match self.found.take() {
            Some(bytes) => bytes,
            None => self.find_next(input)?,
        };
        let arguments = &*self.arguments;
        let words = (1..arguments.len()).filter_map(|index| arguments.in_array(input, index));
        match call(self.dialect, words) {
            Ok(call) => {
                self.used += bytes;
                Some(call)
            }
            Err(error) => {
                self.error = Some((bytes, error));
                None
            }
        }
    }
}

impl CallBatch<'_, '_> {
    /// The length of the next command, if it is complete and a call of this command. An error of
    /// the protocol is left to the caller, which parses it again.
    fn find_next(&mut self, input: &[u8]) -> Option<usize> {
        if self.error.is_some() {
            return None;
        }
        let bytes = parse(input, self.arguments).ok()??;
        let name = self.arguments.in_array(input, 0)?;
        let is_same = find(name).is_some_and(|it| it.verb == CommandKind::Throttle(self.dialect));
        is_same.then_some(bytes)
    }
}

fn call<'i>(
    dialect: ThrottleDialect,
    words: impl Iterator<Item = &'i [u8]>,
) -> Result<Call<'i, [u8]>, ThrottleError> {
    let call = ThrottleCall::parse(dialect, words)?;
    let limit = CallLimit::new(call.rate()?, call.burst)?;
    Ok(Call { key: call.key, limit, cost: call.quantity })
}
