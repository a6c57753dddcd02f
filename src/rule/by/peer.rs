//! The address of the peer, which servers insert into the extensions of requests.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

/// The error of a request without a peer address, if the address is to be charged. A rejection has this
/// text in JSON and in the metadata of gRPC, so it has no characters that these escape.
pub(crate) const MISSING_PEER: &str = "No peer address reaches the rate limit. Serve axum with \
    app.into_make_service_with_connect_info::<SocketAddr>(), in tests add the layer MockConnectInfo, \
    and under tonic enable the feature tonic of plimsoll. To charge all clients to one key, add \
    .or(by::anonymous()) to the extractor.";

/// Returns the address that axum or tonic has inserted, or another server as a plain
/// [`SocketAddr`].
pub(super) fn address(parts: &Parts) -> Option<IpAddr> {
    let peer = of_axum(parts).or_else(|| of_tonic(parts)).or_else(|| of_tonic_tls(parts));
    peer.or_else(|| parts.extensions.get::<SocketAddr>().map(SocketAddr::ip))
}

#[cfg(feature = "axum")]
fn of_axum(parts: &Parts) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let served =
        parts.extensions.get().map(|ConnectInfo(address): &ConnectInfo<SocketAddr>| address);
    let address = served.or_else(|| parts.extensions.get().map(|MockConnectInfo(address)| address));
    address.map(SocketAddr::ip)
}

#[cfg(not(feature = "axum"))]
fn of_axum(_: &Parts) -> Option<IpAddr> {
    None
}

#[cfg(feature = "tonic")]
fn of_tonic(parts: &Parts) -> Option<IpAddr> {
    use tonic::transport::server::TcpConnectInfo;

    Some(parts.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip())
}

#[cfg(not(feature = "tonic"))]
fn of_tonic(_: &Parts) -> Option<IpAddr> {
    None
}

#[cfg(feature = "tonic-tls")]
fn of_tonic_tls(parts: &Parts) -> Option<IpAddr> {
    use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};

    let info = parts.extensions.get::<TlsConnectInfo<TcpConnectInfo>>()?;
    Some(info.get_ref().remote_addr()?.ip())
}

#[cfg(not(feature = "tonic-tls"))]
fn of_tonic_tls(_: &Parts) -> Option<IpAddr> {
    None
}
