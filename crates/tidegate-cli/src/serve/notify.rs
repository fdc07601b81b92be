//! Notifies systemd, or another supervisor with its protocol, of start and stop.
//!
//! With `Type=notify` `NOTIFY_SOCKET` names a datagram socket; a message is lines of `NAME=value`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the daemon serves.
pub(crate) fn ready() {
    notify("READY=1");
}

/// Reports that the daemon is stopping.
pub(crate) fn shutdown() {
    notify("STOPPING=1");
}

fn notify(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(socket.as_bytes(), message) {
        tracing::warn!(socket = %socket.display(), %error, "cannot notify the supervisor");
    }
}

/// Sends to a path, or with `@` in front to an abstract socket name.
fn send(socket: &[u8], message: &str) -> io::Result<()> {
    let address = match socket {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_reaches_path_and_abstract_sockets() {
        let folder = std::env::temp_dir().join(format!("tidegate-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let name = format!("tidegate-notify-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&at_name).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        send(format!("@{name}").as_bytes(), "READY=1").unwrap();
        for socket in [at_path, at_name] {
            let mut bytes = [0; 64];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
