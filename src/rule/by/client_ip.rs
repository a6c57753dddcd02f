//! By the client's address, also behind proxies.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use http::{HeaderName, header::FORWARDED, request::Parts};

use super::{address, cidr::Cidrs, forwarded, peer};
use crate::{
    error::Error,
    key::{Identity, Key},
    rule::RequestFn,
};

/// The client's address, found as `how` says. Without one a request is [`Identity::Unknown`].
///
/// ```
/// use tollgate::by::{self, ClientIp};
///
/// // Behind a load balancer in 10.0.0.0/8 that appends to X-Forwarded-For:
/// let client = by::client_ip(ClientIp::x_forwarded_for(["10.0.0.0/8"])?);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn client_ip(how: ClientIp) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    let how = Arc::new(how);
    move |parts: &Parts| Identity::from(how.find(parts).map(Key::from))
}

/// The address at the other end of the connection: [`client_ip`] with [`ClientIp::peer`].
///
/// Behind a proxy that is the proxy: then everybody shares one key.
pub fn peer_ip() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    client_ip(ClientIp::peer())
}

/// How a client's address is found.
///
/// Every request comes from a peer, the other end of its connection. Only a peer that is one of
/// your own proxies is asked for whom it speaks: the headers of anybody else are ignored, because
/// anybody can write them. One kind of header is read, the one you choose.
///
/// | of the header | the client is |
/// |---|---|
/// | the peer is not a trusted proxy | the peer |
/// | a list: walked from its end past trusted proxies | the first address that is not trusted |
/// | a list of trusted proxies only | the first of the list |
/// | `unknown`, an obfuscated name or garbage on the way | the last proxy before it |
/// | missing; or of a header of one value: more than one, or garbage | the peer |
///
/// An IPv4-mapped IPv6 address is IPv4. Of an IPv6 address the first 64 bits count, because one
/// subscriber has them all; see [`ipv6_prefix`](Self::ipv6_prefix).
///
/// # Where the peer comes from
///
/// | server | |
/// |---|---|
/// | axum | `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`, feature `axum` |
/// | tonic | nothing to do, feature `tonic`, with TLS `tonic-tls` |
/// | another | a `SocketAddr` in the request's extensions, or [`peer_from`](Self::peer_from) |
///
/// Without a peer there is no client: such requests share one key, and the first one logs a
/// warning that says what to do (feature `tracing`, on by default).
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

impl ClientIp {
    /// The peer itself, whatever headers say.
    #[must_use]
    pub fn peer() -> Self {
        Self { header: None, trusted: Cidrs::default(), ipv6_mask: !0 << 64, peer: None }
    }

    /// From `X-Forwarded-For`, as the given proxies have written it: addresses or ranges such as
    /// `10.0.0.0/8` and `fd00::/8`. With an empty list nobody is trusted.
    ///
    /// # Errors
    ///
    /// If one is neither an address nor the first address of a range.
    pub fn x_forwarded_for(
        proxies: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        Self::behind(Header::XForwardedFor, proxies)
    }

    /// From `Forwarded` (RFC 7239), as the given proxies have written it.
    ///
    /// # Errors
    ///
    /// As [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn forwarded(proxies: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        Self::behind(Header::Forwarded, proxies)
    }

    /// From a header of one address, such as `cf-connecting-ip` or `x-real-ip`. The proxies must
    /// be that provider's, and must always set it.
    ///
    /// # Errors
    ///
    /// As [`x_forwarded_for`](Self::x_forwarded_for), or if `name` is not a header name.
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

    /// How many leading bits of an IPv6 address count, 1 to 128; the default is 64. Providers that
    /// hand out more to each subscriber call for 56 or 48.
    ///
    /// # Errors
    ///
    /// If it is out of bounds.
    pub fn ipv6_prefix(mut self, bits: u32) -> Result<Self, Error> {
        if !(1..=128).contains(&bits) {
            return Err(Error::invalid("IPv6 prefix", bits, "1 to 128 bits"));
        }
        self.ipv6_mask = u128::MAX << (128 - bits);
        Ok(self)
    }

    /// Where the peer's address is, for servers that keep it elsewhere.
    #[must_use]
    pub fn peer_from<F>(mut self, peer: F) -> Self
    where
        F: Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// The client's address in canonical form, IPv6 with nothing after its prefix.
    #[must_use]
    pub fn find(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = self.peer.as_ref().map_or_else(|| peer::address(parts), |peer| peer(parts))?;
        Some(self.mask(self.client_of(parts, peer.to_canonical())))
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

    /// From the nearest hop outward: the first that is not trusted, or the last that is known.
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

    fn mask(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & self.ipv6_mask)),
            v4 => v4,
        }
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
