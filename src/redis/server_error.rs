//! The errors that a server answers, and their conversion to errors of the crate.

use redis::{ErrorKind as Cause, RedisError};

use crate::error::{Error, ErrorKind};

/// The rights that the Redis user needs, in the syntax of `ACL SETUSER`.
const REQUIRED_RIGHTS: &str = "grant the user ~<prefix>:* +evalsha +eval +time +get +set +getrange \
                               +setrange +pexpireat +pttl +del, in a cluster +asking +cluster|slots, \
                               behind Sentinel +role";

/// The code of an error that the script itself has raised, instead of a command in it.
pub(super) const FAILED_SCRIPT: &str = "user_script";

/// The code that `lua/checks.lua` puts before the name of a key that holds something else.
pub(super) const FOREIGN_KEY: &str = "PLIMSOLL";

/// The code that `lua/self_test.lua` puts before the name of a command and the error of that command.
const SELF_TEST: &str = "SELFTEST";

/// The most characters of a server's words that an error repeats.
const MAX_QUOTED_CHARS: usize = 160;

/// Converts the error that a server answered.
pub(super) fn server_error(error: RedisError) -> Error {
    let (kind, message) = match code_of(&error) {
        _ if error.kind() == Cause::InvalidClientConfig => {
            let message = "the address of Redis is not valid, allowed is \
                           redis://[user[:password]@]host[:port][/db], rediss:// for TLS, or \
                           unix:///path, with `/`, `?`, `#`, `@` and `%` of a user or a password \
                           percent-encoded: %2F, %3F, %23, %40, %25";
            return Error::new(ErrorKind::Invalid, message).with_source(error);
        }
        _ if is_too_old(&error) => (
            ErrorKind::Unsupported,
            "this Redis is too old: Redis 6.2 or newer is needed, or Valkey; nothing was charged",
        ),
        "WRONGPASS" | "NOAUTH" => (
            ErrorKind::Unauthorized,
            "Redis does not accept the user or the password: check them in the URL",
        ),
        "NOPERM" => {
            let said = quoted(&error);
            let message = format!("this Redis user lacks rights: {REQUIRED_RIGHTS}: {said}");
            return Error::new(ErrorKind::Unauthorized, message).with_source(error);
        }
        "READONLY" => (
            ErrorKind::ReadOnly,
            "this Redis is a read-only replica: connect to the primary, or through Sentinel or \
             the cluster, which follow it; nothing was charged",
        ),
        "OOM" => (
            ErrorKind::OutOfMemory,
            "Redis is out of memory: raise maxmemory, or let it evict (maxmemory-policy \
             volatile-ttl); nothing was charged",
        ),
        "MISCONF" => (
            ErrorKind::CannotPersist,
            "Redis cannot write its data to disk and refuses all changes: make room there, or see \
             in its log what else is wrong; nothing was charged",
        ),
        "LOADING" => {
            (ErrorKind::Loading, "Redis is still loading its data: wait; nothing was charged")
        }
        "WRONGTYPE" | FOREIGN_KEY => (
            ErrorKind::WrongType,
            "a key of the limiter holds something else: choose another prefix, or delete it; it \
             was left as it is and nothing was charged",
        ),
        // The server works: only checks of this key fail.
        FAILED_SCRIPT => (
            ErrorKind::WrongType,
            "the limiter's script cannot read the state of a key: delete the key, or choose another \
             prefix",
        ),
        "CLUSTERDOWN" => (
            ErrorKind::Unavailable,
            "this Redis cluster is down, because nodes are missing: start them, or set \
             cluster-require-full-coverage no, so that the others go on; nothing was charged",
        ),
        _ if lacks_database(&error) => (
            ErrorKind::Unsupported,
            "this Redis has no database with the number at the end of the URL: its setting `databases` \
             is the count, 16 by default, and the numbers begin at 0; a cluster has only 0",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            ErrorKind::Unsupported,
            "this Redis is one node of a cluster: connect with RedisConfig::cluster, which knows \
             where each key is; nothing was charged",
        ),
        _ => (ErrorKind::Unavailable, "Redis refused the request"),
    };
    Error::new(kind, format!("{message}: {}", quoted(&error))).with_source(error)
}

/// Returns whether the server lacks a command or an option that Redis 6.2 has.
fn is_too_old(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    if detail.starts_with("unknown command") && detail.to_ascii_uppercase().contains("HELLO") {
        return true;
    }
    // The arguments of a self-test are fixed, so a syntax error is `SET .. PXAT` before Redis 6.2.
    let lacks_option = error.code() == Some(SELF_TEST) && detail.contains("syntax error");
    lacks_option || error.kind() == Cause::RESP3NotSupported
}

