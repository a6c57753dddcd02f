//! One request of a log.

use std::{net::IpAddr, ops::Range};

/// One request of a log. All texts are slices of buffers that the next request of the same slot reuses.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    at: u64,
    text: String,
    status: Option<u16>,
    bytes: Option<u64>,
    ip: Option<IpAddr>,
    target: Option<Range<u32>>,
}

impl Entry {
    /// Returns the time of the request, in microseconds since the Unix epoch.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the method, such as `GET`.
    pub(crate) fn method(&self) -> Option<&str> {
        None
    }

    /// Returns the path without the query, as the client has sent it.
    pub(crate) fn path(&self) -> Option<&str> {
        None
    }

    /// Returns the path with the query.
    pub(crate) fn target(&self) -> Option<&str> {
        None
    }

    /// Returns the host without its port.
    pub(crate) fn host(&self) -> Option<&str> {
        None
    }

    /// Returns the status of the response.
    pub(crate) fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns the bytes that were sent.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Returns the address of the client.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Returns a field by its name in the log: a column of CSV, `user` or `request.tls.proto` of JSON. Case, and `-`
    /// in place of `_`, make no difference. An empty field, or `-`, is missing.
    pub(crate) fn field(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns the value of a header of the request, by the names that servers give to headers in their logs:
    /// `http_x_api_key`, `request.headers.X-Api-Key`, `user-agent`.
    pub(crate) fn header(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns all fields with their names.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        [].into_iter()
    }
}
