//! The client's address as the key, also behind proxies.

use std::{fmt, net::IpAddr, sync::Arc};

use http::{HeaderName, header::FORWARDED, request::Parts};

use super::{
    address::{self, Cidrs},
    forwarded, peer,
};
use crate::{
    error::Error,
    key::{Identity, Key, SUBSCRIBER_MASK, charged_address, charged_key},
    rule::RequestFn,
    telemetry::{self, FirstRequests},
};

/// Charges the address of the client, which the [`ClientIp`] `source` finds. A request without a peer
/// address is [`Identity::NoPeer`], so the layer rejects it with status 500.
///
/// # Examples
///
/// ```
/// use plimsoll::by::{self, ClientIp};
///
/// // Behind a load balancer in 10.0.0.0/8 that appends to X-Forwarded-For:
/// let client = by::client_ip(ClientIp::x_forwarded_for(["10.0.0.0/8"])?);
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub fn client_ip(source: ClientIp) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let shared = Arc::new((source, FirstRequests::default()));
    move |parts: &Parts| {
        let (source, requests) = &*shared;
        if requests.count().is_some() {
            source.find_ignored_header(parts, requests);
        }
        match source.find(parts) {
            Some(address) => Identity::Known(charged_key(address)),
            // A closure of the application that finds no peer is no mistake.
            None if source.peer.is_some() => Identity::Unknown,
            None => Identity::NoPeer,
        }
    }
}

/// Charges the address at the other end of the connection. This is [`client_ip`] with
/// [`ClientIp::peer`].
///
/// The server must [pass on this address](ClientIp#the-address-of-the-peer). Otherwise the layer
/// rejects the request with status 500.
///
/// Behind a proxy, this is the address of the proxy, so all clients share one [`Key`]. Use
/// [`client_ip`] with another [`ClientIp`] there. If one of the first 1000 requests has a header
/// that proxies write, a warning is logged once (feature `tracing`, on by default).
pub fn peer_ip() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    client_ip(ClientIp::peer())
}

/// A way to find the address of the client.
///
/// The peer of a request is the other end of its connection. If the peer is a trusted proxy, a
/// header of the request names the client: [`X-Forwarded-For`](Self::x_forwarded_for),
/// [`Forwarded`](Self::forwarded), or [another one](Self::header). The headers of any other peer
/// are ignored, because every client can write them.
///
/// A header with a list of addresses is read from its end, because each proxy appends the address
/// from which it received the request. Empty elements of the list are ignored.
///
/// | case | the client is |
/// |---|---|
/// | the peer is not a trusted proxy | the peer |
/// | an address of the list is not a trusted proxy | the first such address that is read |
/// | all addresses of the list are trusted proxies | the last address that is read |
/// | before such an address, `unknown`, an obfuscated name or garbage is read | the address read before it, or else the peer |
/// | the header is missing | the peer |
/// | a header of one address with more than one value, or with garbage | the peer |
///
/// The first 64 bits of an IPv6 address are charged, because one subscriber usually has all
/// addresses with that prefix. See [`ipv6_prefix`](Self::ipv6_prefix).
///
/// # IPv6 addresses that contain an IPv4 address
///
/// These are charged as the IPv4 address inside, whatever the prefix:
///
/// | form | range | defined in |
/// |---|---|---|
/// | IPv4-mapped | `::ffff:0:0/96` | RFC 4291, section 2.5.5.2 |
/// | IPv4-compatible | `::/96` except `::` and `::1` | RFC 4291, section 2.5.5.1 |
/// | NAT64 | `64:ff9b::/96` | RFC 6052, section 2.1 |
/// | 6to4: the IPv4 address owns a whole /48 | `2002::/16` | RFC 3056, section 2 |
/// | Teredo: all clients of a Teredo server share a /64 | `2001::/32` | RFC 4380, section 4 |
///
/// Behind a translator with a prefix of its own (`64:ff9b:1::/48`, RFC 8215, or a prefix of the
/// operator), set [`peer_from`](Self::peer_from) to a closure that returns the IPv4 address inside.
///
/// Only an IPv4-mapped address counts as its IPv4 address when it is compared with the trusted
/// proxies. A proxy at `10.0.0.1` is not trusted as `64:ff9b::a00:1`.
///
/// # The address of the peer
///
/// | server | to make the address of the peer available |
/// |---|---|
/// | axum | `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`, feature `axum` |
/// | tonic | enable the feature `tonic`, or `tonic-tls` for TLS |
/// | another | insert a [`SocketAddr`](std::net::SocketAddr) into the request's extensions, or set [`peer_from`](Self::peer_from) |
///
/// In tests of an axum application without a server, add the layer
/// `axum::extract::connect_info::MockConnectInfo(SocketAddr::from(([127, 0, 0, 1], 4711)))`.
///
/// A request without a peer is [`Identity::NoPeer`]: the layer rejects it with status 500, and the
/// response says what to do. To charge such requests to one shared key, name the key:
/// `by::peer_ip().or(by::anonymous())`. If a closure of [`peer_from`](Self::peer_from) returns `None`,
/// the request is [`Identity::Unknown`].
///
/// # Examples
///
/// The proxies in 10.0.0.0/8 write `Forwarded`, and each subscriber with IPv6 has a /56:
///
/// ```
/// use plimsoll::by::{self, ClientIp};
///
/// let client = by::client_ip(ClientIp::forwarded(["10.0.0.0/8"])?.ipv6_prefix(56)?);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct ClientIp {
    header: Option<Header>,
    trusted: Cidrs,
    ipv6_mask: u128,
    peer: Option<RequestFn<Option<IpAddr>>>,
}

