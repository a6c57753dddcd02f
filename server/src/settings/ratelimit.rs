//! The environment variables of envoyproxy/ratelimit. The service does not follow them, and lists the settings to write instead: a
//! container file that was written for it would otherwise start without its limits.

use super::{SettingsError, options::Options, secrets::variable};

/// The variables that decide about limits, and the settings of this service in their place.
const VARIABLES: [(&str, &str); 26] = [
    ("RUNTIME_ROOT", "--envoy-config FOLDER"),
    ("RUNTIME_SUBDIRECTORY", "--envoy-config FOLDER"),
    ("RUNTIME_APPDIRECTORY", "--envoy-config FOLDER"),
    ("RUNTIME_WATCH_ROOT", "nothing; files are always watched"),
    ("RUNTIME_IGNOREDOTFILES", "nothing; dot files are never read"),
    ("CONFIG_TYPE", "--envoy-config; xDS is missing"),
    ("BACKEND_TYPE", "--redis; memcached is missing"),
    ("REDIS_URL", "--redis, or --redis-cluster, or --redis-sentinels"),
    ("REDIS_TYPE", "--redis, or --redis-cluster, or --redis-sentinels"),
    ("REDIS_SOCKET_TYPE", "a URL such as unix:///run/redis.sock in --redis"),
    ("REDIS_AUTH", "the user and the password in the URL of --redis"),
    ("REDIS_SENTINEL_AUTH", "the password in the URLs of --redis-sentinels"),
    ("REDIS_TLS", "a URL that begins with rediss:// in --redis"),
    ("REDIS_TLS_CLIENT_CERT", "--redis without a client certificate"),
    ("REDIS_TLS_CACERT", "SSL_CERT_FILE"),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "a certificate with the name of the host"),
    ("REDIS_PERSECOND", "one Redis or cluster for all limits"),
    ("CACHE_KEY_PREFIX", "`prefix` in [store.redis] of a file of plimsoll, in --config"),
    ("SHADOW_MODE", "`shadow-mode` in [envoy] of the settings file"),
    ("QUOTA_MODE", "`quota-mode` in [envoy] of the settings file"),
    ("RESPONSE_DYNAMIC_METADATA", "`dynamic-metadata` in [envoy] of the settings file"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "`enable_x_ratelimit_headers` of Envoy's filter"),
    ("GRPC_SERVER_USE_TLS", "--grpc behind a proxy or a mesh that ends TLS"),
    ("GRPC_UDS", "--grpc ADDRESS"),
    ("GRPC_PORT", "--grpc ADDRESS"),
    ("PORT", "--http ADDRESS"),
];

/// The variables that a container may have for other reasons. Alone, they are no sign of envoyproxy/ratelimit.
const COMMON: [&str; 2] = ["GRPC_PORT", "PORT"];

/// Returns a warning if [options](Options) name limits, and variables of envoyproxy/ratelimit name others.
///
/// # Errors
///
/// Returns an error if no option names limits, and a variable of envoyproxy/ratelimit other than [`COMMON`] is set. The
/// error lists all variables that are set.
pub(super) fn check(options: &Options) -> Result<Option<String>, SettingsError> {
    let set: Vec<_> = VARIABLES.iter().filter(|(name, _)| variable(name).is_some()).collect();
    if options.config.is_some() || options.envoy_config.is_some() {
        let files = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"];
        let names_files = set.iter().any(|(name, _)| files.contains(name));
        let names = set.iter().map(|(name, _)| *name).filter(|name| !COMMON.contains(name));
        let names = names.collect::<Vec<_>>().join(", ");
        return Ok(names_files.then(|| {
            format!("variables of envoyproxy/ratelimit have no effect beside --config: {names}")
        }));
    }
    if set.iter().all(|(name, _)| COMMON.contains(name)) {
        return Ok(None);
    }
    let lines: String = set.iter().map(|(name, it)| format!("\n  {name}: {it}")).collect();
    Err(SettingsError::with_text(format!(
        "variables of envoyproxy/ratelimit are set, and nothing names the limits, allowed is instead:{lines}"
    )))
}
