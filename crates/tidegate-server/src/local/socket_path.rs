use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::geteuid;

/// The default path of the local socket.
///
/// It is in the runtime folder of the service (`$RUNTIME_DIRECTORY`) or of the user
/// (`$XDG_RUNTIME_DIR`), else under `/run` for root, and in a folder of the user under `/tmp` for
/// others. The daemon and its clients use the same function, so they find each other if they run as
/// the same user; root finds a service whose folder is `/run/tidegate`.
#[must_use]
pub fn default_socket() -> PathBuf {
    let uid = geteuid().as_raw();
    // After `su` or `sudo` the variables may be those of another user.
    let is_own = |folder: &PathBuf| std::fs::metadata(folder).is_ok_and(|it| it.uid() == uid);
    let folder = |name: &str| {
        let folder = std::env::var_os(name).map(PathBuf::from);
        folder.filter(|folder| folder.is_absolute()).filter(is_own)
    };
    socket_path(uid, folder("RUNTIME_DIRECTORY"), folder("XDG_RUNTIME_DIR"))
}

fn socket_path(uid: u32, of_service: Option<PathBuf>, of_user: Option<PathBuf>) -> PathBuf {
    let folder = match (of_service, of_user) {
        (Some(folder), _) => folder,
        (None, Some(folder)) => folder.join("tidegate"),
        (None, None) if uid == 0 => "/run/tidegate".into(),
        (None, None) => PathBuf::from(format!("/tmp/tidegate-{uid}")),
    };
    folder.join("tidegate.sock")
}

#[cfg(test)]
mod tests {
    use super::socket_path;

    #[test]
    fn the_default_path_is_in_a_folder_of_the_user() {
        let folder = |text: &str| Some(text.into());
        let cases = [
            (7, None, folder("/run/user/7"), "/run/user/7/tidegate/tidegate.sock"),
            (7, None, None, "/tmp/tidegate-7/tidegate.sock"),
            (0, None, folder("/run/user/0"), "/run/user/0/tidegate/tidegate.sock"),
            (0, None, None, "/run/tidegate/tidegate.sock"),
            (7, folder("/run/tidegate"), folder("/run/user/7"), "/run/tidegate/tidegate.sock"),
        ];
        for (uid, of_service, of_user, expected) in cases {
            assert_eq!(socket_path(uid, of_service, of_user).to_str(), Some(expected), "{uid}");
        }
    }
}
