//! The environment variables of envoyproxy/ratelimit, so that a container file written for it works, or says what to
//! set. They are read if no setting of this service names limits.

use std::path::PathBuf;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Address, SettingsError, options::Options};
use crate::envoy::{EnvoyOptions, LimitHeaders};

/// Returns the value of an environment variable that is set and not empty.
pub(super) type Variables<'v> = dyn Fn(&str) -> Option<String> + 'v;

/// The variables that are followed.
const FOLLOWED: [&str; 20] = [
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "RUNTIME_IGNOREDOTFILES",
    "REDIS_URL",
    "REDIS_TYPE",
    "REDIS_SOCKET_TYPE",
    "REDIS_AUTH",
    "REDIS_SENTINEL_AUTH",
    "REDIS_TLS",
    "SHADOW_MODE",
    "QUOTA_MODE",
    "MERGE_DOMAIN_CONFIG",
    "NEAR_LIMIT_RATIO",
    "RESPONSE_DYNAMIC_METADATA",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
];

/// The variables that cannot be followed, the value with which they ask for nothing, and the way out. Without it, limits
/// would be missing, would be counted elsewhere, or could not be asked.
const REFUSED: [(&str, &str, &str); 11] = [
    ("CONFIG_TYPE", "FILE", "files in --envoy-config; xDS is missing"),
    ("BACKEND_TYPE", "redis", "--redis; memcached is missing"),
    ("REDIS_PERSECOND", "false", "one Redis or cluster for all limits, and no REDIS_PERSECOND"),
    ("CACHE_KEY_PREFIX", "", "`prefix` in [store.redis] of a file of plimsoll, in --config"),
    ("REDIS_TLS_CLIENT_CERT", "", "--redis without a client certificate"),
    ("REDIS_TLS_CACERT", "", "SSL_CERT_FILE"),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", "a certificate with the name of the host"),
    ("GRPC_SERVER_USE_TLS", "false", "--grpc behind a proxy or a mesh that ends TLS"),
    ("GRPC_UDS", "", "--grpc ADDRESS"),
    ("GRPC_PORT", "8081", "--grpc ADDRESS"),
    ("PORT", "8080", "--http ADDRESS"),
];

/// The variables that a container may have for other reasons. Alone, they are no sign of envoyproxy/ratelimit.
const COMMON: [&str; 2] = ["GRPC_PORT", "PORT"];

/// Completes options that name no limits by the variables of envoyproxy/ratelimit. Also returns warnings.
///
/// # Errors
///
/// Returns an error if a variable cannot be followed.
pub(super) fn complete(
    mut options: Options,
    variable: &Variables<'_>,
) -> Result<(Options, Vec<String>), SettingsError> {
    let refused = REFUSED.iter().map(|(name, ..)| *name).filter(|name| !COMMON.contains(name));
    let names = FOLLOWED.into_iter().chain(refused).filter(|name| variable(name).is_some());
    let names: Vec<_> = names.collect();
    let names_files = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"].iter().any(|it| names.contains(it));
    let set = names.join(", ");
    if options.config.is_some() || options.envoy_config.is_some() {
        let warning =
            || format!("variables of envoyproxy/ratelimit have no effect beside --config: {set}");
        return Ok((options, names_files.then(warning).into_iter().collect()));
    } else if names.is_empty() {
        return Ok((options, Vec::new()));
    } else if !names_files {
        return Err(SettingsError::with_text(format!(
            "variables of envoyproxy/ratelimit are set ({set}), and nothing names its files, allowed is \
             RUNTIME_ROOT with RUNTIME_SUBDIRECTORY, --envoy-config, or --config"
        )));
    }
    refuse(&options, variable)?;
    let part = |name, default: &str| variable(name).unwrap_or_else(|| default.to_owned());
    let folder = PathBuf::from(part("RUNTIME_ROOT", "/srv/runtime_data/current"));
    let folder = folder.join(part("RUNTIME_SUBDIRECTORY", ""));
    options.envoy_config = Some(vec![folder.join(part("RUNTIME_APPDIRECTORY", "config"))]);
    options.envoy = Some(switches(options.envoy.take().unwrap_or_default(), variable)?);
    if options.redis.is_none()
        && options.redis_cluster.is_none()
        && options.redis_sentinels.is_none()
    {
        redis(&mut options, variable)?;
    }
    Ok((options, Vec::new()))
}

