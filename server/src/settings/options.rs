//! The settings as a person writes them: flags, environment variables and the settings file.

use std::path::PathBuf;

use clap::Args;
use plimsoll::{Algorithm, OnFailure};
use serde::Deserialize;

use super::values::{Address, LogFormat, Time, named};
use crate::envoy::{Decide, EnvoyOptions};

/// The settings that flags, environment variables and the file have in common. A field that is `None` is not
/// set there.
#[derive(Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Options {
    /// Address of the HTTP API, or `off`. Port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, env = "PLIMSOLL_HTTP", value_name = "ADDRESS", help_heading = "Listeners")]
    pub(super) http: Option<Address>,
    /// Address of the gRPC services, or `off` [default: 127.0.0.1:8081]
    #[arg(long, env = "PLIMSOLL_GRPC", value_name = "ADDRESS", help_heading = "Listeners")]
    pub(super) grpc: Option<Address>,
    /// Address of the admin page, or `off` [default: 127.0.0.1:6070]
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDRESS", help_heading = "Listeners")]
    pub(super) admin: Option<Address>,
    /// Serve addresses that other machines reach, although there are no tokens of clients [default: false]
    #[arg(long, env = "PLIMSOLL_UNAUTHENTICATED", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", help_heading = "Listeners")]
    pub(super) unauthenticated: Option<bool>,

    /// File with limits, or a folder of files. May be repeated
    #[arg(
        long,
        env = "PLIMSOLL_CONFIG",
        value_delimiter = ',',
        value_name = "PATH",
        help_heading = "Limits"
    )]
    pub(super) config: Option<Vec<PathBuf>>,
    /// File of envoyproxy/ratelimit, or a folder of files. May be repeated
    #[arg(
        long,
        env = "PLIMSOLL_ENVOY_CONFIG",
        value_delimiter = ',',
        value_name = "PATH",
        help_heading = "Limits"
    )]
    pub(super) envoy_config: Option<Vec<PathBuf>>,
    /// Way in which the limits of a request of Envoy are decided: `together`, or `each` by itself as
    /// envoyproxy/ratelimit does [default: together]
    #[arg(long, env = "PLIMSOLL_ENVOY_DECIDE", value_parser = named::<Decide>, value_name = "HOW", help_heading = "Limits")]
    #[serde(skip)]
    pub(super) envoy_decide: Option<Decide>,
    /// Algorithm of limits of `unit` and `requests_per_unit`, such as `fixed-window` [default: sliding-buckets(30)]
    #[arg(long, env = "PLIMSOLL_ENVOY_ALGORITHM", value_parser = named::<Algorithm>, value_name = "NAME", help_heading = "Limits")]
    #[serde(skip)]
    pub(super) envoy_algorithm: Option<Algorithm>,
    /// End the limits of a domain when no file has it any more. By default they stay until a restart [default: false]
    #[arg(long, env = "PLIMSOLL_ENVOY_REMOVE_DOMAINS", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", help_heading = "Limits")]
    #[serde(skip)]
    pub(super) envoy_remove_domains: Option<bool>,
    /// All switches of the service for Envoy.
    #[arg(skip)]
    pub(super) envoy: Option<EnvoyOptions>,
    /// Decision while the store cannot answer: `local`, `allow` or `deny` [default: local]
    #[arg(long, env = "PLIMSOLL_ON_FAILURE", value_parser = named::<OnFailure>, value_name = "ACTION", help_heading = "Limits")]
    pub(super) on_failure: Option<OnFailure>,
    /// Time for which a receipt can be used [default: 5min]
    #[arg(long, env = "PLIMSOLL_RECEIPT_LIFETIME", value_name = "TIME", help_heading = "Limits")]
    pub(super) receipt_lifetime: Option<Time<1_000>>,

    /// URL of the Redis server that all instances share
    #[arg(long, env = "PLIMSOLL_REDIS", value_name = "URL", help_heading = "Store")]
    pub(super) redis: Option<String>,
    /// URLs of some nodes of a Redis Cluster
    #[arg(
        long,
        env = "PLIMSOLL_REDIS_CLUSTER",
        value_delimiter = ',',
        value_name = "URL",
        help_heading = "Store"
    )]
    pub(super) redis_cluster: Option<Vec<String>>,
    /// URLs of Redis Sentinels
    #[arg(
        long,
        env = "PLIMSOLL_REDIS_SENTINELS",
        value_delimiter = ',',
        value_name = "URL",
        help_heading = "Store"
    )]
    pub(super) redis_sentinels: Option<Vec<String>>,
    /// Name of the primary that the sentinels watch
    #[arg(long, env = "PLIMSOLL_REDIS_PRIMARY", value_name = "NAME", help_heading = "Store")]
    pub(super) redis_primary: Option<String>,
    /// Start without a connection to Redis, and connect in the background [default: false]
    #[arg(long, env = "PLIMSOLL_REDIS_LAZY", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", help_heading = "Store")]
    pub(super) redis_lazy: Option<bool>,
    /// URL of the Redis server of overrides, with a cluster, sentinels or regions
    #[arg(long, env = "PLIMSOLL_OVERRIDES_REDIS", value_name = "URL", help_heading = "Store")]
    pub(super) overrides_redis: Option<String>,

    /// Most connections of a listener [default: 10000]
    #[arg(long, env = "PLIMSOLL_MAX_CONNECTIONS", value_name = "NUMBER", help_heading = "Bounds")]
    pub(super) max_connections: Option<usize>,
    /// Time in which the head of a request must arrive [default: 10s]
    #[arg(long, env = "PLIMSOLL_HEAD_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub(super) head_timeout: Option<Time<10>>,
    /// Time in which a request must arrive and be answered [default: 10s]
    #[arg(long, env = "PLIMSOLL_REQUEST_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub(super) request_timeout: Option<Time<10>>,
    /// Time after which a connection without a request is closed [default: 60s]
    #[arg(long, env = "PLIMSOLL_IDLE_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub(super) idle_timeout: Option<Time<10>>,
    /// Time after which a connection takes no further request, whatever its client does [default: 1h]
    #[arg(long, env = "PLIMSOLL_MAX_CONNECTION_AGE", value_name = "TIME", help_heading = "Bounds")]
    pub(super) max_connection_age: Option<Time<10>>,
    /// Time after SIGTERM in which the service is not ready, and still answers new requests [default: 1s]
    #[arg(long, env = "PLIMSOLL_DRAIN", value_name = "TIME", help_heading = "Bounds")]
    pub(super) drain: Option<Time<0>>,
    /// Time after which a shutdown no longer waits for answers [default: 10s]
    #[arg(long, env = "PLIMSOLL_SHUTDOWN_TIMEOUT", value_name = "TIME", help_heading = "Bounds")]
    pub(super) shutdown_timeout: Option<Time<10>>,

    /// Format of the log on standard error: `text` or `json` [default: text]
    #[arg(long, env = "PLIMSOLL_LOG_FORMAT", value_parser = named::<LogFormat>, value_name = "FORMAT", help_heading = "Operation")]
    pub(super) log_format: Option<LogFormat>,
    /// Events of the log, such as `info` or `warn,plimsoll=debug` [default: info]
    #[arg(long, env = "PLIMSOLL_LOG", value_name = "FILTER", help_heading = "Operation")]
    pub(super) log: Option<String>,
    /// Name of this instance on the admin page [default: process PID]
    #[arg(long, env = "PLIMSOLL_INSTANCE", value_name = "NAME", help_heading = "Operation")]
    pub(super) instance: Option<String>,
    /// Show keys on the admin page as clients write them, instead of digests [default: false]
    #[arg(long, env = "PLIMSOLL_SHOW_KEYS", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", help_heading = "Operation")]
    pub(super) show_keys: Option<bool>,

    /// Token of a client that may use all policies. It has no flag, because all users of a machine see flags.
    #[arg(skip)]
    pub(super) token: Option<String>,
    /// Token of the operator of the admin page.
    #[arg(skip)]
    pub(super) admin_token: Option<String>,
    /// Secret that signs receipts.
    #[arg(skip)]
    pub(super) receipt_secret: Option<String>,
    /// Clients with a token each.
    #[arg(skip)]
    pub(super) clients: Vec<ClientOptions>,
    /// Operators of the admin page.
    #[arg(skip)]
    pub(super) operators: Vec<OperatorOptions>,
}

/// A client in the settings file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientOptions {
    pub(super) name: String,
    pub(super) token: String,
    pub(super) policies: Vec<String>,
}

/// An operator in the settings file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorOptions {
    pub(super) name: String,
    pub(super) token: String,
    pub(super) role: RoleOption,
}

/// The rights of an operator.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RoleOption {
    Read,
    Write,
}
