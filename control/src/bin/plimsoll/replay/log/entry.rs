//! One request of a log.

use std::{net::IpAddr, ops::Range, sync::Arc};

use super::{
    address,
    columns::Columns,
    roles::{Rank, Role, normal_byte},
};

/// The most fields that are kept of one line.
const MAX_FIELDS: usize = 256;
/// A buffer that was larger than this is not kept for the next line.
const MAX_KEPT_BYTES: usize = 8 * 1024;

/// One request of a log.
///
/// All its texts are slices of two buffers: the line, and the texts that do not stand in it as they are. The next request
/// of the same slot reuses both, so that a line allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Microseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) line: String,
    /// Texts without their escapes, and names of nested fields.
    pub(super) extra: String,
    fields: Vec<Field>,
    /// The names of the fields that are columns.
    columns: Option<Arc<Columns>>,
    pub(super) found: Found,
    pub(super) request: Request,
}

/// A slice of the line, or behind its end, of the extra texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A field with its name.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: Name,
    value: Span,
}

/// The name of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    /// A column of the file.
    Column(u16),
    /// A text of the line.
    Text(Span),
}

/// The best field for each role: the value whose name has the lowest rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found([Option<(Rank, Span)>; Role::COUNT]);

/// The parts of a request, as its fields say them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Request {
    pub(super) method: Option<Span>,
    pub(super) target: Option<Span>,
    pub(super) host: Option<Span>,
    pub(super) status: Option<u16>,
    pub(super) bytes: Option<u64>,
    pub(super) ip: Option<IpAddr>,
}

impl Span {
    pub(super) fn of(range: Range<usize>) -> Self {
        // A line has at most `lines::MAX_LINE_BYTES`, and the extra texts a small multiple of it.
        Self { start: range.start as u32, end: range.end as u32 }
    }
}

impl Found {
    /// Returns the value of a role, with the rank of its name.
    pub(super) fn get(&self, role: Role) -> Option<(Rank, Span)> {
        self.0[role as usize]
    }
}

impl Entry {
    /// Returns the time of the request, in microseconds since the Unix epoch.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the method, such as `GET`.
    pub(crate) fn method(&self) -> Option<&str> {
        self.request.method.map(|span| self.text(span))
    }

    /// Returns the path without the query, as the client has sent it.
    pub(crate) fn path(&self) -> Option<&str> {
        let target = self.target()?;
        let end = memchr::memchr2(b'?', b'#', target.as_bytes()).unwrap_or(target.len());
        Some(&target[..end])
    }

    /// Returns the path with the query.
    pub(crate) fn target(&self) -> Option<&str> {
        self.request.target.map(|span| self.text(span))
    }

    /// Returns the host without its port.
    pub(crate) fn host(&self) -> Option<&str> {
        self.request.host.map(|span| address::without_port(self.text(span)))
    }

    /// Returns the status of the response.
    pub(crate) fn status(&self) -> Option<u16> {
        self.request.status
    }

    /// Returns the bytes that were sent.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.request.bytes
    }

    /// Returns the address of the client.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.request.ip
    }

    /// Returns a field by its name in the log: a column of CSV, `user` or `request.tls.proto` of JSON. Case, and `-`
    /// in place of `_`, make no difference. An empty field, or `-`, is missing.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(written, _)| is_same_name(written, name)).map(|(_, value)| value)
    }

    /// Returns the value of a header of the request, by the names that servers give to headers in their logs:
    /// `http_x_api_key`, `request.headers.X-Api-Key`, `user-agent`.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields();
        fields.find(|(written, _)| is_header(written, name)).map(|(_, value)| value)
    }

    /// Returns all fields with their names. The name of a nested field is its path: `request.headers.Accept`.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|field| {
            let name = match field.name {
                Name::Text(span) => self.text(span),
                Name::Column(at) => self.columns.as_ref().map_or("", |it| it.name(at)),
            };
            (name, self.text(field.value))
        })
    }

    /// Makes this the entry of a new line, of which nothing is known.
    pub(super) fn begin(&mut self, line: &[u8]) {
        for buffer in [&mut self.line, &mut self.extra] {
            buffer.clear();
            if buffer.capacity() > MAX_KEPT_BYTES {
                buffer.shrink_to(MAX_KEPT_BYTES);
            }
        }
        match str::from_utf8(line) {
            Ok(text) => self.line.push_str(text),
            Err(_) => self.line.push_str(&String::from_utf8_lossy(line)),
        }
        self.fields.clear();
        self.found = Found::default();
        self.request = Request::default();
    }

    /// Returns the bytes that this entry holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.line.len() + self.extra.len()
    }

    /// Sets the columns that names of fields are from.
    pub(super) fn set_columns(&mut self, columns: &Arc<Columns>) {
        if !self.columns.as_ref().is_some_and(|it| Arc::ptr_eq(it, columns)) {
            self.columns = Some(columns.clone());
        }
    }

    /// Adds a field, unless its value is missing.
    pub(super) fn push(&mut self, line: &str, name: Name, value: Span, role: Option<(Role, Rank)>) {
        if matches!(self.text_with(line, value), "" | "-") {
            return;
        }
        if let Some((role, rank)) = role {
            let best = &mut self.found.0[role as usize];
            if best.is_none_or(|(known, _)| rank < known) {
                *best = Some((rank, value));
            }
        }
        if self.fields.len() < MAX_FIELDS {
            self.fields.push(Field { name, value });
        }
    }

    /// Adds a text that does not stand in the line, and returns its place.
    pub(super) fn add_text(&mut self, line: &str, text: &str) -> Span {
        let start = line.len() + self.extra.len();
        self.extra.push_str(text);
        Span::of(start..start + text.len())
    }

    /// Returns the text of a span.
    pub(super) fn text(&self, span: Span) -> &str {
        self.text_with(&self.line, span)
    }

    /// Returns the text of a span while the line is being read.
    pub(super) fn text_with<'a>(&'a self, line: &'a str, span: Span) -> &'a str {
        let start = span.start as usize;
        let end = span.end as usize;
        match start.checked_sub(line.len()) {
            Some(behind) => self.extra.get(behind..end - line.len()).unwrap_or_default(),
            None => line.get(start..end).unwrap_or_default(),
        }
    }
}

/// Returns whether two names are equal, without regard to case and to `-` and `_`.
fn is_same_name(written: &str, name: &str) -> bool {
    written.len() == name.len()
        && written.bytes().zip(name.bytes()).all(|(a, b)| normal_byte(a) == normal_byte(b))
}

/// The prefixes of the names of headers in the logs of servers.
const HEADER_PREFIXES: &[&str] = &[
    "",
    "http_",
    "request.headers.",
    "request_headers.",
    "request.header.",
    "req.headers.",
    "headers.",
    "request_header_",
    "req_header_",
    "request_",
    "http.request.headers.",
];

/// Returns whether a field is the header of this name.
fn is_header(written: &str, name: &str) -> bool {
    let Some(at) = written.len().checked_sub(name.len()) else { return false };
    let (Some(prefix), Some(rest)) = (written.get(..at), written.get(at..)) else { return false };
    is_same_name(rest, name) && HEADER_PREFIXES.iter().any(|it| is_same_name(prefix, it))
}
