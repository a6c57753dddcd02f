//! The settings in force, with all defaults.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use plimsoll::OnFailure;
use plimsoll_control::{ConfigError, Format, admin::Access, document};

use super::{
    Address, Bounds, LogFormat,
    error::SettingsError,
    options::{Options, RoleOption},
    ratelimit,
    secrets::resolve,
};
use crate::{
    access::{Client, Clients},
    envoy::EnvoyOptions,
};

/// The settings of the service, as [`Flags`](super::Flags) reads them.
pub struct Settings {
    /// The address of the HTTP API.
    pub http: Address,
    /// The address of the gRPC services.
    pub grpc: Address,
    /// The address of the admin page.
    pub admin: Address,
    /// True if addresses that other machines reach are served without tokens of [clients](Self::clients).
    pub is_unauthenticated: bool,
    /// The [files](plimsoll_control::Config) and folders with limits.
    pub configs: Vec<PathBuf>,
    /// The [files](crate::envoy::EnvoyConfig) and folders of envoyproxy/ratelimit.
    pub envoy_configs: Vec<PathBuf>,
    /// The switches of the service for Envoy.
    pub envoy: EnvoyOptions,
    /// The decision on [charges](plimsoll::Charge) that do not say it, while the store cannot answer.
    pub on_failure: OnFailure,
    /// The time for which a receipt can be used.
    pub receipt_lifetime: Duration,
    /// The secret that signs receipts, or `None` for a random one.
    pub receipt_secret: Option<String>,
    /// The Redis that all instances share, instead of the Redis of a file.
    pub redis: Option<RedisServers>,
    /// True if the service starts without a connection to Redis. `None` is as the file says.
    pub is_redis_lazy: Option<bool>,
    /// The URL of the Redis server of [overrides](plimsoll_control::Overrides), instead of the server of the budgets.
    pub overrides_redis: Option<String>,
    /// The bounds of the connections and requests of clients.
    pub bounds: Bounds,
    /// The clients, or [none](Clients::is_empty) if no token is needed.
    pub clients: Clients,
    /// The operators of the [admin page](plimsoll_control::admin).
    pub operators: Access,
    /// True if there is an operator.
    pub has_operators: bool,
    /// The format of the log, which [`install_logs`](crate::install_logs) writes.
    pub log_format: LogFormat,
    /// The events of the log.
    pub log: String,
    /// The name of this instance.
    pub instance: Option<String>,
    /// True if operators see [keys](plimsoll::Key), and not digests.
    pub shows_keys: bool,
    /// The warnings for the operator. The service starts all the same.
    pub(crate) warnings: Vec<String>,
}

/// The servers of Redis.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisServers {
    /// One server, by its URL.
    Server(String),
    /// A cluster, by the URLs of some nodes.
    Cluster(Vec<String>),
    /// The primary that sentinels watch.
    Sentinels {
        /// The URLs of the sentinels.
        urls: Vec<String>,
        /// The name of the primary.
        primary: String,
    },
}

impl Settings {
    /// Returns the [settings](Settings) of these options.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed.
    pub(super) fn new(options: Options) -> Result<Self, SettingsError> {
        let warnings = ratelimit::check(&options)?.into_iter().collect();
        let secret = options.receipt_secret.as_ref();
        let lifetime = options.receipt_lifetime.map_or(Duration::from_secs(300), |it| it.0);
        let (operators, has_operators) = operators(&options)?;
        Ok(Self {
            http: options.http.unwrap_or(Address::loopback(8_080)),
            grpc: options.grpc.unwrap_or(Address::loopback(8_081)),
            admin: options.admin.unwrap_or(Address::loopback(6_070)),
            is_unauthenticated: options.unauthenticated.unwrap_or(false),
            on_failure: options.on_failure.unwrap_or(OnFailure::Local),
            receipt_lifetime: lifetime,
            receipt_secret: secret.map(|it| resolve("receipt-secret", it)).transpose()?,
            redis: redis(&options)?,
            is_redis_lazy: options.redis_lazy,
            bounds: Bounds::new(&options),
            clients: clients(&options)?,
            operators,
            has_operators,
            envoy: envoy(&options),
            configs: paths("config", options.config)?,
            envoy_configs: paths("envoy-config", options.envoy_config)?,
            overrides_redis: options.overrides_redis,
            log_format: options.log_format.unwrap_or_default(),
            log: options.log.unwrap_or_else(|| "info".to_owned()),
            instance: options.instance,
            shows_keys: options.show_keys.unwrap_or(false),
            warnings,
        })
    }
}

