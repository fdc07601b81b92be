use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use nix::unistd::{Group, User, geteuid};

use super::PeerCredentials;

/// The access list of the socket.
///
/// It has the ids of users and groups, as the kernel does; names are looked up once, at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// All users.
    Everybody,
    /// These users, and members of these groups.
    Only {
        /// Ids of users.
        uids: BTreeSet<u32>,
        /// Ids of groups.
        gids: BTreeSet<u32>,
    },
}

impl Access {
    /// Only the user that this process runs as, and root.
    #[must_use]
    pub fn own_user_and_root() -> Self {
        Self::Only { uids: BTreeSet::from([0, geteuid().as_raw()]), gids: BTreeSet::new() }
    }

    /// The user that this process runs as, root, these users, and members of these groups.
    pub fn own_user_root_and(users: &[String], groups: &[String]) -> Result<Self, AccessError> {
        match (Self::own_user_and_root(), Self::only(users, groups)?) {
            (Self::Only { uids: mut own, .. }, Self::Only { uids, gids }) => {
                own.extend(uids);
                Ok(Self::Only { uids: own, gids })
            }
            _ => Ok(Self::Everybody),
        }
    }

    /// Only these users and members of these groups: names, `uid:N` or `gid:N`. A name that the
    /// system does not know is an error.
    pub fn only(users: &[String], groups: &[String]) -> Result<Self, AccessError> {
        let uids = users.iter().map(|user| {
            let found = || Ok(User::from_name(user)?.map(|user| user.uid.as_raw()));
            number(AccessEntry::User, user, "uid:", found)
        });
        let gids = groups.iter().map(|group| {
            let found = || Ok(Group::from_name(group)?.map(|group| group.gid.as_raw()));
            number(AccessEntry::Group, group, "gid:", found)
        });
        Ok(Self::Only {
            uids: uids.collect::<Result<_, _>>()?,
            gids: gids.collect::<Result<_, _>>()?,
        })
    }

    /// Whether the peer is admitted. One without a name never is.
    #[must_use]
    pub fn admits(&self, peer: &PeerCredentials) -> bool {
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

/// The id of a user or group, given by name or as a number.
fn number(
    named: AccessEntry,
    text: &str,
    prefix: &str,
    find: impl FnOnce() -> nix::Result<Option<u32>>,
) -> Result<u32, AccessError> {
    if let Some(digits) = text.strip_prefix(prefix) {
        let wrong = || AccessError::new(named, format!("{text:?} is not {prefix} and a number"));
        return digits.parse().map_err(|_| wrong());
    }
    match find() {
        Ok(Some(number)) => Ok(number),
        Ok(None) => {
            let reason = format!("the system does not know {text:?}; write a name or {prefix}N");
            Err(AccessError::new(named, reason))
        }
        Err(error) => Err(AccessError::new(named, format!("cannot look up {text:?}: {error}"))),
    }
}

/// The error of a listed user or group that cannot be found.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessError {
    named: AccessEntry,
    reason: String,
}

/// The kind of an entry in the access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessEntry {
    /// A user.
    User,
    /// A group.
    Group,
}

impl AccessError {
    fn new(named: AccessEntry, reason: String) -> Self {
        Self { named, reason }
    }

    /// Which of the lists it is in.
    #[must_use]
    pub const fn entry(&self) -> AccessEntry {
        self.named
    }

    /// What is wrong, without the name of the list.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self.named {
            AccessEntry::User => "unix_users",
            AccessEntry::Group => "unix_groups",
        };
        write!(f, "{list}: {}", self.reason)
    }
}

tidegate::debug_as_displayed!(AccessError);

impl Error for AccessError {}
