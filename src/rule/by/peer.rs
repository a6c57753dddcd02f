//! The address of the peer, which servers insert into the extensions of requests.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use crate::telemetry;

/// Returns the address that axum or tonic has inserted, or another server as a plain
/// [`SocketAddr`].
pub(super) fn address(parts: &Parts) -> Option<IpAddr> {
    let plain = || parts.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    let peer = of_axum(parts).or_else(|| of_tonic(parts)).or_else(|| of_tonic_tls(parts));
    let peer = peer.or_else(plain);
    if peer.is_none() {
        telemetry::peer_missing();
    }
    peer
}

#[cfg(feature = "axum")]
fn of_axum(parts: &Parts) -> Option<IpAddr> {
    use axum::extract::ConnectInfo;

    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip())
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
