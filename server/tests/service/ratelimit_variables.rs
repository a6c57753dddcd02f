//! The environments of published container files of envoyproxy/ratelimit, with which the service does not start, and the
//! files that settings name.

use std::{fs, path::Path};

use plimsoll_testing::servers::directory;

use crate::support::{Service, program};

const LIMITS: &str =
    "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 3 } }]\n";

/// Writes the limits where the example of the container files has them, and returns the root.
fn root() -> String {
    let root = directory();
    fs::create_dir_all(root.join("ratelimit/config")).unwrap();
    fs::write(root.join("ratelimit/config/config"), LIMITS).unwrap();
    root.to_str().unwrap().to_owned()
}

fn status(service: &Service) -> u16 {
    let body =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}"#;
    service.post("/json", body).status
}

/// Returns the status and the output of a check under these variables.
fn check(variables: &[(&str, &str)], flags: &[&str]) -> (bool, String) {
    let mut command = program();
    let output =
        command.arg("--check").args(flags).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), text)
}

/// The environments of docker-compose-example.yml of the project, and of the deployment of a service mesh.
#[test]
fn a_variable_of_theirs_says_what_to_set() {
    let root = root();
    let files = [("RUNTIME_ROOT", &*root), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
    let example: &[(&str, &str)] = &[
        ("USE_STATSD", "true"),
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_TYPE", "FILE"),
        ("CONFIG_GRPC_XDS_NODE_ID", "test-node-id"),
    ];
    let mesh: &[(&str, &str)] = &[
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("USE_STATSD", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
    ];
    for variables in [example, mesh] {
        let (passed, text) = check(&[&files, variables].concat(), &[]);
        assert!(!passed && text.contains("\n  RUNTIME_ROOT: --envoy-config FOLDER"), "{text}");
        assert!(text.contains("\n  REDIS_URL: --redis, "), "{text}");
    }
    for (name, value, instead) in [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "xDS is missing"),
        ("BACKEND_TYPE", "memcache", "--redis"),
        ("REDIS_AUTH", "the-password", "the URL of --redis"),
        ("REDIS_PERSECOND", "true", "one Redis"),
        ("CACHE_KEY_PREFIX", "shop", "`prefix` in [store.redis]"),
        ("REDIS_TLS_CACERT", "/ca.pem", "SSL_CERT_FILE"),
        ("REDIS_TLS_CLIENT_CERT", "/cert.pem", "client certificate"),
        ("GRPC_SERVER_USE_TLS", "true", "a proxy"),
        ("GRPC_UDS", "/tmp/ratelimit.sock", "--grpc"),
        ("GRPC_PORT", "9090", "--grpc"),
        ("PORT", "80", "--http"),
        ("QUOTA_MODE", "true", "`quota-mode` in [envoy]"),
        ("RESPONSE_DYNAMIC_METADATA", "true", "`dynamic-metadata` in [envoy]"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true", "`enable_x_ratelimit_headers`"),
    ] {
        let (passed, text) = check(&[&files[..], &[(name, value)]].concat(), &[]);
        let line = text.lines().find(|line| line.contains(&format!("  {name}: ")));
        assert!(!passed && line.is_some_and(|line| line.contains(instead)), "{name}: {text}");
        assert!(!text.contains("the-password"), "{text}");
    }
    // The settings that they ask for.
    let folder = Path::new(&root).join("ratelimit/config");
    let limits = ["--envoy-config", folder.to_str().unwrap()];
    let (passed, text) = check(&files, &limits);
    assert!(passed && text.contains("1 domain") && text.contains("no effect"), "{text}");
    let service = Service::start(&limits);
    assert_eq!([(); 4].map(|()| status(&service)), [200, 200, 200, 429]);
}

#[test]
fn the_demo_policy_is_not_started_in_a_container_of_theirs() {
    for variable in [
        ("REDIS_URL", "redis:6379"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("SHADOW_MODE", "true"),
        ("RUNTIME_ROOT", "/nowhere"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ] {
        let (passed, text) = check(&[variable], &[]);
        assert!(!passed && text.contains("allowed is"), "{variable:?}: {text}");
    }
    // Variables that containers have for other reasons.
    let common =
        [("PORT", "80"), ("HOST", "::"), ("LOG_LEVEL", "warn"), ("GRPC_PORT", "tcp://x:1")];
    let (passed, text) = check(&common, &[]);
    assert!(passed && text.contains("1 policy"), "{text}");
    // Limits that a flag names are not changed, and it says so.
    let folder = directory();
    let limits = folder.join("limits.toml");
    fs::write(&limits, "policies.api = '5/s'").unwrap();
    let limits = limits.to_str().unwrap();
    let theirs = [("RUNTIME_ROOT", "/nowhere"), ("REDIS_URL", "redis:6379"), ("SHADOW_MODE", "x")];
    let (passed, text) = check(&theirs, &["--config", limits]);
    let expected = "no effect beside --config: RUNTIME_ROOT, REDIS_URL, SHADOW_MODE";
    assert!(passed && text.contains("1 policy") && text.contains(expected), "{text}");
    let (passed, text) = check(&[("REDIS_URL", "redis:6379")], &["--config", limits]);
    assert!(passed && !text.contains("warning"), "{text}");
}

#[test]
fn a_start_without_limits_is_an_error() {
    let folder = directory();
    let path = folder.to_str().unwrap();
    let hidden = |name: &str| fs::write(folder.join(name), LIMITS).unwrap();
    hidden(".shop.yaml");
    for flags in [["--config", path], ["--envoy-config", path]] {
        let (passed, text) = check(&[], &flags);
        assert!(!passed && text.contains("has no file"), "{flags:?}: {text}");
        assert!(text.contains("does not begin with a dot"), "{flags:?}: {text}");
    }
    fs::remove_file(folder.join(".shop.yaml")).unwrap();
    fs::write(folder.join("empty.yaml"), "# later\n").unwrap();
    for flags in [["--config", path], ["--envoy-config", path]] {
        assert!(!check(&[], &flags).0, "{flags:?}");
    }
    for list in ["config", "envoy-config"] {
        let settings = folder.join("settings.toml");
        fs::write(&settings, format!("{list} = []")).unwrap();
        let (passed, text) = check(&[], &["--settings", settings.to_str().unwrap()]);
        assert!(!passed && text.contains("one path or more"), "{text}");
    }
}

/// Files of plimsoll need an end that says their format. Others are refused with their names.
#[test]
fn no_file_of_a_folder_is_left_out() {
    let folder = directory();
    let path = folder.to_str().unwrap();
    fs::create_dir(folder.join("team")).unwrap();
    let write = |name: &str, text: &str| fs::write(Path::new(path).join(name), text).unwrap();
    write("a.toml", "policies.a = '1/s'");
    write("team/b.yaml", "policies: { b: 1/s }");
    let (passed, text) = check(&[], &["--config", path]);
    assert!(passed && text.contains("2 policies"), "{text}");
    // A hidden one is named.
    write(".draft.toml", "policies.c = '1/s'");
    fs::create_dir(folder.join("..2026")).unwrap();
    let (passed, text) = check(&[], &["--config", path]);
    let expected = "warning: not read, because the names begin with a dot: ";
    assert!(passed && text.contains("2 policies") && text.contains(expected), "{text}");
    assert!(text.trim_end().ends_with("/.draft.toml"), "{text}");
    for name in ["c.conf", "c.YAML", "c", "README.md", "a.toml~"] {
        write(name, "policies.c = '1/s'");
        let (passed, text) = check(&[], &["--config", path]);
        assert!(!passed && text.contains(&format!("/{name})")), "{name}: {text}");
        assert!(text.contains("allowed are .toml, .yaml, .yml and .json"), "{text}");
        fs::remove_file(folder.join(name)).unwrap();
    }
    // A file of envoyproxy/ratelimit is no file of plimsoll, whatever its name is.
    write("shop.conf", LIMITS);
    let (passed, text) = check(&[], &["--config", path]);
    assert!(!passed && text.contains("--envoy-config names the files of envoyproxy"), "{text}");
    fs::remove_file(folder.join("shop.conf")).unwrap();
    write("shop.yaml", LIMITS);
    let (passed, text) = check(&[], &["--config", path]);
    assert!(!passed && text.contains("`domain`") && text.contains("/shop.yaml:1:1"), "{text}");
}

/// Without this number, an instance that has never reached Redis admits the whole limit.
#[test]
fn instances_without_redis_admit_their_share_if_a_file_says_how_many_they_are() {
    let (folder, root) = (directory(), root());
    let limits = folder.join("limits.toml");
    fs::write(&limits, "policies = {}\n\n[resilience]\ninstances = 3\n").unwrap();
    let flags = [
        &["--config", limits.to_str().unwrap(), "--envoy-config", &root][..],
        &["--redis", "redis://127.0.0.1:1/", "--redis-lazy"],
    ]
    .concat();
    for _ in 0..2 {
        let service = Service::start(&flags);
        assert_eq!([(); 2].map(|()| status(&service)), [200, 429]);
    }
}

/// The variables of `src/settings/settings.go`, which the page lists.
const VARIABLES: &str = "BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS \
    CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID \
    CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL \
    CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL \
    CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS \
    EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG \
    GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE \
    GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY \
    GRPC_SERVER_USE_TLS GRPC_UDS HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER \
    LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER LIMIT_RESPONSE_HEADERS_ENABLED \
    LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS \
    MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT \
    MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG \
    NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH \
    PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE REDIS_AUTH \
    REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND \
    REDIS_PERSECOND_AUTH REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM \
    REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_PIPELINE_WINDOW \
    REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE \
    REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT \
    REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT \
    REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH \
    REDIS_SOCKET_TYPE REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME \
    REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT \
    REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL \
    RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT \
    RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT \
    STATS_FLUSH_INTERVAL STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED \
    TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID \
    TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS \
    USE_PROMETHEUS USE_STATSD XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER \
    XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR \
    XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

#[test]
fn the_page_lists_each_variable_once() {
    let page = include_str!("../../docs/moving-from-envoy-ratelimit.md");
    let table = page.split("| variable of envoyproxy/ratelimit | here |").nth(1).unwrap();
    let names = table.lines().filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let mut names: Vec<_> =
        names.flat_map(|names| names.split(", ")).map(|name| name.trim_matches('`')).collect();
    names.sort_unstable();
    let expected: Vec<_> = VARIABLES.split_whitespace().collect();
    assert_eq!((names.len(), names), (114, expected));
}