/// Returns whether the server has no database with the number that was selected.
fn lacks_database(error: &RedisError) -> bool {
    let said = ["DB index is out of range", "SELECT is not allowed in cluster mode"];
    error.detail().is_some_and(|detail| said.iter().any(|said| detail.starts_with(said)))
}

/// Returns the name of the key that holds something else, if `lua/checks.lua` has named it.
pub(super) fn foreign_key(error: &RedisError) -> Option<&str> {
    let detail = error.detail().filter(|_| error.code() == Some(FOREIGN_KEY))?;
    detail.strip_suffix(" does not hold a state of this limiter")
}

/// Returns whether the user lacks the right to a command of the script, and not to the script itself.
/// Redis checks each command when the script comes to it.
pub(super) fn is_refused_in_script(error: &RedisError) -> bool {
    code_of(error) == "NOPERM"
        && (error.code() == Some("ERR")
            || error.detail().is_some_and(|detail| detail.contains("@user_script")))
}

/// Returns the code of a server's error, its first word. Nothing else is read, because the rest may
/// contain names of keys, which clients choose.
pub(super) fn code_of(error: &RedisError) -> &str {
    let code = match error.code() {
        Some(code) => code,
        None if error.kind() == Cause::AuthenticationFailed => return "WRONGPASS",
        None => return "",
    };
    match (code, error.detail()) {
        ("ERR", Some(detail)) => code_in(detail),
        (SELF_TEST, Some(detail)) => {
            let said = detail.split_once(' ').map_or(detail, |(_, said)| said);
            code_in(said.strip_prefix("ERR ").unwrap_or(said))
        }
        _ => code,
    }
}

/// Returns the code in the text of an error with the code `ERR`, which is `ERR` if there is no other.
fn code_in(mut detail: &str) -> &str {
    // Redis 6.2 puts "ERR Error running script (call to f_..): @user_script:7: " before the error
    // of a command in the script, and "@user_script: 7: " in a self-test.
    if let Some(call) = detail.strip_prefix("Error running script (call to ")
        && let Some((_, rest)) = call.split_once("): ")
    {
        detail = rest;
    }
    while let Some(rest) = detail.strip_prefix("@user_script:") {
        detail = rest.trim_start_matches(|c: char| c == ' ' || c == ':' || c.is_ascii_digit());
    }
    if detail.starts_with("user_script:") {
        return FAILED_SCRIPT;
    }
    let lacks_right = ["The user executing the script can't", "ACL failure in script"]
        .map(|it| detail.starts_with(it));
    match detail.trim_start_matches('-').split(' ').next() {
        _ if lacks_right.contains(&true) => "NOPERM",
        Some(word) if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            word
        }
        _ => "ERR",
    }
}