fn refuse(options: &Options, variable: &Variables<'_>) -> Result<(), SettingsError> {
    let has_port = |address: Option<Address>, default: &str, port: &str| match address {
        Some(Address::At(address)) => address.port().to_string() == port,
        Some(Address::Off) => false,
        None => default == port,
    };
    let mut lines = String::new();
    for (name, harmless, instead) in REFUSED {
        let Some(value) = variable(name) else { continue };
        let is_harmless = match name {
            "GRPC_PORT" => has_port(options.grpc, harmless, &value),
            "PORT" => has_port(options.http, harmless, &value),
            _ if harmless == "false" => !is_true(name, &value)?,
            _ => value.eq_ignore_ascii_case(harmless),
        };
        if !is_harmless {
            lines += &format!("\n  {name}: {instead}");
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(SettingsError::with_text(format!(
        "variables of envoyproxy/ratelimit are set that cannot be followed, allowed is instead:{lines}"
    )))
}

/// Returns the switches with those of the variables.
fn switches(
    mut envoy: EnvoyOptions,
    variable: &Variables<'_>,
) -> Result<EnvoyOptions, SettingsError> {
    for (name, switch) in [
        ("SHADOW_MODE", &mut envoy.shadow_mode),
        ("QUOTA_MODE", &mut envoy.quota_mode),
        ("MERGE_DOMAIN_CONFIG", &mut envoy.merge_domains),
        ("RESPONSE_DYNAMIC_METADATA", &mut envoy.dynamic_metadata),
    ] {
        if let Some(value) = variable(name) {
            *switch = is_true(name, &value)?;
        }
    }
    if let Some(value) = variable("NEAR_LIMIT_RATIO") {
        let ratio = value.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio =
            ratio.ok_or_else(|| SettingsError::new("NEAR_LIMIT_RATIO", &value, "0 to 1"))?;
        envoy.near_limit_percent = (ratio * 100.0).round() as u8;
    }
    let name = "LIMIT_RESPONSE_HEADERS_ENABLED";
    if variable(name).map_or(Ok(false), |value| is_true(name, &value))? {
        let name = |name, default: &str| variable(name).unwrap_or_else(|| default.to_owned());
        envoy.headers.limit = Some(LimitHeaders::new(
            name("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
            name("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
            name("LIMIT_RESET_HEADER", "RateLimit-Reset"),
        ));
    }
    Ok(envoy)
}

/// Sets the servers of the variables: `host:port`, the path of a socket, several of them with commas for a cluster, or
/// the name of the primary and the sentinels.
fn redis(options: &mut Options, variable: &Variables<'_>) -> Result<(), SettingsError> {
    let allowed = "host:port, or --redis";
    let servers = variable("REDIS_URL");
    let servers = servers.ok_or_else(|| SettingsError::new("REDIS_URL", "missing", allowed))?;
    let is_tls = variable("REDIS_TLS").map_or(Ok(false), |value| is_true("REDIS_TLS", &value))?;
    let url = |server: &str, auth: Option<String>| match (server.contains("://"), auth) {
        (true, None) => Ok(server.to_owned()),
        (false, None) if server.starts_with('/') => Ok(format!("unix://{server}")),
        (false, auth) if !server.starts_with('/') => {
            let scheme = if is_tls { "rediss" } else { "redis" };
            Ok(format!("{scheme}://{}{server}/", auth.map(credentials).unwrap_or_default()))
        }
        // The password would be lost.
        _ => Err(SettingsError::new("REDIS_AUTH", "set beside a URL or a socket", "--redis URL")),
    };
    let urls = |servers: &str, auth: Option<String>| {
        servers.split(',').map(|server| url(server.trim(), auth.clone())).collect::<Result<_, _>>()
    };
    let auth = variable("REDIS_AUTH");
    match &*variable("REDIS_TYPE").unwrap_or_default().to_lowercase() {
        "" | "single" => options.redis = Some(url(&servers, auth)?),
        "cluster" => options.redis_cluster = Some(urls(&servers, auth)?),
        "sentinel" => {
            let (primary, sentinels) = servers.split_once(',').ok_or_else(|| {
                let allowed = "the name of the primary, and sentinels, with commas";
                SettingsError::new("REDIS_URL", "one name", allowed)
            })?;
            let has_settings = is_tls || auth.is_some();
            let primary = if has_settings { url(primary, auth)? } else { primary.to_owned() };
            options.redis_primary = Some(primary);
            options.redis_sentinels = Some(urls(sentinels, variable("REDIS_SENTINEL_AUTH"))?);
        }
        other => {
            return Err(SettingsError::new("REDIS_TYPE", other, "single, cluster or sentinel"));
        }
    }
    Ok(())
}

/// Returns `user:password` or a password as a URL has it.
fn credentials(auth: String) -> String {
    let (user, password) = auth.split_once(':').unwrap_or(("", &auth));
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("{}:{}@", encoded(user), encoded(password))
}

/// Returns the truth value that envoyproxy/ratelimit reads.
fn is_true(name: &str, value: &str) -> Result<bool, SettingsError> {
    match &*value.to_lowercase() {
        "1" | "t" | "true" => Ok(true),
        "0" | "f" | "false" => Ok(false),
        _ => Err(SettingsError::new(name, format!("{value:?}"), "true or false")),
    }
}
