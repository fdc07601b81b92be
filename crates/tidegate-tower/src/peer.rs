use std::net::SocketAddr;

use http::Extensions;

/// The other end of the connection that a request arrived on.
///
/// Servers put it into the request's extensions: axum with
/// `into_make_service_with_connect_info::<Peer>()` (or `::<SocketAddr>()`), tonic and
/// `tidegate_listen::Http` by default, and others by hand:
///
/// ```
/// use tidegate_tower::Peer;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer("192.0.2.7:51234".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// The peer, if a server has provided it.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        if let Some(peer) = extensions.get::<Self>() {
            return Some(*peer);
        }
        #[cfg(feature = "axum")]
        {
            use axum::extract::ConnectInfo;

            if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
                return Some(Self(*address));
            }
            if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<Self>>() {
                return Some(*peer);
            }
        }
        #[cfg(feature = "listen")]
        if let Some(peer) = extensions.get::<tidegate_listen::PeerId>() {
            return peer.address().map(Self);
        }
        #[cfg(feature = "tonic")]
        {
            use tonic::transport::server::TcpConnectInfo;

            if let Some(info) = extensions.get::<TcpConnectInfo>() {
                return info.remote_addr().map(Self);
            }
        }
        None
    }
}

#[cfg(feature = "axum")]
mod in_axum {
    use axum::extract::connect_info::Connected;
    use axum::serve::IncomingStream;

    use super::Peer;

    impl Connected<IncomingStream<'_, tokio::net::TcpListener>> for Peer {
        fn connect_info(stream: IncomingStream<'_, tokio::net::TcpListener>) -> Self {
            Self(*stream.remote_addr())
        }
    }

    #[cfg(feature = "proxy-protocol")]
    impl Connected<IncomingStream<'_, crate::ProxyListener>> for Peer {
        fn connect_info(stream: IncomingStream<'_, crate::ProxyListener>) -> Self {
            Self(*stream.remote_addr())
        }
    }
}
