//! `CL.THROTTLE` and `THROTTLE`: the limit comes with the call, and the policy has no say.

use tidegate::policy::Server;
use tidegate::{Call, CallLimit, Throttle, Timestamp};
use tidegate_proto::resp::{Arguments, BadThrottle, Dialect, Replies, ThrottleCall, parse};

use super::commands::{Verb, find};
use crate::daemon::Daemon;
use crate::door::Door;
use crate::telemetry::Verdicts;

/// The keys of both commands. A key of the one is not a key of the other.
#[derive(Debug)]
pub(crate) struct Throttles {
    redis_cell: Throttle<[u8]>,
    throttlecrab: Throttle<[u8]>,
}

impl Throttles {
    /// Each may have as many keys as the policy.
    pub(crate) fn new(server: &Server) -> Self {
        let max_keys = usize::try_from(server.max_keys()).unwrap_or(usize::MAX);
        let throttle = || {
            let bounded = Throttle::builder().max_keys(max_keys).when_full(server.when_full());
            // A policy cannot have bounds that a throttle cannot have.
            bounded.build().unwrap_or_default()
        };
        Self { redis_cell: throttle(), throttlecrab: throttle() }
    }

    pub(crate) fn of(&self, dialect: Dialect) -> &Throttle<[u8]> {
        match dialect {
            Dialect::RedisCell => &self.redis_cell,
            Dialect::Throttlecrab => &self.throttlecrab,
        }
    }

    /// Answers the call that `arguments` were found to be, and all further calls of the same command
    /// that follow it.
    pub(super) fn answer(
        &self,
        dialect: Dialect,
        (input, first_bytes): (&[u8], usize),
        arguments: &mut Arguments,
        replies: &mut Replies<'_>,
    ) -> Answered {
        let mut calls =
            Calls { dialect, input, used: 0, found: Some(first_bytes), arguments, error: None };
        let (mut allowed, mut denied) = (0, 0);
        self.of(dialect).check_many(&mut calls, |decision| {
            *(if decision.is_allowed() { &mut allowed } else { &mut denied }) += 1;
            replies.integers(&dialect.reply(&decision));
        });
        let mut answered = Answered { bytes: calls.used, allowed, denied, malformed: 0 };
        if let Some((bytes, error)) = calls.error {
            refuse(dialect, error, replies);
            answered.bytes += bytes;
            answered.malformed += 1;
        }
        answered
    }
}

/// What became of calls that were answered together.
#[must_use]
pub(super) struct Answered {
    /// How many bytes of the input they were.
    pub(super) bytes: usize,
    allowed: u64,
    denied: u64,
    malformed: u64,
}

impl Answered {
    /// Counts them; each took as long as all together.
    pub(super) fn observe(&self, daemon: &Daemon, dialect: Dialect, since: Timestamp) {
        let Verdicts { allowed, denied } = match dialect {
            Dialect::RedisCell => &daemon.metrics.cl_throttle,
            Dialect::Throttlecrab => &daemon.metrics.throttle,
        };
        for (counter, count) in [
            (allowed, self.allowed),
            (denied, self.denied),
            (&daemon.metrics.door(Door::Resp).malformed, self.malformed),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
        daemon.observe_durations(Door::Resp, since, self.allowed + self.denied);
    }
}

fn refuse(dialect: Dialect, error: BadThrottle, replies: &mut Replies<'_>) {
    let name = match dialect {
        Dialect::RedisCell => "cl.throttle",
        Dialect::Throttlecrab => "throttle",
    };
    match error {
        BadThrottle::ArgumentCount => {
            replies
                .error("ERR", &format!("wrong number of arguments for '{name}' command: {error}"));
        }
        error => replies.error("ERR", &error.to_string()),
    }
}

/// Calls of one command, one behind the other, until there is something else.
struct Calls<'i, 'a> {
    dialect: Dialect,
    input: &'i [u8],
    /// Bytes of the calls that were given out.
    used: usize,
    /// The length of a command that the arguments are of already.
    found: Option<usize>,
    arguments: &'a mut Arguments,
    /// What is wrong with the call at which it ended, and how long that is.
    error: Option<(usize, BadThrottle)>,
}

impl<'i> Iterator for Calls<'i, '_> {
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

impl Calls<'_, '_> {
    /// The length of the next command, if it is whole and one of these. What is wrong with its
    /// protocol is found again by whoever goes on from there.
    fn find_next(&mut self, input: &[u8]) -> Option<usize> {
        if self.error.is_some() {
            return None;
        }
        let bytes = parse(input, self.arguments).ok()??;
        let name = self.arguments.in_array(input, 0)?;
        let is_same = find(name).is_some_and(|it| it.verb == Verb::Throttle(self.dialect));
        is_same.then_some(bytes)
    }
}

fn call<'i>(
    dialect: Dialect,
    words: impl Iterator<Item = &'i [u8]>,
) -> Result<Call<'i, [u8]>, BadThrottle> {
    let call = ThrottleCall::parse(dialect, words)?;
    let limit = CallLimit::new(call.rate()?, call.burst)?;
    Ok(Call { key: call.key, limit, cost: call.quantity })
}
