//! The checks of the settings and the files, before the service starts or instead of it.

use plimsoll::{RedisStore, redis::RedisConfig};

use crate::{
    envoy::EnvoyConfig,
    limits::Limits,
    settings::{Address, RedisServers, Settings},
};

/// An error that ends the service, or that [`check`] reports.
pub type ServerError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the limits of the [settings](Settings), and reports their mistakes. Nothing is connected or served.
///
/// # Errors
///
/// Returns an error if a file has a mistake, a setting is not allowed, or a URL of Redis is not valid.
pub fn check(settings: &Settings) -> Result<String, ServerError> {
    validate(settings)?;
    let limits = Limits::read(settings)?;
    check_redis(settings)?;
    let count = limits.registry.policies().len();
    let policies = if count == 1 { "policy" } else { "policies" };
    let valid = format!("the settings and the limits are valid: {count} {policies}");
    let valid = match limits.envoy.as_ref().map_or(0, EnvoyConfig::domains) {
        0 => valid,
        1 => format!("{valid}, 1 domain of envoyproxy/ratelimit"),
        domains => format!("{valid}, {domains} domains of envoyproxy/ratelimit"),
    };
    let warnings = limits.warnings.iter().map(|warning| format!("\nwarning: {warning}"));
    let hints = limits.store.hints().into_iter().map(|hint| format!("\nhint: {hint}"));
    Ok(valid + &warnings.chain(hints).collect::<String>())
}

/// Returns an error if a URL of the [settings](Settings) is not valid. The error contains no URL, because it
/// may have a password.
fn check_redis(settings: &Settings) -> Result<(), ServerError> {
    let servers = settings.redis.as_ref().map(|servers| match servers {
        RedisServers::Server(url) => ("redis", RedisConfig::url(url)),
        RedisServers::Cluster(nodes) => ("redis-cluster", RedisConfig::cluster(nodes)),
        RedisServers::Sentinels { urls, primary } => {
            ("redis-sentinels", RedisConfig::sentinel(urls, primary))
        }
    });
    let overrides = settings.overrides_redis.as_ref();
    let overrides = overrides.map(|url| ("overrides-redis", RedisConfig::url(url)));
    for (field, config) in servers.into_iter().chain(overrides) {
        RedisStore::check(&config).map_err(|error| format!("{field} is not valid: {error}"))?;
    }
    Ok(())
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
