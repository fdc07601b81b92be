use std::future::Future;
use std::io::Write;
use std::path::PathBuf;

use tidegate::clock::Clock;
use tidegate_listen::{
    Connection, Connections, ListenSocket, PeerId, PeerStream, Protocol, Refusal,
};
use tidegate_proto::ipc::{self, Failure, Pong, Response};
use tokio::net::UnixListener;
use tracing::{debug, error, info, warn};

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
    limits: ConnectionLimits,
    protocol: Ipc<C>,
}

/// The protocol of the service's connections, for the accept loop of tidegate-listen.
#[derive(Debug)]
struct Ipc<C> {
    service: Service<C>,
    timeouts: Timeouts,
}

impl<C: Clock + Send + Sync + 'static> Server<C> {
    /// Listens. Clients can connect from now on, and are served once it [runs](Self::run).
    pub async fn bind(
        settings: &ServerSettings,
        limits: ConnectionLimits,
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
        Ok(Self { listener, file, limits, protocol: Ipc { service, timeouts: settings.timeouts } })
    }

    /// Serves until the future is ready, then shuts down: the socket's file is removed, so that no
    /// client can connect any more, and requests that have arrived get responses, also those of
    /// connections that are not accepted yet.
    pub async fn run(self, until: impl Future<Output = ()>) {
        let Self { listener, file, limits, protocol } = self;
        info!("Listening on {:?}", file.path());
        let permits = Connections::default().listener("unix", limits.into_permits());
        let close_timeout = protocol.timeouts.close;
        let stop = async {
            until.await;
            info!("Closing");
            // From now on no connection can be made, so that the queue of the listener ends.
            drop(file);
        };
        let socket = ListenSocket::Unix(listener);
        if !tidegate_listen::serve(socket, permits, protocol, stop, close_timeout).await {
            warn!("Dropping connections that did not end in time");
        }
    }
}

impl<C: Clock + Send + Sync + 'static> Protocol for Ipc<C> {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, mut shutdown, permit, .. } = connection;
        let PeerId::Process(process) = peer else { return };
        // No connection is closed to make room for another: time-outs end those that are idle.
        permit.begin_request();
        let peer = look_up(process.uid(), process.gid()).await;
        let closing = shutdown.wanted();
        match serve_connection(io, &peer, &self.service, self.timeouts, closing).await {
            ended @ (Ended::Left | Ended::Dismissed | Ended::Stopping) => {
                debug!("Connection of client {peer} ended: {ended:?}");
            }
            ended => info!("Connection of client {peer} ended: {ended:?}"),
        }
    }

    /// Sends the reason without waiting, as far as possible, and closes.
    async fn refuse(&self, connection: Connection, _: Refusal) {
        let response: Response<Pong> = Response::Error(Failure::new("Too many connections."));
        let PeerStream::Unix(stream) = connection.io else { return };
        if let (Ok(mut stream), Ok(bytes)) = (stream.into_std(), ipc::encode(&response)) {
            // The socket is non-blocking, and a new one has room. If not, the close must do.
            let _ = stream.write(&bytes);
        }
    }
}

async fn look_up(uid: u32, gid: u32) -> PeerCredentials {
    // The user database may be on another machine.
    match tokio::task::spawn_blocking(move || PeerCredentials::look_up(uid, gid)).await {
        Ok(Ok(peer)) => peer,
        failed => {
            // Without a name the client is not admitted.
            error!("Cannot look up the name of uid:{uid}: {failed:?}");
            PeerCredentials { uid, name: String::new(), gids: Vec::new() }
        }
    }
}
