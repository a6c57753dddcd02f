//! The checks of the settings and the files, before the service starts or instead of it.

use std::{
    path::Path,
    pin::pin,
    task::{Context, Poll, Waker},
};

use plimsoll::{Error, RedisConfig, RedisStore};

use crate::{
    envoy::{self, EnvoyConfig, EnvoyOptions},
    limits::Limits,
    settings::{Address, RedisServers, Settings},
};

/// An error that ends the service.
pub type ServerError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the limits of the settings, and reports their mistakes. Nothing is connected or served.
///
/// # Errors
///
/// Returns an error if a file has a mistake, a setting is not allowed, or a URL of Redis is not valid.
pub fn check(settings: &Settings) -> Result<String, ServerError> {
    validate(settings)?;
    let limits = Limits::read(settings)?;
    check_redis(settings, &limits)?;
    let count = limits.registry().policies().len();
    let policies = if count == 1 { "policy" } else { "policies" };
    let valid = format!("the settings and the limits are valid: {count} {policies}");
    let valid = match limits.domains() {
        0 => valid,
        1 => format!("{valid}, 1 domain of envoyproxy/ratelimit"),
        domains => format!("{valid}, {domains} domains of envoyproxy/ratelimit"),
    };
    let warnings = limits.warnings().iter().map(|warning| format!("\nwarning: {warning}"));
    Ok(valid + &warnings.collect::<String>())
}

/// Returns an error if a URL of Redis is not valid. The error contains no URL, because it may have a password.
fn check_redis(settings: &Settings, limits: &Limits) -> Result<(), ServerError> {
    let store = limits.first().store();
    let (field, checked) = match &settings.redis {
        Some(RedisServers::Server(url)) => ("redis", check_servers(RedisConfig::url(url))),
        Some(RedisServers::Cluster(nodes)) => {
            ("redis-cluster", check_servers(RedisConfig::cluster(nodes)))
        }
        Some(RedisServers::Sentinels { urls, primary }) => {
            ("redis-sentinels", check_servers(RedisConfig::sentinel(urls, primary)))
        }
        None => ("store", begin(store.with_lazy(true).connect()).map(drop)),
    };
    checked.map_err(|error| format!("{field} is not valid: {error}"))?;
    if let Some(url) = &settings.overrides_redis {
        let checked = check_servers(RedisConfig::url(url));
        checked.map_err(|error| format!("overrides-redis is not valid: {error}"))?;
    }
    Ok(())
}

fn check_servers(config: RedisConfig) -> Result<(), Error> {
    begin(RedisStore::connect_with(config.lazy(true))).map(drop)
}

/// Polls a lazy store's creation, which reads the URLs and has nothing to wait for. Outside of a runtime, the
/// store does not connect before its first call.
fn begin<T>(store: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
    match pin!(store).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(store) => store.map(Some),
        Poll::Pending => Ok(None),
    }
}

/// Returns what differs from envoyproxy/ratelimit under a file or folder of it, rule by rule.
///
/// # Errors
///
/// Returns an error if a file cannot be read or has a mistake.
pub fn lint_envoy(path: &Path, options: EnvoyOptions) -> Result<String, ServerError> {
    let config = EnvoyConfig::load_with([path], options)?;
    let findings = envoy::lint(&config);
    let mut report: Vec<_> = findings.iter().map(ToString::to_string).collect();
    report.push(match findings.len() {
        0 => "all limits behave as with envoyproxy/ratelimit".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    });
    Ok(report.join("\n\n"))
}

/// Returns an error if an address is open to other machines, and there are no tokens of clients.
pub(crate) fn validate(settings: &Settings) -> Result<(), ServerError> {
    if settings.is_unauthenticated || !settings.clients.is_empty() {
        return Ok(());
    }
    for (name, address) in [("http", settings.http), ("grpc", settings.grpc)] {
        if let Address::At(address) = address
            && !address.ip().is_loopback()
        {
            let allowed = "a loopback address, tokens of clients (PLIMSOLL_TOKEN, or [[clients]] in the \
                           settings file), or --unauthenticated";
            return Err(format!(
                "{name} is {address}, which other machines reach without a token, allowed is {allowed}"
            )
            .into());
        }
    }
    Ok(())
}