#[derive(Debug, Clone)]
enum Header {
    /// A list of addresses.
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
    /// One address.
    Single(HeaderName),
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

impl ClientIp {
    /// Creates a source that takes the address of the peer and reads no header, as [`peer_ip`]
    /// does.
    #[must_use]
    pub fn peer() -> Self {
        Self { header: None, trusted: Cidrs::default(), ipv6_mask: SUBSCRIBER_MASK, peer: None }
    }

    /// Creates a source that reads `X-Forwarded-For` if the peer is one of `proxies`. They are
    /// addresses, or ranges such as `10.0.0.0/8` and `fd00::/8`. With an empty list, no header is
    /// read.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Invalid`](crate::error::ErrorKind::Invalid) if an item is neither an
    /// address nor the first address of a range.
    pub fn x_forwarded_for(
        proxies: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        Self::behind(Header::XForwardedFor, proxies)
    }

    /// Creates a source that reads `Forwarded` (RFC 7239) if the peer is one of `proxies`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn forwarded(proxies: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        Self::behind(Header::Forwarded, proxies)
    }

    /// Creates a source that reads a header of one address, such as `cf-connecting-ip` or
    /// `x-real-ip`, if the peer is one of `proxies`. All of these proxies must set the header in
    /// every request. Otherwise clients can write it.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`x_forwarded_for`](Self::x_forwarded_for), or an error if `name`
    /// is not a header name.
    pub fn header(
        name: &str,
        proxies: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| Error::invalid("header name", name, "a token"))?;
        Self::behind(Header::Single(parsed), proxies)
    }

    fn behind(
        header: Header,
        proxies: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        Ok(Self { header: Some(header), trusted: Cidrs::parse(proxies)?, ..Self::peer() })
    }

    /// Sets the number of leading bits of an IPv6 address that are charged, 1 to 128. The default
    /// is 64. Use 56 or 48 for providers that assign larger prefixes to each subscriber.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Invalid`](crate::error::ErrorKind::Invalid) if `bits` is not in 1 to
    /// 128.
    pub fn ipv6_prefix(mut self, bits: u32) -> Result<Self, Error> {
        if !(1..=128).contains(&bits) {
            return Err(Error::invalid("IPv6 prefix", bits, "1 to 128 bits"));
        }
        self.ipv6_mask = u128::MAX << (128 - bits);
        Ok(self)
    }

    /// Sets a closure that finds the address of the peer in the head of a request ([`Parts`]), for
    /// servers that keep it in another extension.
    #[must_use]
    pub fn peer_from<F>(mut self, peer: F) -> Self
    where
        F: Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// Returns the address that is charged, or `None` without a peer. The IPv4 address stands for an
    /// IPv6 address that contains it. The bits of another IPv6 address after the
    /// [prefix](Self::ipv6_prefix) are 0.
    #[must_use]
    pub fn find(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = self.peer.as_ref().map_or_else(|| peer::address(parts), |peer| peer(parts))?;
        Some(charged_address(self.client_of(parts, peer.to_canonical()), self.ipv6_mask))
    }

    /// Returns the [`Key`] that is charged for a client with this address. An operator who blocks or
    /// resets a client by its address needs it if the [`ipv6_prefix`](Self::ipv6_prefix) is not 64.
    /// Otherwise, it is `Key::from(address)`.
    ///
    /// ```
    /// use std::{net::IpAddr, time::Duration};
    /// use plimsoll::{Limiter, Policy, Quota, Rule, by::{self, ClientIp}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::in_memory();
    /// let clients = ClientIp::peer().ipv6_prefix(56)?;
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    /// let rule = Rule::new(api.clone(), by::client_ip(clients.clone()));
    ///
    /// let address: IpAddr = "2001:db8::7".parse()?;
    /// limiter.block(api.charge(clients.key(address), 1), Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self, client: impl Into<IpAddr>) -> Key {
        charged_key(charged_address(client.into(), self.ipv6_mask))
    }

    fn client_of(&self, parts: &Parts, peer: IpAddr) -> IpAddr {
        let Some(header) = self.header.as_ref().filter(|_| self.trusted.contain(peer)) else {
            return peer;
        };
        match header {
            Header::XForwardedFor => {
                let hops = forwarded::elements(parts, &X_FORWARDED_FOR).map(address::parse);
                self.walk(peer, hops)
            }
            Header::Forwarded => {
                let hops = forwarded::elements(parts, &FORWARDED).map(forwarded::node);
                self.walk(peer, hops)
            }
            Header::Single(name) => {
                let mut values = parts.headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(value), None) => {
                        address::parse(value.as_bytes().trim_ascii()).unwrap_or(peer)
                    }
                    _ => peer,
                }
            }
        }
    }

    /// Looks in the first requests for the header of a proxy, if the source reads no header and takes the peer address.
    fn find_ignored_header(&self, parts: &Parts, requests: &FirstRequests) {
        if self.header.is_some() || self.peer.is_some() {
            return requests.end();
        }
        let headers = [X_FORWARDED_FOR, FORWARDED, X_REAL_IP];
        if let Some(header) = headers.iter().find(|name| parts.headers.contains_key(*name)) {
            requests.end();
            telemetry::forwarded_ignored(header.as_str());
        }
    }

    /// Returns the first hop that is not trusted, from the nearest outward, or else the last one
    /// that parses.
    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut last = peer;
        for hop in hops {
            let Some(hop) = hop else { break };
            last = hop;
            if !self.trusted.contain(hop) {
                break;
            }
        }
        last
    }
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("header", &self.header)
            .field("trusted", &self.trusted)
            .field("ipv6_prefix", &self.ipv6_mask.leading_ones())
            .finish_non_exhaustive()
    }
}
