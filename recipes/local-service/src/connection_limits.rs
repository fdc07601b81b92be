use tidegate_listen::PermitLimits;

use crate::SettingError;

/// The permits of connections: per user and in total.
///
/// A user who holds the maximum leaves the rest to others, and the last eighth of all is for users
/// without a connection. There is no queue: without a free permit the connection is turned away.
#[derive(Clone, Debug)]
pub struct ConnectionLimits(PermitLimits);

impl ConnectionLimits {
    /// `all` permits in total, at most `each` per user.
    pub fn new(all: u64, each: u64) -> Result<Self, SettingError> {
        if each >= all {
            let reason = format!("one user could hold all {all} of --max-connections");
            return Err(SettingError::new("--max-connections-per-user", reason));
        }
        let reserve = all.clamp(LEAST_TURNED_AWAY, MOST_TURNED_AWAY);
        Ok(Self(PermitLimits::new(all).per_peer(Some(each)).reserve(reserve)))
    }

    pub(crate) fn into_permits(self) -> PermitLimits {
        self.0
    }
}

/// How many connections are being turned away at a time, of which a user gets a quarter. That takes
/// no longer than to write the reason; beyond it they are closed without one.
const LEAST_TURNED_AWAY: u64 = 64;
const MOST_TURNED_AWAY: u64 = 1_024;