/// Returns the words of the server or of the system, quoted, for a log: without addresses, paths and
/// names of keys, and at most [`MAX_QUOTED_CHARS`] characters.
pub(super) fn quoted(error: &RedisError) -> String {
    let said = match (error.code(), error.detail()) {
        (Some(SELF_TEST), Some(detail)) => detail.to_owned(),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    let mut quoted = String::from("\"");
    let mut room = MAX_QUOTED_CHARS;
    for word in
        said.split(|c: char| c.is_whitespace() || c.is_control()).filter(|it| !it.is_empty())
    {
        let word = if may_identify(word) { ".." } else { word };
        let Some(rest) = room.checked_sub(word.chars().count() + 1) else {
            quoted.push_str(" ..");
            break;
        };
        room = rest;
        let separator = if quoted.len() > 1 { " " } else { "" };
        quoted.push_str(separator);
        quoted.extend(word.chars().map(|c| match c {
            '"' => '\'',
            c if c.is_ascii_graphic() => c,
            _ => '?',
        }));
    }
    quoted.push('"');
    quoted
}

/// Returns whether a word may be the name of a key, an address, a path, or a part of one. Every name
/// of a key contains a brace and a colon, and is one word. TLS puts names of hosts in double quotes.
fn may_identify(word: &str) -> bool {
    let inner =
        word.trim_matches(|c: char| matches!(c, '.' | ',' | ':' | ';' | '(' | ')' | '\'' | '"'));
    word.contains('"')
        || inner.contains(['{', '}', '/', '@', '.', ':', '=', '\\'])
        || inner.chars().count() > 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::error::Failure;

    /// Returns the kind of a server's error.
    fn kind_of(line: &str) -> ErrorKind {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error");
        let error = value.extract_error().expect_err("an error");
        Error::from(Failure::of_request(error)).kind()
    }

    #[test]
    fn the_code_decides() {
        let memory = "OOM command not allowed when used memory > 'maxmemory'.";
        let wrapped = |said: &str| {
            format!("ERR Error running script (call to f_0123456789): @user_script:71: {said}")
        };
        for (line, kind) in [
            (memory.into(), ErrorKind::OutOfMemory),
            (wrapped(memory), ErrorKind::OutOfMemory),
            (wrapped(&format!("@user_script: 71: -{memory}")), ErrorKind::OutOfMemory),
            ("WRONGTYPE Operation against a key".into(), ErrorKind::WrongType),
            (
                "ERR user_script:7: data string too short script: 67e8, on @user_script:7.".into(),
                ErrorKind::WrongType,
            ),
            (wrapped("user_script:71: data string too short"), ErrorKind::WrongType),
            (wrapped("WRONGTYPE Operation against a key"), ErrorKind::WrongType),
            (wrapped("READONLY You can't write"), ErrorKind::ReadOnly),
            (
                wrapped("@user_script: 7: The user executing the script can't run this command"),
                ErrorKind::Unauthorized,
            ),
            (
                "ERR The user executing the script can't run this command script: 67e81a9d".into(),
                ErrorKind::Unauthorized,
            ),
            (
                "ERR ACL failure in script: User weak has no permissions to run the 'get' command \
                 script: on @user_script:1."
                    .into(),
                ErrorKind::Unauthorized,
            ),
            ("NOPERM No permissions to access the 'OOM' key".into(), ErrorKind::Unauthorized),
            ("NOAUTH Authentication required.".into(), ErrorKind::Unauthorized),
            ("WRONGPASS invalid username-password pair".into(), ErrorKind::Unauthorized),
            ("LOADING Redis is loading the dataset in memory".into(), ErrorKind::Loading),
        ] {
            assert_eq!(kind_of(&line), kind, "{line}");
        }
    }

    #[test]
    fn a_name_of_a_key_does_not() {
        let words = ["OOM", "NOAUTH", "NOPERM", "READONLY", "LOADING", "WRONGTYPE", "PLIMSOLL"];
        for word in words {
            let key =
                format!("plim:{{={word} @user_script:1: {word} can't run this command}}:p:l1");
            for line in [
                format!("ERR something about {key}"),
                format!("BUSYKEY {key}"),
                format!("ERR Error running script (call to f_01): @user_script:7: odd {key}"),
            ] {
                assert_eq!(kind_of(&line), ErrorKind::Unavailable, "{line}");
            }
        }
    }

    fn error_of(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error");
        value.extract_error().expect_err("an error")
    }

    #[test]
    fn the_error_of_a_self_test_names_the_command() {
        for (line, kind, said) in [
            (
                "SELFTEST DEL ERR The user executing the script can't run this command or subcommand",
                ErrorKind::Unauthorized,
                "\"DEL ERR The user executing the script can't run this command or subcommand\"",
            ),
            (
                "SELFTEST SET @user_script: 7: -OOM command not allowed",
                ErrorKind::OutOfMemory,
                "\"SET .. 7: -OOM command not allowed\"",
            ),
            (
                "SELFTEST SET READONLY You can't write against a read only replica.",
                ErrorKind::ReadOnly,
                "\"SET READONLY You can't write against a read only replica.\"",
            ),
            ("SELFTEST SET ERR syntax error", ErrorKind::Unsupported, "6.2 or newer is needed"),
        ] {
            let error = server_error(error_of(line));
            assert_eq!(error.kind(), kind, "{line}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn words_that_may_identify_are_left_out() {
        for (line, said) in [
            ("MOVED 3999 10.1.2.3:6381", "\"MOVED 3999 ..\""),
            ("ERR odd plim:{=alice}:p:l1 there", "\"ERR odd .. there\""),
            (
                "ERR cannot write /var/lib/redis, so 'redis.internal'",
                "\"ERR cannot write .. so ..\"",
            ),
            ("ERR at ::1 or [fe80::1]:6379", "\"ERR at ::1 or ..\""),
            ("ERR not for \"cache\"; only for DnsName(\"db\")", "\"ERR not for .. only for ..\""),
        ] {
            assert_eq!(quoted(&error_of(line)), said);
        }
        let long = quoted(&error_of(&format!("ERR {}", "word ".repeat(1_000))));
        assert!(long.chars().count() <= MAX_QUOTED_CHARS + 5 && long.ends_with(" ..\""), "{long}");
    }
}
