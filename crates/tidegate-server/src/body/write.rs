//! Decision bodies as JSON, written by hand: through serde this is the largest part of a check over
//! HTTP.

use super::{DecisionBody, RuleBody};

/// The buffer of a JSON text.
type JsonText = Vec<u8>;

impl DecisionBody<'_> {
    /// Writes the same bytes as [`serde::Serialize`].
    pub(crate) fn write(&self, out: &mut JsonText) {
        push_json(out, "{\"allowed\":");
        put_flag(out, self.allowed);
        push_json(out, ",\"rule\":");
        match self.rule {
            Some(rule) => put_text(out, rule),
            None => push_json(out, "null"),
        }
        push_json(out, ",\"remaining\":");
        put_count(out, self.remaining);
        push_json(out, ",\"limit\":");
        put_count(out, self.limit);
        put_retry(out, self.retry_after_ms, self.retry);
        push_json(out, ",\"reset_after_ms\":");
        put_count(out, self.reset_after_ms);
        if let Some(reason) = &self.reason {
            push_json(out, ",\"reason\":");
            put_text(out, reason);
        }
        if let Some(outage) = self.outage {
            push_json(out, ",\"outage\":");
            put_text(out, outage);
        }
        push_json(out, ",\"decision_id\":\"");
        out.extend_from_slice(&self.decision_id.digits());
        push_json(out, "\",\"rules\":[");
        for (number, rule) in self.rules.iter().enumerate() {
            if number > 0 {
                push_json(out, ",");
            }
            rule.write(out);
        }
        push_json(out, "]}");
    }
}

impl RuleBody<'_> {
    fn write(&self, out: &mut JsonText) {
        push_json(out, "{\"rule\":");
        put_text(out, self.rule);
        push_json(out, ",\"mode\":");
        put_text(out, self.mode);
        push_json(out, ",\"allowed\":");
        put_flag(out, self.allowed);
        push_json(out, ",\"remaining\":");
        put_number(out, self.remaining);
        push_json(out, ",\"limit\":");
        put_number(out, self.limit);
        put_retry(out, self.retry_after_ms, self.retry);
        push_json(out, ",\"reset_after_ms\":");
        put_count(out, self.reset_after_ms);
        push_json(out, "}");
    }
}

fn put_retry(out: &mut JsonText, after_ms: Option<u64>, retry: Option<&str>) {
    push_json(out, ",\"retry_after_ms\":");
    put_count(out, after_ms);
    if let Some(retry) = retry {
        push_json(out, ",\"retry\":");
        put_text(out, retry);
    }
}

fn push_json(out: &mut JsonText, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

fn put_flag(out: &mut JsonText, flag: bool) {
    push_json(out, if flag { "true" } else { "false" });
}

fn put_count(out: &mut JsonText, count: Option<u64>) {
    match count {
        Some(count) => put_number(out, count),
        None => push_json(out, "null"),
    }
}

fn put_number(out: &mut JsonText, number: u64) {
    push_json(out, itoa::Buffer::new().format(number));
}

/// A JSON string. Most need no escapes.
fn put_text(out: &mut JsonText, text: &str) {
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        push_json(out, text);
        out.push(b'"');
    } else if serde_json::to_writer(&mut *out, text).is_err() {
        // Unreachable: writing to memory does not fail.
        push_json(out, "\"\"");
    }
}
