//! Exceptions from the rules of `files`. Each list is exact: an entry that is not needed any more fails the test.

/// Files below 40 lines of code, each with its cause.
pub(crate) const SMALL: &[(&str, &str)] = &[
    ("base64", "the encoding that names of keys and headers share"),
    ("decision/standing", "what an algorithm reports on a key, which stands below the algorithms"),
    (
        "decision/charge_reply",
        "the reply of an algorithm to a charge, which stands below the algorithms",
    ),
    ("policy/on_failure", "a public type, and what follows from it for a check"),
    ("algorithm/math", "the exact arithmetic of all algorithms"),
    ("guide", "the pages of the guide"),
    ("random", "the crate's one source of random numbers"),
    (
        "remote/instances",
        "the number of instances, which stands below the fallback and its announcer",
    ),
    ("remote/fingerprint", "the hash by which both the deny cache and the leases find a charge"),
    ("store/status", "public types for health pages, which are mostly documentation"),
    ("sync", "the locks that all folders use"),
    ("telemetry/macros", "a macro is defined before the files that use it"),
];

/// Files below 40 lines of code of the other crates, by the folder of the crate.
pub(crate) const SMALL_ELSEWHERE: &[(&str, &[(&str, &str)])] = &[
    (
        "control/src",
        &[
            ("admin/api/session", "the operator of a request, for all endpoints"),
            ("admin/config", "the public configuration of the page"),
            ("admin/page", "the files of the page, which are embedded"),
            ("admin/router", "the routes of the page, which are read together"),
            ("config/claims", "a public type, which layers of an application name"),
            ("config/document/parse", "the one place that knows the parsers"),
            ("config/file", "the file of a configuration, which only its follower reads again"),
            ("config/follower", "the rules over one limiter, which the layer and the reload share"),
            ("config/format", "a public type"),
            ("config/spec/headers", "one table of the file"),
            ("config/spec/within", "numbers with a range, for all tables of the file"),
            ("config/watch", "a task and its guard"),
            ("guide", "the pages of the guide"),
            ("offenders/offender", "a public type"),
        ],
    ),
    ("lookup/src", &[("telemetry", "the seam of two features")]),
    (
        "server/src",
        &[
            ("envoy/config/error", "a public type"),
            ("envoy/config/pattern", "the rule of `*`, which has no other place"),
            ("grpc", "the clients of the gRPC listener"),
            ("http/body", "the bodies of all endpoints"),
            ("http/reset", "one endpoint"),
            ("http/router", "the routes of the API, which are read together"),
            ("listen/phase", "the phases, which listeners and health share"),
            ("logs", "the one place that installs the log"),
            ("main", "the program; all else is in the library"),
            ("random", "the crate's one source of random numbers"),
            ("settings/error", "a public type"),
            ("settings/secrets", "the one place that reads secrets"),
            ("signals", "the one place that receives signals"),
        ],
    ),
];
