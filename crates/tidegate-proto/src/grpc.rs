//! A denial in gRPC: status 8 with details that include the wait.

use std::time::Duration;

use tidegate_core::Wait;

use crate::percent;

/// The status of a denied call: `RESOURCE_EXHAUSTED`.
pub const RESOURCE_EXHAUSTED: u32 = 8;
/// The status of a call without a key to be counted by: `UNAUTHENTICATED`.
pub const UNAUTHENTICATED: u32 = 16;
/// The status of a call whose attributes a rule cannot use: `INVALID_ARGUMENT`.
pub const INVALID_ARGUMENT: u32 = 3;
/// The status of a call that cannot be decided at the moment: `UNAVAILABLE`.
pub const UNAVAILABLE: u32 = 14;
/// The status of a call that met a bug of the server: `INTERNAL`.
pub const INTERNAL: u32 = 13;

/// Why a call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcDenial<'a> {
    /// The reason, as text.
    pub message: &'a str,
    /// The rule that denied the call, if one did.
    pub rule: Option<&'a str>,
    /// How long to wait.
    pub wait: Option<Wait>,
}

impl GrpcDenial<'_> {
    /// The value of `grpc-status-details-bin`: a `google.rpc.Status` with `RetryInfo`,
    /// `QuotaFailure` and `ErrorInfo`, in base64.
    #[must_use]
    pub fn details(&self) -> String {
        let rule = self.rule.unwrap_or_default();
        let mut status = Message::default();
        status.number(1, u64::from(RESOURCE_EXHAUSTED)).text(2, self.message);
        if let Some(Wait::After(wait)) = self.wait {
            let retry = Message::default().message(1, &duration(wait)).take();
            status.message(3, &any("google.rpc.RetryInfo", &retry));
        }
        let violation = Message::default().text(1, rule).text(2, self.message).take();
        let failure = Message::default().message(1, &violation).take();
        status.message(3, &any("google.rpc.QuotaFailure", &failure));
        let mut info = Message::default();
        info.text(1, "RATE_LIMITED").text(2, "tidegate");
        if let Some(rule) = self.rule {
            let entry = Message::default().text(1, "rule").text(2, rule).take();
            info.message(3, &entry);
        }
        status.message(3, &any("google.rpc.ErrorInfo", &info));
        base64(&status.bytes)
    }

    /// The value of `grpc-retry-pushback-ms`: how long to wait, or -1 for *do not retry*; `None` if
    /// the wait is unknown, so that the client keeps its own pace.
    #[must_use]
    pub fn pushback(&self) -> Option<String> {
        match self.wait? {
            Wait::Never => Some("-1".to_owned()),
            wait => wait.whole_ms().map(|ms| ms.to_string()),
        }
    }
}

/// A text encoded for `grpc-message`: unprintable bytes become `%` and two hex digits.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    percent::encoded(text, |byte| matches!(byte, b' '..=b'~') && byte != b'%')
}

/// A protobuf message being written.
#[derive(Debug, Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.bytes.push(u8::try_from(value).unwrap_or(0));
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.length_delimited(field, text.as_bytes())
    }

    fn message(&mut self, field: u64, message: &Self) -> &mut Self {
        self.length_delimited(field, &message.bytes)
    }

    fn length_delimited(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// A `google.protobuf.Any`.
fn any(name: &str, message: &Message) -> Message {
    Message::default().text(1, &format!("type.googleapis.com/{name}")).message(2, message).take()
}

/// A `google.protobuf.Duration`, at most the longest that the type allows.
fn duration(duration: Duration) -> Message {
    let most = Duration::from_secs(315_576_000_000);
    let duration = duration.min(most);
    Message::default()
        .number(1, duration.as_secs())
        .number(2, u64::from(duration.subsec_nanos()))
        .take()
}

/// Base64 as in gRPC headers: without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=chunk.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            out.push(char::from(DIGITS[index as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests;
