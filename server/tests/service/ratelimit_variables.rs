//! The environments of published container files of envoyproxy/ratelimit. Each has the limits of its files, or the
//! service does not start.

use std::{fs, path::Path};

use plimsoll_testing::servers::{Server, directory};

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

#[test]
fn the_limits_of_a_published_container_file_are_in_force_and_shared() {
    let (root, redis) = (root(), Server::start());
    let url = format!("127.0.0.1:{}", redis.port);
    // docker-compose-example.yml of the project, and the deployment of a service mesh.
    let example: &[(&str, &str)] = &[
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "statsd"),
        ("STATSD_PORT", "9125"),
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &url),
        ("RUNTIME_ROOT", &root),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_TYPE", "FILE"),
        ("CONFIG_GRPC_XDS_NODE_ID", "test-node-id"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "ratelimit-xds-config-server:18000"),
    ];
    let mesh: &[(&str, &str)] = &[
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &url),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", &root),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
    ];
    let services = [example, mesh].map(|variables| Service::start_with(&[], variables));
    let [one, other] = &services;
    assert_eq!([one, other, one, other].map(status), [200, 200, 200, 429]);
    // The switches act too.
    let shadow = Service::start_with(&[], &[mesh, &[("SHADOW_MODE", "true")]].concat());
    assert_eq!(status(&shadow), 200);
}

