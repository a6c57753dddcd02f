//! The parts of a request, out of the fields of its line.

use super::{
    Entry, address,
    entry::Span,
    roles::{EXACT, Role},
    time::{self, TimeZone},
};

impl Entry {
    /// Reads the fields that have a role. Only the time is required.
    pub(super) fn finish(&mut self, zone: TimeZone) -> Result<(), &'static str> {
        let (_, time) = self.found.get(Role::Time).ok_or("no time")?;
        self.at = time::parse(self.text(time), zone).ok_or("the time is none that is known")?;
        self.request.ip = self.text_of(Role::Ip).and_then(address::parse);
        self.request.status =
            self.text_of(Role::Status).and_then(|it| it.parse().ok()).filter(|it| *it < 1_000);
        let bytes = self.text_of(Role::Bytes).and_then(|it| it.parse().ok());
        self.request.bytes = bytes.or(self.request.bytes);
        if let Some((_, line)) = self.found.get(Role::Request) {
            self.request_line(line);
        }
        if let Some((rank, target)) = self.found.get(Role::Target)
            && (rank == EXACT || self.request.target.is_none())
        {
            self.request.target = Some(target);
        }
        if let Some((_, method)) = self.found.get(Role::Method) {
            self.request.method = Some(method);
        }
        if let Some((_, host)) = self.found.get(Role::Host) {
            self.request.host = Some(host);
        }
        // The host of a whole URL counts, and not the header (RFC 9112, section 3.2.2).
        if let Some(target) = self.request.target {
            self.absolute(target);
        }
        Ok(())
    }

    /// Returns whether a part of a request is known, and not only a time.
    pub(super) fn has_request(&self) -> bool {
        let request = &self.request;
        let texts = [request.method, request.target, request.host];
        texts.iter().any(Option::is_some) || request.ip.is_some() || request.status.is_some()
    }

    fn text_of(&self, role: Role) -> Option<&str> {
        self.found.get(role).map(|(_, span)| self.text(span))
    }

    /// Reads `GET /path HTTP/1.1`. A line that is no request, such as the first bytes of TLS, has neither part.
    fn request_line(&mut self, span: Span) {
        let text = self.text(span);
        let Some((method, rest)) = text.split_once(' ') else { return };
        let is_method = method != "-"
            && method.bytes().all(|it| it.is_ascii_alphabetic() || it == b'-' || it == b'_');
        let end = match rest.rfind(' ') {
            Some(at) if rest[at + 1..].starts_with("HTTP/") || rest[at + 1..] == *"-" => at,
            _ => rest.len(),
        };
        let start = span.start + method.len() as u32 + 1;
        let length = end as u32;
        if is_method && !method.is_empty() && length > 0 {
            self.request.method = Some(Span { start: span.start, end: start - 1 });
            self.request.target = Some(Span { start, end: start + length });
        }
    }

    /// Splits a target that is a whole URL into host and path.
    fn absolute(&mut self, span: Span) {
        let text = self.text(span);
        if text.starts_with('/') {
            return;
        }
        let Some(scheme) = text.find("://").filter(|at| *at < 10) else { return };
        let host = scheme + 3;
        let path = text[host..].find(['/', '?']).map_or(text.len(), |at| host + at);
        let path = span.start + path as u32;
        self.request.host = Some(Span { start: span.start + host as u32, end: path });
        self.request.target = Some(Span { start: path, end: span.end });
    }
}
