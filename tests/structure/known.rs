//! Exceptions from the rules of `files`. Each list is exact: an entry that is not needed any more fails the test.

/// Files below 40 lines of code, each with its cause.
pub(crate) const SMALL: &[(&str, &str)] = &[
    ("guide", "the pages of the guide"),
    ("random", "the crate's one source of random numbers"),
    ("remote/fingerprint", "the hash by which both the deny cache and the leases find a charge"),
    ("runtime/moving_average", "the average of the times of the store and of this process"),
    (
        "remote/probe",
        "the guarded store as its prober uses it, which the path of a request does not",
    ),
    ("sync", "the locks that all folders use"),
    ("telemetry/macros", "a macro is defined before the files that use it"),
];

/// Files that import each other, each group with its cause.
pub(crate) const CIRCLES: &[(&str, &str)] = &[];

/// Violations that are to go.
pub(crate) const KNOWN: &[&str] = &[];
