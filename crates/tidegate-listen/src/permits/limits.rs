use tidegate::policy::Network;

use crate::descriptors::descriptors;
use crate::peer::PeerId;

/// How many connections a listener may have.
///
/// ```
/// use tidegate_listen::PermitLimits;
///
/// // An address gets a quarter of them, as by default; all clients of this proxy share its address.
/// let limits = PermitLimits::new(10_000).shared_by(["10.0.0.7/32".parse()?]);
/// # Ok::<(), tidegate::policy::RuleError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PermitLimits {
    max: u64,
    max_per_peer: Option<u64>,
    reserve: Option<u64>,
    shared: Vec<Network>,
}

impl PermitLimits {
    /// At most this many connections at a time, at least one.
    pub fn new(max: u64) -> Self {
        Self { max: max.max(1), max_per_peer: None, reserve: None, shared: Vec::new() }
    }

    /// The connections of one peer, in place of a quarter of all.
    pub fn per_peer(mut self, max_per_peer: Option<u64>) -> Self {
        self.max_per_peer = max_per_peer;
        self
    }

    /// How many connections without a permit are answered at a time, in place of an eighth of all,
    /// at least 16 and at most 256. They are beyond the maximum.
    pub fn reserve(mut self, reserve: u64) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// Networks of proxies: each of their addresses stands for many clients, and may have all
    /// connections.
    pub fn shared_by(mut self, proxies: impl IntoIterator<Item = Network>) -> Self {
        self.shared = proxies.into_iter().collect();
        self
    }

    /// The same with no more connections than `descriptors` allow, of which `kept` are for other
    /// uses.
    pub fn within(mut self, descriptors: u64, kept: u64) -> Self {
        let most = descriptors.saturating_sub(kept).saturating_sub(self.reserve_max());
        self.max = self.max.min(most).max(1);
        self
    }

    /// The same with no more connections than the process has [descriptors] for, of which `kept` are
    /// for other uses. Logs a warning if that is fewer.
    pub fn within_descriptors(self, kept: u64) -> Self {
        let wanted = self.max;
        let limits = self.within(descriptors(), kept);
        if limits.max < wanted {
            let connections = limits.max;
            tracing::warn!(
                connections,
                wanted,
                "fewer connections than wanted: the limit of descriptors is low"
            );
        }
        limits
    }

    /// The most connections at a time.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn max_per_peer(&self) -> u64 {
        self.max_per_peer.unwrap_or(self.max.div_ceil(PEERS)).min(self.max)
    }

    pub(super) fn reserve_max(&self) -> u64 {
        self.reserve.unwrap_or((self.max / 8).clamp(16, 256))
    }

    pub(super) fn reserve_max_per_peer(&self) -> u64 {
        self.reserve_max().div_ceil(PEERS)
    }

    pub(super) fn is_shared(&self, peer: PeerId) -> bool {
        let Some(address) = peer.address() else { return false };
        self.shared.iter().any(|network| network.contains(address.ip().to_canonical()))
    }
}

/// One peer gets one in this many connections.
const PEERS: u64 = 4;
