//! The address of a store: one server, or several by which it is found.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::error::RedisError;

/// What an address names.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) topology: Topology,
    /// One server; the sentinels; or some nodes of the cluster. Never empty.
    pub(crate) hosts: Vec<ConnectionInfo>,
    /// The number of the database.
    pub(crate) database: i64,
}

/// How the server that has the records is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// It is the one of the address.
    Server,
    /// Sentinels know the primary, by this name.
    Sentinel(String),
    /// The node that has the slot of the records, which other nodes name.
    Cluster,
}

impl Address {
    /// Reads an address, such as `redis+sentinel://user:password@a:26379,b/name/0`.
    pub(crate) fn parse(url: &str) -> Result<Self, RedisError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(refused("it has to begin with a scheme, such as redis://"));
        };
        match scheme.split_once('+') {
            Some((base, "sentinel")) => several(base, rest, Several::Sentinels),
            Some((base, "cluster")) => several(base, rest, Several::Nodes),
            _ => single(url, rest),
        }
    }
}

impl Address {
    /// Sets the password of the server. It is an error if it has one.
    pub(crate) fn set_password(&mut self, password: &str) -> Result<(), RedisError> {
        for host in &mut self.hosts {
            let login = host.redis_settings().clone();
            if login.password().is_some() {
                let text = "the address of the store has a password, and another one is set";
                return Err(RedisError::Setting(text.to_owned()));
            }
            *host = host.clone().set_redis_settings(login.set_password(password));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    Sentinels,
    Nodes,
}

fn single(url: &str, rest: &str) -> Result<Address, RedisError> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    if hosts.contains(',') {
        let text = "several hosts need redis+sentinel:// or redis+cluster://";
        return Err(refused(text));
    }
    if url.contains("#insecure") {
        return Err(refused("#insecure is not supported: give the authority's certificate"));
    }
    let info = url.into_connection_info().map_err(|error| refused(&error.to_string()))?;
    let database = info.redis_settings().db();
    Ok(Address { topology: Topology::Server, hosts: vec![info], database })
}

/// `[user:password@]host[:port],…[/name][/database]`
fn several(base: &str, rest: &str, what: Several) -> Result<Address, RedisError> {
    if !matches!(base, "redis" | "rediss" | "valkey" | "valkeys") {
        return Err(refused("the scheme has to begin with redis or rediss"));
    }
    if rest.contains(['?', '#']) {
        return Err(refused("with several hosts it has no ? and no #; in a password: %3F, %23"));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let mut path = path.trim_end_matches('/').split('/');
    let (topology, default_port) = match what {
        Several::Sentinels => (Topology::Sentinel(name(path.next())?), SENTINEL_PORT),
        Several::Nodes => (Topology::Cluster, PORT),
    };
    let database = path.next().filter(|it| !it.is_empty()).unwrap_or("0");
    let is_number = !database.is_empty() && database.bytes().all(|it| it.is_ascii_digit());
    let database = database.parse().ok().filter(|_| is_number && path.next().is_none());
    let Some(database) = database else {
        return Err(refused("after the hosts, it ends with the number of a database or nothing"));
    };
    if what == Several::Nodes && database != 0 {
        return Err(refused("a cluster has one database: 0"));
    }
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.len() > MOST_HOSTS {
        return Err(refused("it has more than 32 hosts"));
    }
    let info = |host: &&str| {
        if host.is_empty() {
            return Err(refused("a host is missing"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { String::new() } else { format!(":{default_port}") };
        let url = format!("{base}://{login}{host}{port}/{database}");
        url.into_connection_info().map_err(|error| refused(&format!("the host {host}: {error}")))
    };
    let hosts = hosts.iter().map(info).collect::<Result<_, _>>()?;
    Ok(Address { topology, hosts, database })
}

/// The name of a primary, of those that sentinels accept.
fn name(name: Option<&str>) -> Result<String, RedisError> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
    let name = name.filter(|it| !it.is_empty() && it.chars().all(is_letter));
    name.map(str::to_owned).ok_or_else(|| {
        let text = "after the sentinels comes the name of the primary, \
                    as in redis+sentinel://host:26379/NAME: letters, digits and .-_";
        refused(text)
    })
}

fn refused(reason: &str) -> RedisError {
    RedisError::Url(reason.to_owned())
}

const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
const MOST_HOSTS: usize = 32;

#[cfg(test)]
mod tests;
