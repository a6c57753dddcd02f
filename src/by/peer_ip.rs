//! By the address at the other end of the connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use http::request::Parts;

use crate::key::{Identity, Key};

/// The address at the other end of the connection, as axum's `ConnectInfo<SocketAddr>` has it. An
/// IPv4-mapped IPv6 address is IPv4; of IPv6 the first 64 bits count, because one subscriber has
/// them all.
///
/// Behind a proxy that is the proxy: then everybody shares one key.
///
/// Needs `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`; without
/// it requests are [`Identity::Unknown`].
pub fn peer_ip() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Identity::from(peer.map(|ConnectInfo(address)| Key::from(subscriber(address.ip()))))
    }
}

fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}
