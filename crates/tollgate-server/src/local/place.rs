use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::geteuid;

/// Where the local socket is unless somebody says otherwise.
///
/// In the folder that the system gives each user for such files (`$XDG_RUNTIME_DIR`), else under `/run`
/// for root, and in a folder of the user's own under `/tmp` for others. The daemon and its callers both
/// look here, so that they find each other if they are the same user.
#[must_use]
pub fn default_socket() -> PathBuf {
    let uid = geteuid().as_raw();
    // Somebody who has become another user keeps the variables of whom they were.
    let is_own = |folder: &PathBuf| std::fs::metadata(folder).is_ok_and(|it| it.uid() == uid);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    place(uid, runtime.filter(|folder| folder.is_absolute()).filter(is_own))
}

fn place(uid: u32, runtime: Option<PathBuf>) -> PathBuf {
    let folder = match runtime {
        Some(runtime) => runtime.join("tollgate"),
        None if uid == 0 => "/run/tollgate".into(),
        None => PathBuf::from(format!("/tmp/tollgate-{uid}")),
    };
    folder.join("tollgate.sock")
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn the_default_is_in_a_folder_of_the_user() {
        let runtime = |text: &str| Some(text.into());
        let cases = [
            (7, runtime("/run/user/7"), "/run/user/7/tollgate/tollgate.sock"),
            (7, None, "/tmp/tollgate-7/tollgate.sock"),
            (0, runtime("/run/user/0"), "/run/user/0/tollgate/tollgate.sock"),
            (0, None, "/run/tollgate/tollgate.sock"),
        ];
        for (uid, runtime, expected) in cases {
            assert_eq!(place(uid, runtime.clone()).to_str(), Some(expected), "{uid} {runtime:?}");
        }
    }
}
