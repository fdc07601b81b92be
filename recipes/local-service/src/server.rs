use std::future::Future;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Clock;
use tidegate_proto::ipc::{self, Failure, Pong, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::connection_limits::Permit;
use crate::{
    BindError, ConnectionLimits, Ended, PeerCredentials, Service, SocketFile, Timeouts,
    serve_connection,
};

/// The socket and time-outs of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The path of the socket.
    pub socket: PathBuf,
    /// The mode of its file: which users may connect. The service authorises them separately.
    pub mode: u32,
    /// The time-outs of connections.
    pub timeouts: Timeouts,
}

/// A socket, and the service behind it.
#[derive(Debug)]
pub struct Server<C> {
    listener: UnixListener,
    file: SocketFile,
    connections: Connections<C>,
}

/// The connections of a server, and their slots.
#[derive(Debug)]
struct Connections<C> {
    limits: ConnectionLimits<C>,
    tasks: JoinSet<()>,
    shared: Arc<ServerInner<C>>,
}

/// The state that all connections share.
#[derive(Debug)]
struct ServerInner<C> {
    service: Service<C>,
    timeouts: Timeouts,
    closing: watch::Sender<bool>,
}

impl<C: Clock + Send + Sync + 'static> Server<C> {
    /// Listens. Clients can connect from now on, and are served once it [runs](Self::run).
    pub async fn bind(
        settings: &ServerSettings,
        limits: ConnectionLimits<C>,
        service: Service<C>,
    ) -> Result<Self, BindError> {
        let (listener, file) = SocketFile::bind(&settings.socket, settings.mode).await?;
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| UnixListener::from_std(listener))
            .map_err(|error| {
                let path = settings.socket.clone();
                BindError::Failed { step: "listen at", path, error }
            })?;
        let (closing, _) = watch::channel(false);
        let shared = Arc::new(ServerInner { service, timeouts: settings.timeouts, closing });
        let connections = Connections { limits, tasks: JoinSet::new(), shared };
        Ok(Self { listener, file, connections })
    }

    /// Serves until the future is ready, then shuts down: the socket's file is removed, so that no
    /// client can connect any more, and requests that have arrived get responses, also those of
    /// connections that are not accepted yet.
    pub async fn run(mut self, until: impl Future<Output = ()>) {
        info!("Listening on {:?}", self.file.path());
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                biased;
                () = &mut until => break,
                Some(ended) = self.connections.tasks.join_next() => note(ended),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.connections.admit(stream).await,
                    // Out of file descriptors, for example. That is temporary and no reason to
                    // stop.
                    Err(error) => {
                        warn!("Cannot accept a connection: {error}");
                        tokio::select! {
                            () = &mut until => break,
                            () = sleep(ACCEPT_AGAIN_AFTER) => {}
                        }
                    }
                },
            }
        }
        self.close().await;
    }

    async fn close(self) {
        info!("Closing");
        let Self { listener, file, mut connections } = self;
        let close_timeout = connections.shared.timeouts.close;
        // From now on no connection can be made, so that the queue of the listener ends.
        drop(file);
        connections.shared.closing.send_replace(true);
        let all_ended = async {
            match listener.into_std() {
                Ok(listener) => connections.admit_queued(&listener).await,
                Err(error) => warn!("Cannot accept the connections that wait: {error}"),
            }
            while let Some(ended) = connections.tasks.join_next().await {
                note(ended);
            }
        };
        if timeout(close_timeout, all_ended).await.is_err() {
            warn!("Dropping connections that did not end in time");
        }
    }
}

impl<C: Clock + Send + Sync + 'static> Connections<C> {
    /// Admits the connections that the system has made and that were not accepted yet.
    ///
    /// The listener is called without the runtime, which may not have noticed the last ones.
    async fn admit_queued(&mut self, listener: &std::os::unix::net::UnixListener) {
        loop {
            let stream = listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream)
            });
            match stream {
                Ok(stream) => self.admit(stream).await,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of file descriptors, for example: connections that end free some.
                    warn!("Cannot accept a connection: {error}");
                    match self.tasks.join_next().await {
                        Some(ended) => note(ended),
                        None => return,
                    }
                }
            }
        }
    }

    /// Spawns the task of a connection, if its user has a free slot.
    async fn admit(&mut self, stream: UnixStream) {
        let credentials = match stream.peer_cred() {
            Ok(credentials) => credentials,
            Err(error) => return warn!("Connection closed: its peer is unknown: {error}"),
        };
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let Some(permit) = self.limits.acquire(uid).await else {
            warn!("Too many connections of client: uid:{uid}");
            return turn_away(stream);
        };
        self.tasks.spawn(serve(stream, (uid, gid), permit, Arc::clone(&self.shared)));
    }
}

/// The task of a connection. Its slot is released when this ends.
async fn serve<C: Clock + Send + Sync + 'static>(
    stream: UnixStream,
    (uid, gid): (u32, u32),
    _permit: Permit<C>,
    shared: Arc<ServerInner<C>>,
) {
    // The user database may be on another machine.
    let peer = match tokio::task::spawn_blocking(move || PeerCredentials::look_up(uid, gid)).await {
        Ok(Ok(peer)) => peer,
        failed => {
            // Without a name the client is not admitted.
            error!("Cannot look up the name of uid:{uid}: {failed:?}");
            PeerCredentials { uid, name: String::new(), gids: Vec::new() }
        }
    };
    let closing = shared.closing.subscribe();
    match serve_connection(stream, &peer, &shared.service, shared.timeouts, closing).await {
        ended @ (Ended::Left | Ended::Dismissed | Ended::Stopping) => {
            debug!("Connection of client {peer} ended: {ended:?}");
        }
        ended => info!("Connection of client {peer} ended: {ended:?}"),
    }
}

/// Sends the reason without waiting, as far as possible, and closes.
fn turn_away(stream: UnixStream) {
    let response: Response<Pong> = Response::Error(Failure::new("Too many connections."));
    if let (Ok(mut stream), Ok(bytes)) = (stream.into_std(), ipc::encode(&response)) {
        // The socket is non-blocking, and a new one has room. If not, the close must do.
        let _ = stream.write(&bytes);
    }
}

fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!("A connection's task failed: {error}");
    }
}

/// Long enough for other connections to end, short enough to go unnoticed.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
