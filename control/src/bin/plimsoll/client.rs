//! The admin API of a running service, over HTTP, or of this process, over its file and its Redis.

use std::{fmt, io, path::PathBuf, time::Duration};

use axum::{Router, body::Body};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use plimsoll::Resilience;
use plimsoll_control::{
    Config, Format, Offenders, Overrides, OverridesConfig, StoreKind,
    admin::{Access, Activity, AdminConfig, Operator, Role, router},
};
use serde_json::Value;
use tower_service::Service;
use ureq::tls::{RootCerts, TlsConfig};

use crate::{args::Target, output::printable};

/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// The capacity of the sketch of this process, which decides nothing: the fleet reports the keys.
const OFFENDERS: usize = 1;

/// A connection to the admin API.
pub(crate) enum Client {
    Remote { agent: ureq::Agent, base: String, token: String },
    Local(Box<Router>),
}

/// The reason why a command failed, for people.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    is_unread: bool,
}

impl Client {
    /// Connects to the service that the arguments name.
    pub(crate) async fn connect(target: &Target, user: &str) -> Result<Self, Failure> {
        if let Some(base) = &target.admin {
            let missing = "the admin page needs a token: --token or PLIMSOLL_ADMIN_TOKEN";
            let token = target.token.clone().ok_or_else(|| Failure::new(missing))?;
            if HeaderValue::from_str(&token).is_err() {
                return Err(Failure::new(
                    "the token has a line break or another control character",
                ));
            }
            let base = base_of(base)?;
            let config = ureq::Agent::config_builder();
            // The certificates of the machine, which may include a company's own.
            let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
            let config = config.tls_config(tls).timeout_global(Some(TIMEOUT));
            let config = config.http_status_as_error(false);
            let agent = config.build().into();
            return Ok(Self::Remote { agent, base, token });
        }
        let missing = "the service is not named: --config FILE with --redis URL, or --admin URL";
        let config = Config::from_path(target.file(missing)?).map_err(Failure::of)?;
        let store = config.store();
        let servers =
            [target.redis.as_deref(), store.url(), target.redis_of_environment.as_deref()];
        let url = servers.into_iter().flatten().next();
        let of_overrides = target.overrides_redis.as_deref().or(url);
        let of_overrides = of_overrides.ok_or_else(|| Failure::no_server(store.kind()))?;
        // Otherwise a Redis that is far away would be answered for by this process, which counts nothing.
        let patient = Resilience::none().deadline(TIMEOUT);
        // A cluster, sentinels and regions stay: the URL leads to their overrides.
        let store = store.with_url(url.unwrap_or(of_overrides)).with_resilience(patient);
        let limiter = store.connect().await.map_err(Failure::of)?;
        let registry = config.registry().clone();
        let shared = OverridesConfig::of(&store).server(of_overrides).passive(true);
        let overrides = Overrides::connect(shared, registry.clone(), limiter.clone()).await;
        let overrides = overrides.map_err(Failure::of)?;
        let operator = Operator::new(user, Role::Write);
        let access = Access::custom(move |_| Some(operator.clone()));
        let offenders = Offenders::new(OFFENDERS);
        let (overrides, offenders) = match target.show_keys {
            true => (overrides.show_keys(), offenders.show_keys()),
            false => (overrides, offenders),
        };
        // The other processes of the service have the counts.
        offenders.share(&overrides);
        let activity = Activity::new(offenders);
        let admin = AdminConfig::new(overrides, activity, access).config(&config);
        Ok(Self::Local(Box::new(router(admin))))
    }

    /// Returns the answer to a request without a body. `path` is relative to `/api/`.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a request, and returns its answer.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request =
            Request::builder().method(method).header(header::CONTENT_TYPE, "application/json");
        let (status, answer) = match self {
            Self::Remote { agent, base, token } => {
                let request = request
                    .uri(format!("{base}/api/{path}"))
                    .header(header::AUTHORIZATION, format!("Bearer {token}"))
                    .body(body)
                    .map_err(Failure::of)?;
                let (agent, place) = (agent.clone(), base.clone());
                let sent = tokio::task::spawn_blocking(move || send(&agent, request)).await;
                let sent = sent.map_err(Failure::of)?;
                sent.map_err(|error| Failure::new(&format!("{place}: {error}")))?
            }
            Self::Local(router) => {
                let request = request.uri(format!("/api/{path}")).body(Body::from(body));
                let request = request.map_err(Failure::of)?;
                let Ok(response) = router.call(request).await;
                let status = response.status();
                let answer = axum::body::to_bytes(response.into_body(), MAX_ANSWER as usize).await;
                (status, answer.map_err(Failure::of)?.to_vec())
            }
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
        if status.is_success() { Ok(answer) } else { Err(Failure::of_problem(status, &answer)) }
    }
}

impl Target {
    /// Returns the configuration file of the service, or this failure if there is none.
    pub(crate) fn file(&self, missing: &str) -> Result<PathBuf, Failure> {
        if let Some(file) = &self.config {
            return Ok(file.clone());
        }
        // A folder also has files of other programs, such as files of envoyproxy/ratelimit.
        let named = self.configs.iter().flat_map(|path| match path.read_dir() {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(_) => vec![path.clone()],
        });
        let mut files: Vec<_> = named.filter(|path| Format::of_path(path).is_some()).collect();
        if files.len() > 1 {
            files.retain(|path| Config::from_path(path).is_ok());
        }
        match &files[..] {
            [file] => Ok(file.clone()),
            _ if self.configs.is_empty() => Err(Failure::new(missing)),
            _ => Err(Failure::new(&format!(
                "PLIMSOLL_CONFIG names {} files with limits: name one of them with --config FILE",
                files.len()
            ))),
        }
    }
}

/// Returns the address of the admin page without a slash at its end. The address of the API is accepted too.
fn base_of(address: &str) -> Result<String, Failure> {
    let uri = address.parse::<Uri>().ok();
    let is_page = |uri: &Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|it| !it.is_empty())
    };
    if uri.is_none_or(|uri| !is_page(&uri) || uri.query().is_some()) {
        let allowed = "allowed is the address of an admin page, such as https://HOST/admin/";
        return Err(Failure::new(&format!("the address is {address:?}\n{allowed}")));
    }
    let page = address.trim_end_matches('/');
    Ok(page.strip_suffix("/api").unwrap_or(page).trim_end_matches('/').to_owned())
}

fn send(
    agent: &ureq::Agent,
    request: Request<String>,
) -> Result<(StatusCode, Vec<u8>), ureq::Error> {
    let mut response = agent.run(request)?;
    let answer = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec()?;
    Ok((response.status(), answer))
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

    /// Creates the failure of a file that names no server which has the [overrides](Overrides).
    fn no_server(kind: StoreKind) -> Self {
        let cause = match kind {
            StoreKind::Memory => "the units are counted in the memory of the service".to_owned(),
            kind => format!("the file names {kind}, and overrides are kept by one Redis server"),
        };
        let message = "name the server with --redis URL, or the admin page with --admin URL";
        Self::new(&format!("{cause}: {message}"))
    }

    /// Creates the failure that a problem document describes.
    fn of_problem(status: StatusCode, problem: &Value) -> Self {
        let text = |field: &str| problem[field].as_str().map(str::to_owned);
        let title = text("title").unwrap_or_else(|| format!("the answer has the status {status}"));
        let detail = text("detail").map(|detail| format!(": {detail}")).unwrap_or_default();
        let allowed = text("allowed").map(|allowed| format!("\nallowed is {allowed}"));
        let mut message = format!("{title}{detail}{}", allowed.unwrap_or_default());
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
