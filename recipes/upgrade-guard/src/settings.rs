use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use tidegate::policy::{Network, RuleError, duration_from_text};
use tidegate::{
    Rate,
    clock::{Clock, MonotonicClock},
};
use tidegate_tower::{ClientIp, ForwardedHeader, GuardError, UpgradeGuard};

/// The guard's settings, as flags and environment variables.
#[derive(Args, Clone, Debug)]
pub struct GuardArgs {
    /// Time until an address may make one more attempt
    #[arg(long, value_name = "TIME", default_value = "6s", env = "UPGRADE_GUARD_EVERY",
          value_parser = duration_from_text)]
    pub every: Duration,

    /// Burst of attempts per address
    #[arg(long, value_name = "N", default_value_t = 20, env = "UPGRADE_GUARD_BURST", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub burst: u64,

    /// Time within which idle addresses are evicted
    #[arg(long, value_name = "TIME", default_value = "5m", env = "UPGRADE_GUARD_EVICT_EVERY",
          value_parser = duration_from_text)]
    pub evict_every: Duration,

    /// Maximum number of addresses with a bucket of their own; beyond it new ones share counters
    #[arg(long, value_name = "N", default_value_t = 1 << 20, env = "UPGRADE_GUARD_MAX_ADDRESSES", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub max_addresses: u64,

    /// Proxies whose forwarding header is trusted, such as 10.0.0.0/8
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        env = "UPGRADE_GUARD_TRUSTED_PROXIES"
    )]
    pub trusted_proxies: Vec<Network>,

    /// The header that these proxies set: x-forwarded-for, forwarded, x-real-ip or cf-connecting-ip
    #[arg(
        long,
        value_name = "NAME",
        default_value = "x-forwarded-for",
        env = "UPGRADE_GUARD_FORWARDED_HEADER"
    )]
    pub forwarded_header: ForwardedHeader,
}

impl GuardArgs {
    /// The guard with these settings.
    pub fn guard(&self) -> Result<UpgradeGuard, GuardError> {
        self.guard_with_clock(MonotonicClock)
    }

    /// The guard with these settings and another clock.
    pub fn guard_with_clock<C>(&self, clock: C) -> Result<UpgradeGuard<IpAddr, C>, GuardError>
    where
        C: Clock + Send + Sync + 'static,
    {
        let rate = Rate::try_new(1, self.every).map_err(GuardError::Limit)?;
        UpgradeGuard::builder(rate, self.burst)
            .evict_every(self.evict_every)
            .max_keys(usize::try_from(self.max_addresses).unwrap_or(usize::MAX))
            .clock(clock)
            .build()
    }

    /// The networks whose PROXY headers are trusted: loopback and the trusted proxies.
    pub fn balancers(&self) -> Result<Vec<Network>, RuleError> {
        let mut balancers = vec!["127.0.0.0/8".parse()?, "::1/128".parse()?];
        balancers.extend(self.trusted_proxies.iter().copied());
        Ok(balancers)
    }

    /// The source of client addresses.
    #[must_use]
    pub fn client(&self) -> ClientIp {
        ClientIp::behind_networks(self.trusted_proxies.iter().copied())
            .header(self.forwarded_header)
    }
}
