//! Settings from the environment. An invalid value prevents the start.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate::policy::Network;
use tidegate::{Bucket, Rate};
use tidegate_tower::ForwardedHeader;

use crate::builder::{BucketLife, HOST_RULE, is_host};
use crate::origins::AllowedOrigins;

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
    /// The maximum number of connections of one address; `None`: a quarter of all.
    pub max_connections_per_address: Option<u64>,
    /// Proxies whose forwarding header is trusted.
    pub trusted_proxies: Vec<Network>,
    /// The header that they set.
    pub forwarded_header: ForwardedHeader,
    /// How long buckets are kept.
    pub bucket_life: BucketLife,
    /// Web pages that may connect.
    pub allowed_origins: AllowedOrigins,
    /// The folder in which blocks are kept; `None`: in memory.
    pub data_folder: Option<PathBuf>,
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
#[derive(Clone, PartialEq, Eq)]
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

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
pub const VARIABLES: [Variable; 14] = [
    PUBLIC_HOST,
    HOST,
    PORT,
    LISTEN,
    RATE,
    BURST,
    RATE_PER,
    CONNECTIONS,
    CONNECTIONS_PER_ADDRESS,
    GUARD,
    TRUSTED_PROXIES,
    FORWARDED_HEADER,
    ALLOWED_ORIGINS,
    DATA_DIR,
];

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
    default: Some("unset"),
    meaning: "the same, where PINCH_RELAY_PUBLIC_HOST is not set; never an address to listen on",
    expected: HOST_RULE,
};
const LISTEN: Variable = Variable {
    name: "PINCH_RELAY_LISTEN",
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
const CONNECTIONS_PER_ADDRESS: Variable = Variable {
    name: "PINCH_RELAY_MAX_CONNECTIONS_PER_ADDRESS",
    default: Some("a quarter"),
    meaning: "maximum number of connections of one address, or IPv6 /64; proxies have none",
    expected: "a whole number from 1 to 1000000",
};
const RATE_PER: Variable = Variable {
    name: "PINCH_RELAY_RATE_LIMIT_PER",
    default: Some("connection"),
    meaning: "connection: a reconnect gives a full burst; identity: the bucket is kept",
    expected: "identity or connection",
};
const FORWARDED_HEADER: Variable = Variable {
    name: "PINCH_RELAY_FORWARDED_HEADER",
    default: Some("x-forwarded-for"),
    meaning: "the header that they set, or forwarded, x-real-ip, cf-connecting-ip",
    expected: "x-forwarded-for, forwarded, x-real-ip or cf-connecting-ip",
};
const ALLOWED_ORIGINS: Variable = Variable {
    name: "PINCH_RELAY_ALLOWED_ORIGINS",
    default: Some("none"),
    meaning: "web pages that may connect, such as https://app.example,*.example.org",
    expected: "origins such as https://app.example or hosts such as *.example.org, with commas",
};
const DATA_DIR: Variable = Variable {
    name: "PINCH_RELAY_DATA_DIR",
    default: Some("in memory"),
    meaning: "the folder in which blocks are kept",
    expected: "the path of a folder",
};
const GUARD: Variable = Variable {
    name: "PINCH_RELAY_GUARD",
    default: Some("on"),
    meaning: "on or off: one connection attempt per 6 s and address, with a burst of 20",
    expected: "on or off",
};
const TRUSTED_PROXIES: Variable = Variable {
    name: "PINCH_RELAY_TRUSTED_PROXIES",
    default: Some("none"),
    meaning: "networks of proxies whose header is trusted, such as 10.0.0.0/8,fd00::/8",
    expected: "networks such as 10.0.0.0/8,fd00::/8",
};

impl Settings {
    /// The settings in an environment, or the first invalid one.
    pub fn from_env(read: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let reader = VariableReader { read };
        let listen = reader.parsed(LISTEN, |text| text.parse().ok())?;
        let port = reader.parsed(PORT, |text| whole(text)?.try_into().ok())?;
        let burst = reader.parsed(BURST, |text| within(whole(text)?, MOST_MESSAGES))?;
        let connections = |text: &str| within(whole(text)?, MOST_CONNECTIONS)?.try_into().ok();
        Ok(Self {
            listen: SocketAddr::new(listen, port),
            public_host: reader.public_host()?,
            // Any burst in its range is valid with any rate that a bucket can have.
            limit: reader.parsed(RATE, |text| Bucket::try_new(rate(text)?, burst).ok())?,
            max_connections: reader.parsed(CONNECTIONS, connections)?,
            guard: reader.parsed(GUARD, |text| match text {
                "on" => Some(Guard::On),
                "off" => Some(Guard::Off),
                _ => None,
            })?,
            max_connections_per_address: reader
                .optional(CONNECTIONS_PER_ADDRESS, |text| within(whole(text)?, MOST_CONNECTIONS))?,
            trusted_proxies: reader.optional(TRUSTED_PROXIES, networks)?.unwrap_or_default(),
            forwarded_header: reader.parsed(FORWARDED_HEADER, |text| text.parse().ok())?,
            bucket_life: reader.parsed(RATE_PER, |text| match text {
                "connection" => Some(BucketLife::Connection),
                "identity" => Some(BucketLife::Identity),
                _ => None,
            })?,
            allowed_origins: reader
                .optional(ALLOWED_ORIGINS, AllowedOrigins::from_list)?
                .unwrap_or_default(),
            data_folder: reader.given(DATA_DIR).map(PathBuf::from),
        })
    }
}

/// The variables of such a relay that are set and have no effect here, in order.
pub fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let is_known = |name: &str| VARIABLES.iter().any(|variable| variable.name == name);
    let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
    let mut unknown: Vec<_> =
        names.filter(|name| name.starts_with("PINCH_RELAY_") && !is_known(name)).collect();
    unknown.sort_unstable();
    unknown
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
        let raw = self.given(variable).or(variable.default.map(OsString::from));
        let Some(raw) = raw else { return Err(wrong(variable, None)) };
        let parsed = raw.to_str().and_then(parse);
        parsed.ok_or_else(|| wrong(variable, Some(raw.to_string_lossy().into_owned())))
    }

    /// The parsed value of a variable, if it is set. Its default is a description.
    fn optional<T>(
        &self,
        variable: Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        self.given(variable).map(|_| self.parsed(variable, parse)).transpose()
    }

    /// The value of a variable. An empty one counts as unset, as compose files write them.
    fn given(&self, variable: Variable) -> Option<OsString> {
        (self.read)(variable.name).filter(|value| !value.is_empty())
    }

    fn public_host(&self) -> Result<String, SettingError> {
        let host = |text: &str| is_host(text).then(|| text.to_owned());
        let old = self.optional(HOST, host)?;
        match (self.optional(PUBLIC_HOST, host)?, old) {
            (Some(host), _) | (None, Some(host)) => Ok(host),
            (None, None) => Err(wrong(PUBLIC_HOST, None)),
        }
    }
}

fn wrong(variable: Variable, given: Option<String>) -> SettingError {
    SettingError { name: variable.name, given, expected: variable.expected.to_owned() }
}

/// A whole number: digits and nothing else.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Networks separated by commas.
fn networks(text: &str) -> Option<Vec<Network>> {
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