/// Returns the paths of a setting. A list without a path would start the service with other limits than meant.
fn paths(field: &str, paths: Option<Vec<PathBuf>>) -> Result<Vec<PathBuf>, SettingsError> {
    match paths {
        Some(paths) if paths.is_empty() => {
            Err(SettingsError::new(field, "an empty list", "one path or more"))
        }
        paths => Ok(paths.unwrap_or_default()),
    }
}

/// Reads the [settings](Settings) file. Its paths are relative to its folder.
pub(super) fn read(path: &Path) -> Result<Options, SettingsError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        SettingsError::with_text(format!("the settings {name} cannot be read: {error}"))
    })?;
    let mut options: Options = document::read(&text, Format::Toml).map_err(|mistakes| {
        let error = ConfigError::new(mistakes, &name.to_string(), &text);
        SettingsError::with_text(error.to_string())
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for path in options.config.iter_mut().chain(&mut options.envoy_config).flatten() {
        *path = folder.join(&path);
    }
    Ok(options)
}

fn redis(options: &Options) -> Result<Option<RedisServers>, SettingsError> {
    let named = (&options.redis, &options.redis_cluster, &options.redis_sentinels);
    Ok(Some(match (named, &options.redis_primary) {
        ((None, None, None), None) => return Ok(None),
        ((Some(url), None, None), None) => RedisServers::Server(url.clone()),
        ((None, Some(nodes), None), None) => RedisServers::Cluster(nodes.clone()),
        ((None, None, Some(urls)), Some(primary)) => {
            RedisServers::Sentinels { urls: urls.clone(), primary: primary.clone() }
        }
        _ => {
            let allowed = "one of redis, redis-cluster, and redis-sentinels with redis-primary";
            return Err(SettingsError::new(
                "redis",
                "several kinds of servers, or a part of one",
                allowed,
            ));
        }
    }))
}

/// Returns the switches of the service for Envoy: from the table, or from the flags, which take precedence.
fn envoy(options: &Options) -> EnvoyOptions {
    let mut envoy = options.envoy.clone().unwrap_or_default();
    envoy.decide = options.envoy_decide.unwrap_or(envoy.decide);
    envoy.algorithm = options.envoy_algorithm.unwrap_or(envoy.algorithm);
    envoy.remove_domains = options.envoy_remove_domains.unwrap_or(envoy.remove_domains);
    envoy.on_failure = options.on_failure.unwrap_or(envoy.on_failure);
    envoy
}

fn clients(options: &Options) -> Result<Clients, SettingsError> {
    let mut clients = Clients::default();
    if let Some(token) = &options.token {
        // It is the first client, so it has a name and a token of its own.
        let _ = clients.add(Client::new("token", ["*"]), &resolve("token", token)?);
    }
    for client in &options.clients {
        let field = format!("the token of the client {:?}", client.name);
        if client.name.is_empty() || client.policies.is_empty() {
            let allowed = "a name, and one policy or more; \"*\" stands for all policies";
            return Err(SettingsError::new("clients", format!("{:?}", client.name), allowed));
        }
        let token = resolve(&field, &client.token)?;
        if !clients.add(Client::new(&client.name, &client.policies), &token) {
            let allowed = "a name and a token of its own for each client";
            return Err(SettingsError::new(&field, "already used by another client", allowed));
        }
    }
    Ok(clients)
}

fn operators(options: &Options) -> Result<(Access, bool), SettingsError> {
    let mut access = Access::tokens();
    if let Some(token) = &options.admin_token {
        access = access.write("operator", &resolve("admin-token", token)?);
    }
    for operator in &options.operators {
        let field = format!("the token of the operator {:?}", operator.name);
        let token = resolve(&field, &operator.token)?;
        access = match operator.role {
            RoleOption::Read => access.read(&operator.name, &token),
            RoleOption::Write => access.write(&operator.name, &token),
        };
    }
    Ok((access, options.admin_token.is_some() || !options.operators.is_empty()))
}
