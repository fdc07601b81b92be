use std::ffi::CString;
use std::fmt;
use std::io;

use nix::unistd::{Gid, Uid, User, getgrouplist};

/// The peer of a connection, as the kernel reports it.
///
/// The kernel records the credentials of the process that connects; nothing that is sent over the
/// connection changes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The id of the user.
    pub uid: u32,
    /// The name of the user, which is the key of limits: that of the system's user database, or
    /// `uid:N` if it has none. Case-sensitive. A peer with an empty name is never admitted.
    pub name: String,
    /// The groups: that of the process that connected, and all that the user is a member of.
    pub gids: Vec<u32>,
}

impl PeerCredentials {
    /// The user with this id, whose process has this group.
    ///
    /// It reads the system's user database, which may block.
    pub fn look_up(uid: u32, gid: u32) -> io::Result<Self> {
        let mut peer = Self { uid, name: format!("uid:{uid}"), gids: vec![gid] };
        if let Some(user) = User::from_uid(Uid::from_raw(uid))? {
            // A name from the database has no NUL in it.
            let name = CString::new(user.name.as_str())?;
            let groups = getgrouplist(&name, user.gid)?;
            peer.gids.extend(groups.into_iter().map(Gid::as_raw));
            peer.name = user.name;
        }
        Ok(peer)
    }
}

/// The name, escaped for logs: on one line, without control characters.
impl fmt::Display for PeerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name.escape_debug())
    }
}
