//! `CL.THROTTLE`: limits that come with the call, outside the policy.

use std::time::Duration;

use tidegate::limiter::{Call, CallLimit};
use tidegate_proto::resp::{
    Arguments, Replies, ThrottleCall, ThrottleError, parse, throttle_reply,
};

use super::commands::{CommandKind, find};
use crate::access::{AccessDenial, Principal};
use crate::listener::Listener;
use crate::telemetry::{Metrics, Verdicts};
use crate::throttles::ThrottleKeys;

/// Handles the call in `arguments` and all calls of the same command that follow it.
pub(super) fn handle(
    keys: &ThrottleKeys,
    principal: &Principal,
    input: &[u8],
    first_bytes: usize,
    arguments: &mut Arguments,
    replies: &mut Replies<'_>,
) -> ThrottleOutcome {
    let (used, found, error, denial) = (0, Some(first_bytes), None, None);
    let mut calls = CallBatch { principal, input, used, found, arguments, error, denial };
    let (mut allowed, mut denied) = (0, 0);
    keys.check_many_with(&mut calls, |decision| {
        *(if decision.is_allowed() { &mut allowed } else { &mut denied }) += 1;
        replies.integers(&throttle_reply(&decision));
    });
    let denial = calls.denial.take();
    let mut outcome = ThrottleOutcome { bytes: calls.used, allowed, denied, malformed: 0, denial };
    if let Some((bytes, error)) = calls.error {
        reply_invalid(error, replies);
        outcome.bytes += bytes;
        outcome.malformed += 1;
    }
    outcome
}

/// The outcome of a batch of calls.
#[must_use]
pub(super) struct ThrottleOutcome {
    /// The bytes of the input that they were.
    pub(super) bytes: usize,
    allowed: u64,
    denied: u64,
    malformed: u64,
    /// Why the call after them was denied access.
    pub(super) denial: Option<AccessDenial>,
}

impl ThrottleOutcome {
    /// Counts them; each counts with the duration of the whole batch.
    pub(super) fn observe(&self, metrics: &Metrics, took: Duration) {
        let Verdicts { allowed, denied } = &metrics.throttle;
        let listener = metrics.listener(Listener::Resp);
        for (counter, count) in
            [(allowed, self.allowed), (denied, self.denied), (&listener.malformed, self.malformed)]
        {
            if count > 0 {
                counter.add(count);
            }
        }
        listener.durations.add(took, self.allowed + self.denied);
    }
}

fn reply_invalid(error: ThrottleError, replies: &mut Replies<'_>) {
    match error {
        ThrottleError::ArgumentCount => {
            let text = format!("wrong number of arguments for 'cl.throttle' command: {error}");
            replies.error("ERR", &text);
        }
        error => replies.error("ERR", &error.to_string()),
    }
}

/// Consecutive calls.
struct CallBatch<'i, 'a> {
    principal: &'a Principal,
    input: &'i [u8],
    /// The bytes of the calls that were returned.
    used: usize,
    /// The length of the command that is already in `arguments`.
    found: Option<usize>,
    arguments: &'a mut Arguments,
    /// The length and the error of the call that ended the batch.
    error: Option<(usize, ThrottleError)>,
    /// Why the call that ended the batch was denied access; its bytes count as used.
    denial: Option<AccessDenial>,
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
        match call(words) {
            Ok(call) => {
                self.used += bytes;
                self.denial = self.principal.charge(1).err();
                self.denial.is_none().then_some(call)
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
        if self.error.is_some() || self.denial.is_some() {
            return None;
        }
        let bytes = parse(input, self.arguments).ok()??;
        let name = self.arguments.in_array(input, 0)?;
        let is_same = find(name).is_some_and(|it| it.verb == CommandKind::Throttle);
        is_same.then_some(bytes)
    }
}

fn call<'i>(words: impl Iterator<Item = &'i [u8]>) -> Result<Call<'i, [u8]>, ThrottleError> {
    let call = ThrottleCall::parse(words)?;
    let limit = CallLimit::new(call.rate()?, call.burst)?;
    Ok(Call { key: call.key, limit, cost: call.quantity })
}
