//! Answers as JSON, written by hand: through serde this is what a check over HTTP spends most on.

use super::{Body, RuleBody};

/// JSON in the making.
type Text = Vec<u8>;

impl Body<'_> {
    /// Writes what [`serde::Serialize`] would.
    pub(crate) fn write(&self, out: &mut Text) {
        put(out, "{\"allowed\":");
        put_flag(out, self.allowed);
        put(out, ",\"rule\":");
        match self.rule {
            Some(rule) => put_text(out, rule),
            None => put(out, "null"),
        }
        put(out, ",\"remaining\":");
        put_count(out, self.remaining);
        put(out, ",\"limit\":");
        put_count(out, self.limit);
        put_retry(out, self.retry_after_ms, self.retry);
        put(out, ",\"reset_after_ms\":");
        put_count(out, self.reset_after_ms);
        if let Some(reason) = &self.reason {
            put(out, ",\"reason\":");
            put_text(out, reason);
        }
        put(out, ",\"decision_id\":\"");
        out.extend_from_slice(&self.decision_id.digits());
        put(out, "\",\"rules\":[");
        for (number, rule) in self.rules.iter().enumerate() {
            if number > 0 {
                put(out, ",");
            }
            rule.write(out);
        }
        put(out, "]}");
    }
}

impl RuleBody<'_> {
    fn write(&self, out: &mut Text) {
        put(out, "{\"rule\":");
        put_text(out, self.rule);
        put(out, ",\"mode\":");
        put_text(out, self.mode);
        put(out, ",\"allowed\":");
        put_flag(out, self.allowed);
        put(out, ",\"remaining\":");
        put_number(out, self.remaining);
        put(out, ",\"limit\":");
        put_number(out, self.limit);
        put_retry(out, self.retry_after_ms, self.retry);
        put(out, ",\"reset_after_ms\":");
        put_count(out, self.reset_after_ms);
        put(out, "}");
    }
}

fn put_retry(out: &mut Text, after_ms: Option<u64>, retry: Option<&str>) {
    put(out, ",\"retry_after_ms\":");
    put_count(out, after_ms);
    if let Some(retry) = retry {
        put(out, ",\"retry\":");
        put_text(out, retry);
    }
}

fn put(out: &mut Text, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

fn put_flag(out: &mut Text, flag: bool) {
    put(out, if flag { "true" } else { "false" });
}

fn put_count(out: &mut Text, count: Option<u64>) {
    match count {
        Some(count) => put_number(out, count),
        None => put(out, "null"),
    }
}

fn put_number(out: &mut Text, number: u64) {
    put(out, itoa::Buffer::new().format(number));
}

/// A text in quotes. Most need nothing more than that.
fn put_text(out: &mut Text, text: &str) {
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if is_plain {
        out.push(b'"');
        put(out, text);
        out.push(b'"');
    } else if serde_json::to_writer(&mut *out, text).is_err() {
        // Memory takes everything: this cannot be.
        put(out, "\"\"");
    }
}
