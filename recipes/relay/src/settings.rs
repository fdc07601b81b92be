//! Settings from the environment. An invalid value prevents the start.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;

use tidegate::policy::Network;
use tidegate::{Bucket, Rate};

use crate::builder::{HOST_RULE, is_host};

/// The settings of a relay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The host in its clients' addresses.
    pub public_host: String,
    /// The bucket of every connection.
    pub limit: Bucket,
    /// The maximum number of concurrent clients.
    pub max_connections: usize,
    /// Whether connection attempts are limited by the client's network address.
    pub guard: Guard,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
}

/// Whether a guard is in front of `/ws`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Connection attempts are limited.
    On,
    /// Connection attempts are not limited.
    Off,
}

/// An invalid setting: its name, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    name: &'static str,
    given: Option<String>,
    expected: String,
}

impl SettingError {
    /// The variable.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.given {
            Some(given) => write!(f, "{} is {given:?}: expected {}", self.name, self.expected),
            None => write!(f, "{} is not set: expected {}", self.name, self.expected),
        }
    }
}

impl std::error::Error for SettingError {}

/// One variable, as in `--help`.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value if it is not set; `None` if it is required.
    pub default: Option<&'static str>,
    /// Its description.
    pub meaning: &'static str,
    expected: &'static str,
}

/// All variables of the relay.
pub const VARIABLES: [Variable; 8] =
    [PUBLIC_HOST, PORT, HOST, RATE, BURST, CONNECTIONS, GUARD, TRUSTED_PROXIES];

const PUBLIC_HOST: Variable = Variable {
    name: "PINCH_RELAY_PUBLIC_HOST",
    default: None,
    meaning: "the host in the addresses of its clients, and in the data that they sign",
    expected: HOST_RULE,
};
const PORT: Variable = Variable {
    name: "PINCH_RELAY_PORT",
    default: Some("8080"),
    meaning: "the port to listen on; 0 is any free port",
    expected: "a port from 0 to 65535 (0 is any free port)",
};
const HOST: Variable = Variable {
    name: "PINCH_RELAY_HOST",
    default: Some("0.0.0.0"),
    meaning: "the address to listen on; :: is all interfaces with IPv6",
    expected: "an IP address such as 127.0.0.1, 0.0.0.0 or ::",
};
const RATE: Variable = Variable {
    name: "PINCH_RELAY_RATE_LIMIT",
    default: Some("1.0"),
    meaning: "messages per second per connection, a decimal number",
    expected: "messages per second: a decimal number above 0 and at most 1000000000, such as 1.5, \
               with at most 9 decimals",
};
const BURST: Variable = Variable {
    name: "PINCH_RELAY_RATE_BURST",
    default: Some("10"),
    meaning: "burst per connection, in messages",
    expected: "a burst in messages: a whole number from 1 to 1000000000",
};
const CONNECTIONS: Variable = Variable {
    name: "PINCH_RELAY_MAX_CONNECTIONS",
    default: Some("10000"),
    meaning: "maximum number of concurrent clients",
    expected: "a whole number from 1 to 1000000",
};
const GUARD: Variable = Variable {
    name: "PINCH_RELAY_GUARD",
    default: Some("on"),
    meaning: "on or off: one connection attempt per 6 s and address, with a burst of 20",
    expected: "on or off",
};
const TRUSTED_PROXIES: Variable = Variable {
    name: "PINCH_RELAY_TRUSTED_PROXIES",
    default: Some(""),
    meaning: "networks of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,fd00::/8",
    expected: "networks such as 10.0.0.0/8,fd00::/8",
};

impl Settings {
    /// The settings in an environment, or the first invalid one.
    pub fn from_env(read: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let reader = VariableReader { read };
        let host = reader.parsed(HOST, |text| text.parse().ok())?;
        let port = reader.parsed(PORT, |text| whole(text)?.try_into().ok())?;
        let burst = reader.parsed(BURST, |text| within(whole(text)?, MOST_MESSAGES))?;
        let connections = |text: &str| within(whole(text)?, MOST_CONNECTIONS)?.try_into().ok();
        Ok(Self {
            listen: SocketAddr::new(host, port),
            public_host: reader.parsed(PUBLIC_HOST, |text| is_host(text).then(|| text.into()))?,
            // Any burst in its range is valid with any rate that a bucket can have.
            limit: reader.parsed(RATE, |text| Bucket::new(rate(text)?, burst).ok())?,
            max_connections: reader.parsed(CONNECTIONS, connections)?,
            guard: reader.parsed(GUARD, |text| match text {
                "on" => Some(Guard::On),
                "off" => Some(Guard::Off),
                _ => None,
            })?,
            trusted_proxies: reader.parsed(TRUSTED_PROXIES, networks)?,
        })
    }
}

/// Reader of variables.
struct VariableReader<F> {
    read: F,
}

impl<F: Fn(&str) -> Option<OsString>> VariableReader<F> {
    /// The parsed value of a variable, or of its default if it is not set.
    fn parsed<T>(
        &self,
        variable: Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let raw = (self.read)(variable.name).or(variable.default.map(OsString::from));
        let Some(raw) = raw else { return Err(wrong(variable, None)) };
        let parsed = raw.to_str().and_then(parse);
        parsed.ok_or_else(|| wrong(variable, Some(raw.to_string_lossy().into_owned())))
    }
}

fn wrong(variable: Variable, given: Option<String>) -> SettingError {
    SettingError { name: variable.name, given, expected: variable.expected.to_owned() }
}

/// A whole number: digits and nothing else.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Networks separated by commas, or none.
fn networks(text: &str) -> Option<Vec<Network>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|network| network.trim().parse().ok()).collect()
}

fn within(number: u64, most: u64) -> Option<u64> {
    (1..=most).contains(&number).then_some(number)
}

fn rate(text: &str) -> Option<Rate> {
    let rate = Rate::per_second_decimal(text).ok()?;
    let per_second_times_period = u128::from(MOST_MESSAGES) * u128::from(rate.period().as_secs());
    (u128::from(rate.count()) <= per_second_times_period).then_some(rate)
}

/// More than any connection can carry.
const MOST_MESSAGES: u64 = 1_000_000_000;

const MOST_CONNECTIONS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