#[test]
fn each_kind_of_redis_is_named_in_their_way() {
    let root = root();
    for (variables, is_valid) in [
        (&[("REDIS_URL", "127.0.0.1:1")][..], true),
        (&[("REDIS_URL", "127.0.0.1:1"), ("REDIS_TLS", "true")], true),
        (&[("REDIS_URL", "127.0.0.1:1"), ("REDIS_AUTH", "user:p@ss/w#rd")], true),
        (&[("REDIS_URL", "127.0.0.1:1"), ("REDIS_AUTH", "p@ss/w#rd")], true),
        (&[("REDIS_URL", "redis://127.0.0.1:1/")], true),
        (&[("REDIS_URL", "/run/redis.sock"), ("REDIS_SOCKET_TYPE", "unix")], true),
        (&[("REDIS_URL", "127.0.0.1:1,127.0.0.1:2"), ("REDIS_TYPE", "CLUSTER")], true),
        (
            &[
                ("REDIS_URL", "main,127.0.0.1:1,127.0.0.1:2"),
                ("REDIS_TYPE", "SENTINEL"),
                ("REDIS_AUTH", "the-password"),
                ("REDIS_SENTINEL_AUTH", "another"),
            ],
            true,
        ),
        (&[], false),
        (&[("REDIS_URL", "main"), ("REDIS_TYPE", "sentinel")], false),
        (&[("REDIS_URL", "127.0.0.1:1"), ("REDIS_TYPE", "ring")], false),
        (&[("REDIS_URL", "127.0.0.1:1"), ("REDIS_TLS", "yes")], false),
        (&[("REDIS_URL", "/run/redis.sock"), ("REDIS_AUTH", "the-password")], false),
    ] {
        let files = [("RUNTIME_ROOT", &*root), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
        let (passed, text) = check(&[&files, variables].concat(), &[]);
        assert_eq!(passed, is_valid, "{variables:?}: {text}");
        let expected = if is_valid { "1 domain of envoyproxy" } else { "allowed is" };
        assert!(text.contains(expected), "{variables:?}: {text}");
        assert!(!text.contains("the-password"), "{text}");
    }
    let redis = Server::start_in(&[], &["--requirepass", "p@ss/w#rd"]);
    let url = format!("127.0.0.1:{}", redis.port);
    let service = Service::start_with(
        &[],
        &[
            ("RUNTIME_ROOT", &root),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("REDIS_URL", &url),
            ("REDIS_AUTH", "p@ss/w#rd"),
        ],
    );
    assert_eq!([(); 4].map(|()| status(&service)), [200, 200, 200, 429]);
}

#[test]
fn a_variable_that_cannot_be_followed_says_what_to_set() {
    let root = root();
    let files = [
        ("RUNTIME_ROOT", &*root),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("REDIS_URL", "127.0.0.1:1"),
    ];
    for (name, value, instead) in [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "xDS is missing"),
        ("BACKEND_TYPE", "memcache", "--redis"),
        ("REDIS_PERSECOND", "true", "one Redis"),
        ("CACHE_KEY_PREFIX", "shop", "`prefix` in [store.redis]"),
        ("REDIS_TLS_CACERT", "/ca.pem", "SSL_CERT_FILE"),
        ("REDIS_TLS_CLIENT_CERT", "/cert.pem", "client certificate"),
        ("GRPC_SERVER_USE_TLS", "true", "a proxy"),
        ("GRPC_UDS", "/tmp/ratelimit.sock", "--grpc"),
        ("GRPC_PORT", "9090", "--grpc"),
        ("PORT", "80", "--http"),
        ("NEAR_LIMIT_RATIO", "80", "0 to 1"),
        ("QUOTA_MODE", "on", "true or false"),
    ] {
        let (passed, text) = check(&[&files[..], &[(name, value)]].concat(), &[]);
        assert!(!passed && text.contains(name) && text.contains(instead), "{name}: {text}");
    }
    // Values that ask for nothing, and ports that are those of the flags.
    let harmless = [
        ("CONFIG_TYPE", "FILE"),
        ("BACKEND_TYPE", "redis"),
        ("REDIS_PERSECOND", "false"),
        ("GRPC_PORT", "9090"),
        ("PORT", "8080"),
        ("NEAR_LIMIT_RATIO", "0.8"),
    ];
    let (passed, text) =
        check(&[&files[..], &harmless[..]].concat(), &["--grpc", "127.0.0.1:9090"]);
    assert!(passed, "{text}");
    // All are named at once.
    let two = [("GRPC_UDS", "/tmp/ratelimit.sock"), ("BACKEND_TYPE", "memcache")];
    let (_, text) = check(&[&files[..], &two[..]].concat(), &[]);
    assert!(text.contains("GRPC_UDS: ") && text.contains("BACKEND_TYPE: "), "{text}");
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
    // A folder that is not there.
    let (passed, text) = check(&[("RUNTIME_ROOT", "/nowhere"), ("REDIS_URL", "127.0.0.1:1")], &[]);
    assert!(!passed && text.contains("/nowhere/config"), "{text}");
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
    for flags in [&["--config", path][..], &["--envoy-config", path], &["--lint-envoy", path]] {
        let (passed, text) = check(&[], flags);
        assert!(!passed && text.contains("has no file"), "{flags:?}: {text}");
        assert!(text.contains("does not begin with a dot"), "{flags:?}: {text}");
    }
    fs::remove_file(folder.join(".shop.yaml")).unwrap();
    fs::write(folder.join("empty.yaml"), "# later\n").unwrap();
    for flags in [["--config", path], ["--envoy-config", path], ["--lint-envoy", path]] {
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
    for name in ["c.conf", "c.YAML", "c", "README.md", "a.toml~"] {
        write(name, "policies.c = '1/s'");
        let (passed, text) = check(&[], &["--config", path]);
        assert!(!passed && text.contains(&format!("/{name})")), "{name}: {text}");
        assert!(text.contains("allowed are .toml, .yaml, .yml and .json"), "{text}");
        fs::remove_file(folder.join(name)).unwrap();
    }
    // A folder has one format, and the error names the files of each.
    write("shop.conf", LIMITS);
    let (passed, text) = check(&[], &["--config", path]);
    assert!(!passed && text.contains("a folder for each format"), "{text}");
    assert!(text.contains("/shop.conf)") && text.contains("/a.toml, "), "{text}");
    fs::remove_file(folder.join("a.toml")).unwrap();
    fs::remove_file(folder.join("team/b.yaml")).unwrap();
    write("team/other", &LIMITS.replace("shop", "other"));
    let (passed, text) = check(&[], &["--config", path]);
    assert!(passed && text.contains("2 domains"), "{text}");
}
