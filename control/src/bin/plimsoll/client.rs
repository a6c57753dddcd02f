//! A client of the admin API of a running service.

use std::{fmt, io, time::Duration};

use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::tls::{RootCerts, TlsConfig};

use crate::{args::Target, output::printable};

/// The admin page of a `plimsoll-server` on this machine.
const DEFAULT_ADMIN: &str = "http://127.0.0.1:6070/";
/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// A client of the admin API.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    token: String,
}

/// The reason why a command failed, for people.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    is_unread: bool,
}

impl Client {
    /// Creates a client of the service that the arguments name.
    pub(crate) fn new(target: Target) -> Result<Self, Failure> {
        let missing = "the admin page needs a token: --token or PLIMSOLL_ADMIN_TOKEN";
        let token = target.token.filter(|it| !it.is_empty());
        let token = token.ok_or_else(|| Failure::new(missing))?;
        if HeaderValue::from_str(&token).is_err() {
            return Err(Failure::new("the token has a line break or another control character"));
        }
        let base = base_of(target.admin.as_deref().unwrap_or(DEFAULT_ADMIN))?;
        // The certificates of the machine, which may include a company's own.
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(TIMEOUT));
        let agent = config.http_status_as_error(false).build().into();
        Ok(Self { agent, base, token })
    }

    /// Returns the answer to a request without a body. `path` is relative to `/api/`.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None)
    }

    /// Sends a request, and returns its answer.
    pub(crate) fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(body.map(|body| body.to_string()).unwrap_or_default())
            .map_err(Failure::of)?;
        let answered = self.send(request);
        let (status, answer) =
            answered.map_err(|error| Failure::new(&format!("{}: {error}", self.base)))?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
        if status.is_success() { Ok(answer) } else { Err(Failure::of_problem(status, &answer)) }
    }

    fn send(&self, request: Request<String>) -> Result<(StatusCode, Vec<u8>), ureq::Error> {
        let mut response = self.agent.run(request)?;
        let answer = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec()?;
        Ok((response.status(), answer))
    }
}

/// Returns the address of the admin page without a slash at its end. The address of the API is accepted too.
fn base_of(address: &str) -> Result<String, Failure> {
    let is_page = address.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|it| !it.is_empty())
            && uri.query().is_none()
    });
    if !is_page {
        let allowed = "allowed is the address of an admin page, such as https://HOST/admin/";
        return Err(Failure::new(&format!("the address is {address:?}\n{allowed}")));
    }
    let page = address.trim_end_matches('/');
    Ok(page.strip_suffix("/api").unwrap_or(page).trim_end_matches('/').to_owned())
}

/// Returns a text as a part of a URL.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Failure {
    pub(crate) fn new(message: &str) -> Self {
        Self { message: message.to_owned(), is_unread: false }
    }

    /// Returns the failure of printing. If no program reads the output any more, the command has just ended.
    pub(crate) fn of_output(error: io::Error) -> Self {
        let is_unread = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_unread, ..Self::of(error) }
    }

    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self::new(&error.to_string())
    }

    /// Creates the failure that a problem document describes.
    fn of_problem(status: StatusCode, problem: &Value) -> Self {
        let mut message = match problem["title"].as_str() {
            Some(title) => title.to_owned(),
            None => format!("the answer has the status {status}"),
        };
        for (field, before) in [("detail", ": "), ("allowed", "\nallowed is ")] {
            if let Some(text) = problem[field].as_str() {
                message += &format!("{before}{text}");
            }
        }
        if problem["title"].is_null() && status == StatusCode::NOT_FOUND {
            message += ": is this the address of the admin page, such as https://HOST/admin/?";
        }
        Self::new(&message)
    }

    /// Returns whether the command ended because no program reads its output any more.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A service may have written it.
        let lines: Vec<_> = self.message.lines().map(printable).collect();
        f.write_str(&lines.join("\n"))
    }
}
