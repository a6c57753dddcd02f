//! The roles of fields: which names stand for the time, the address and the other parts of a request.

use std::collections::HashMap;

/// The part of a request that a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Time,
    Ip,
    /// A request line: method, target and version.
    Request,
    Method,
    Target,
    Host,
    Status,
    Bytes,
}

/// The place of a name among the names of its role. A line that has several of them is read by the lowest.
pub(super) type Rank = u8;

/// The rank of a name that says exactly what the client has sent, or that the options give.
pub(super) const EXACT: Rank = 0;

/// The names of each role in lower case with `_` in place of `-`, the best first.
const NAMES: &[(Role, &[&str])] = &[
    (
        Role::Time,
        &[
            "request_creation_time", // ALB, whose `time` is the end of the response
            "startutc",              // Traefik
            "start_time",            // Envoy
            "msec",                  // nginx, with milliseconds
            "@timestamp",
            "timestamp",
            "ts", // Caddy
            "time_iso8601",
            "time_local",
            "datetime",
            "date_time",
            "time",
            "startlocal",
            "date",
            "at",
        ],
    ),
    (
        Role::Ip,
        &[
            "client_ip",
            "request.client_ip", // Caddy, behind trusted proxies
            "clientip",
            "client.ip",
            "client_addr",
            "client", // ALB
            "remote_addr",
            "remote_ip",
            "request.remote_ip",
            "remote_address",
            "downstream_remote_address", // Envoy
            "downstream_direct_remote_address",
            "clienthost", // Traefik
            "httprequest.remoteip",
            "source.ip",
            "source_ip",
            "ip",
            "remote_host",
            "request.remote_addr",
            "http_x_forwarded_for",
            "x_forwarded_for",
        ],
    ),
    (Role::Request, &["request", "request_line", "http_request"]),
    (
        Role::Method,
        &[
            "method",
            "request_method",
            "request.method",
            "http_method",
            "http.request.method",
            "requestmethod",
            "httprequest.requestmethod",
            "verb",
            "span.method",
        ],
    ),
    (
        Role::Target,
        &[
            "request_uri",
            "uri",
            "request.uri",
            "x_envoy_original_path",
            "url",
            "request_url",
            "path",
            "request_path",
            "requestpath",
            "request.path",
            "url.original",
            "url.path",
            "httprequest.requesturl",
            "span.uri",
        ],
    ),
    (
        Role::Host,
        &[
            "http_host",
            "authority",
            ":authority",
            "request.host",
            "request_host",
            "requesthost",
            "host",
            "vhost",
            "url.domain",
            "domain_name",
            "server_name",
        ],
    ),
    (
        Role::Status,
        &[
            "status",
            "status_code",
            "response_code",
            "elb_status_code",
            "downstreamstatus",
            "response_status",
            "http.response.status_code",
            "httprequest.status",
            "code",
        ],
    ),
    (
        Role::Bytes,
        &[
            "body_bytes_sent",
            "bytes_sent",
            "sent_bytes",
            "size",
            "bytes",
            "response_size",
            "downstreamcontentsize",
            "http.response.body.bytes",
            "httprequest.responsesize",
        ],
    ),
];

/// The roles by name.
#[derive(Debug)]
pub(super) struct Roles(HashMap<String, (Role, Rank)>);

impl Role {
    /// The number of roles.
    pub(super) const COUNT: usize = Self::Bytes as usize + 1;
}

impl Roles {
    /// Returns the common names, and in place of them the names that are given for a role.
    pub(super) fn new<'a>(given: impl Fn(Role) -> Option<&'a str>) -> Self {
        let mut by_name = HashMap::new();
        for (role, names) in NAMES {
            if given(*role).is_none() {
                let ranks = 0..;
                by_name.extend(
                    names.iter().zip(ranks).map(|(name, rank)| ((*name).to_owned(), (*role, rank))),
                );
            }
        }
        // A name that is given has no other role.
        for (role, _) in NAMES {
            if let Some(name) = given(*role) {
                by_name.insert(normal(name), (*role, EXACT));
            }
        }
        Self(by_name)
    }

    /// Returns the role of a name, and its rank.
    pub(super) fn of(&self, name: &str) -> Option<(Role, Rank)> {
        self.0.get(&normal(name)).copied()
    }
}

fn normal(name: &str) -> String {
    let bytes = name.trim().bytes().map(normal_byte).collect();
    // Only ASCII letters and signs were replaced.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns a byte of a name as names are compared: lower case, and `_` in place of `-` and of a space.
pub(super) fn normal_byte(byte: u8) -> u8 {
    match byte {
        b'-' | b' ' => b'_',
        _ => byte.to_ascii_lowercase(),
    }
}
