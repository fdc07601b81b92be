use std::collections::BTreeSet;

use nix::unistd::{Group, User, geteuid};

use crate::{Peer, SettingError};

/// Whose requests are answered.
///
/// It goes by numbers of users and groups, as the kernel does; names are looked up once, at the
/// start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody's.
    Everybody,
    /// Those of these users, and of members of these groups.
    Only {
        /// Numbers of users.
        uids: BTreeSet<u32>,
        /// Numbers of groups.
        gids: BTreeSet<u32>,
    },
}

impl Access {
    /// Only the user that this process runs as, and root.
    #[must_use]
    pub fn own_user_and_root() -> Self {
        Self::Only { uids: BTreeSet::from([0, geteuid().as_raw()]), gids: BTreeSet::new() }
    }

    /// Only these users and members of these groups: names, `uid:N` or `gid:N`. A name that the
    /// system does not know is an error.
    pub fn only(users: &[String], groups: &[String]) -> Result<Self, SettingError> {
        let uids = users.iter().map(|user| {
            let found = || Ok(User::from_name(user)?.map(|user| user.uid.as_raw()));
            number("--allow-user", user, "uid:", found)
        });
        let gids = groups.iter().map(|group| {
            let found = || Ok(Group::from_name(group)?.map(|group| group.gid.as_raw()));
            number("--allow-group", group, "gid:", found)
        });
        Ok(Self::Only {
            uids: uids.collect::<Result<_, _>>()?,
            gids: gids.collect::<Result<_, _>>()?,
        })
    }

    /// Whether the peer's requests are answered. One without a name never is.
    #[must_use]
    pub fn admits(&self, peer: &Peer) -> bool {
        if peer.name.is_empty() {
            return false;
        }
        match self {
            Self::Everybody => true,
            Self::Only { uids, gids } => {
                uids.contains(&peer.uid) || peer.gids.iter().any(|gid| gids.contains(gid))
            }
        }
    }
}

/// The number of a user or group that is named or given.
fn number(
    setting: &'static str,
    text: &str,
    prefix: &str,
    find: impl FnOnce() -> nix::Result<Option<u32>>,
) -> Result<u32, SettingError> {
    if let Some(digits) = text.strip_prefix(prefix) {
        let wrong = || SettingError::new(setting, format!("{text:?} is not {prefix} and a number"));
        return digits.parse().map_err(|_| wrong());
    }
    match find() {
        Ok(Some(number)) => Ok(number),
        Ok(None) => {
            let reason = format!("the system does not know {text:?}; write a name or {prefix}N");
            Err(SettingError::new(setting, reason))
        }
        Err(error) => Err(SettingError::new(setting, format!("cannot look up {text:?}: {error}"))),
    }
}
