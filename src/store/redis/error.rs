//! The failures of a request to Redis, and their conversion to errors.

use redis::{ErrorKind as Cause, RedisError, ServerErrorKind as Server};

use crate::error::{Effect, Error, ErrorKind};

/// The reason for which a request has failed.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// There is no connection. Nothing was sent.
    Unreachable(RedisError),
    /// The connection was lost, or the response timeout passed, after the request was sent.
    Lost(RedisError),
    /// The server answered with an error. Nothing was charged, unless the script failed half-way.
    ServerError(RedisError),
    /// The server answered with a value that is not the script's reply.
    NotOurs,
    /// The deadline of the caller passed. The effect is [`Effect::None`] if the request was not
    /// sent.
    TimedOut(Effect),
    /// The task that sends the request with a batch ended before it did. Nothing was sent.
    Dropped,
    /// The request was made outside of a tokio runtime, where there are no timers. Nothing was sent.
    NoRuntime,
}

/// The destination to which a cluster node redirects a request.
pub(super) enum Redirect {
    /// The node at this address, from now on.
    Moved(String),
    /// The node at this address, for this request only.
    Ask(String),
    /// The same node, as soon as the keys have been moved.
    Later,
}

impl Failure {
    /// Classifies the error of a request that was sent.
    pub(super) fn of_request(error: RedisError) -> Self {
        match error.kind() {
            Cause::Io | Cause::Parse => Self::Lost(error),
            _ => Self::ServerError(error),
        }
    }

    /// Returns the effect that the request may have had.
    ///
    /// The script reads and checks everything before it writes anything, so a server error means
    /// that nothing was charged. The exceptions are a script that fails on a damaged key, with the
    /// code `ERR`, and one whose user lacks the right to one of its commands: it may have written
    /// before.
    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Unreachable(_) | Self::Dropped | Self::NoRuntime => Effect::None,
            Self::ServerError(error) if is_refused_in_script(error) => Effect::Unknown,
            Self::ServerError(error) if code_of(error) != "ERR" => Effect::None,
            Self::ServerError(_) | Self::Lost(_) | Self::NotOurs => Effect::Unknown,
            Self::TimedOut(effect) => *effect,
        }
    }

    /// Returns whether the server has lost the script.
    pub(super) fn is_missing_script(&self) -> bool {
        matches!(self, Self::ServerError(error) if error.kind() == Cause::Server(Server::NoScript))
    }

    /// Returns whether the connection must be replaced.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            // After a timeout the reply may still arrive, in its order.
            Self::Lost(error) => !error.is_timeout(),
            Self::ServerError(error) => matches!(code_of(error), "READONLY" | "NOAUTH"),
            // There may be one reply too many. Each later reply would then belong to another
            // request.
            Self::NotOurs => true,
            Self::TimedOut(_) | Self::Dropped | Self::NoRuntime => false,
        }
    }

    /// Returns whether a node of a cluster cannot serve the request, so that another node may have
    /// taken over its slots. The request had no effect.
    pub(super) fn calls_for_another_node(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::ServerError(error) => {
                let code = code_of(error);
                matches!(code, "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "NOAUTH")
            }
            _ => false,
        }
    }

    /// Returns whether the checks of a batch with this failure are sent again one by one. The batch
    /// had no effect, and some of its checks may succeed alone:
    ///
    /// - while a slot moves, some of its keys are on this node and some on another one;
    /// - a server that cannot write still decides the checks that are denied, because a denial
    ///   writes nothing.
    pub(super) fn may_spare_single_checks(&self) -> bool {
        let Self::ServerError(error) = self else { return false };
        matches!(self.redirect(), Some(Redirect::Later))
            || matches!(code_of(error), "OOM" | "MISCONF" | "READONLY")
    }

    /// Returns the destination to which a cluster node redirects the request, if it does.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::ServerError(error) = self else { return None };
        let address = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            Cause::Server(Server::Moved) => address().map(Redirect::Moved),
            Cause::Server(Server::Ask) => address().map(Redirect::Ask),
            Cause::Server(Server::TryAgain) => Some(Redirect::Later),
            _ => None,
        }
    }
}

/// The rights that the Redis user needs, in the syntax of `ACL SETUSER`.
const REQUIRED_RIGHTS: &str = "grant the user ~<prefix>:* +evalsha +eval +time +get +set +getrange \
                      +setrange +pexpire +pexpireat +del, in a cluster +asking +cluster|slots, behind \
                      Sentinel +role";

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let effect = failure.effect();
        let error = match failure {
            Failure::ServerError(error) => server_error(error),
            Failure::Unreachable(error) if error.kind() != Cause::Io => server_error(error),
            Failure::Unreachable(error) => Self::new(
                ErrorKind::Unavailable,
                "cannot connect to Redis: check that it runs and that the address is right; \
                 nothing was charged",
            )
            .with_source(error),
            Failure::Lost(error) if error.kind() == Cause::Parse => Self::new(
                ErrorKind::Protocol,
                "the server does not speak the Redis protocol: check the address",
            )
            .with_source(error),
            Failure::Lost(error) => {
                let message = if error.is_timeout() {
                    "Redis did not answer in time; the charge may have been made"
                } else {
                    "the connection to Redis was lost; the charge may have been made"
                };
                Self::new(ErrorKind::Unavailable, message).with_source(error)
            }
            Failure::NotOurs => Self::new(
                ErrorKind::Protocol,
                "the reply is not that of the limiter's script: something between here and Redis \
                 answers in its place",
            ),
            Failure::TimedOut(Effect::None) => Self::new(
                ErrorKind::Unavailable,
                "the deadline passed before there was a connection to Redis; nothing was charged",
            ),
            Failure::TimedOut(_) => Self::new(
                ErrorKind::Unavailable,
                "Redis did not answer by the deadline; the charge may have been made",
            ),
            Failure::Dropped => Self::new(
                ErrorKind::Unavailable,
                "the task that would have sent the check has ended; nothing was charged",
            ),
            Failure::NoRuntime => Self::new(
                ErrorKind::Unavailable,
                "RedisStore only works in a tokio runtime, in which the check has to be awaited; \
                 nothing was charged",
            ),
        };
        error.with_effect(effect)
    }
}

/// Converts the error that a server answered.
fn server_error(error: RedisError) -> Error {
    let (kind, message) = match code_of(&error) {
        _ if error.kind() == Cause::InvalidClientConfig => (
            ErrorKind::Invalid,
            "the address of Redis is not valid: it is redis://[user[:password]@]host[:port][/db], \
             rediss:// for TLS, or unix:///path"
                .into(),
        ),
        "WRONGPASS" | "NOAUTH" => {
            let message = "Redis does not accept the user or the password: check them in the URL";
            (ErrorKind::Unauthorized, message.into())
        }
        "NOPERM" => {
            (ErrorKind::Unauthorized, format!("this Redis user lacks rights: {REQUIRED_RIGHTS}"))
        }
        "READONLY" => {
            let message = "this Redis is a read-only replica: connect to the primary, or through \
                           Sentinel or the cluster, which follow it; nothing was charged";
            (ErrorKind::ReadOnly, message.into())
        }
        "OOM" => {
            let message = "Redis is out of memory: raise maxmemory, or let it evict \
                           (maxmemory-policy volatile-ttl); nothing was charged";
            (ErrorKind::OutOfMemory, message.into())
        }
        "MISCONF" => {
            let message = "Redis cannot write its data to disk and refuses all changes: make room \
                           there, or see in its log what else is wrong; nothing was charged";
            (ErrorKind::CannotPersist, message.into())
        }
        "LOADING" => {
            let message = "Redis is still loading its data: wait; nothing was charged";
            (ErrorKind::Loading, message.into())
        }
        "WRONGTYPE" | "TOLLGATE" => {
            let message = "a key of the limiter holds something else: choose another prefix, or \
                           delete it; it was left as it is and nothing was charged";
            (ErrorKind::WrongType, message.into())
        }
        "CLUSTERDOWN" => {
            let message = "this Redis cluster is down, because nodes are missing: start them, or \
                           set cluster-require-full-coverage no, so that the others go on; nothing \
                           was charged";
            (ErrorKind::Unavailable, message.into())
        }
        "MOVED" | "ASK" | "CROSSSLOT" => {
            let message = "this Redis is one node of a cluster: connect with RedisStore::cluster, \
                           which knows where each key is; nothing was charged";
            (ErrorKind::Unavailable, message.into())
        }
        _ => (ErrorKind::Unavailable, format!("Redis refused the request: {error}")),
    };
    Error::new(kind, message).with_source(error)
}

/// Returns whether the user lacks the right to a command of the script, and not to the script itself.
/// Redis checks each command when the script comes to it.
fn is_refused_in_script(error: &RedisError) -> bool {
    let is_in_script = || error.detail().is_some_and(|detail| detail.contains("@user_script"));
    code_of(error) == "NOPERM" && (error.code() == Some("ERR") || is_in_script())
}

/// Returns the code of a server's error, its first word. Nothing else is read, because the rest may
/// contain names of keys, which clients choose.
fn code_of(error: &RedisError) -> &str {
    let code = match error.code() {
        Some(code) => code,
        None if error.kind() == Cause::AuthenticationFailed => return "WRONGPASS",
        None => return "",
    };
    let Some(mut detail) = error.detail().filter(|_| code == "ERR") else { return code };
    // Redis 6.2 puts "ERR Error running script (call to f_..): @user_script:7: " before the error
    // of a command in the script.
    if let Some(call) = detail.strip_prefix("Error running script (call to ")
        && let Some((_, rest)) = call.split_once("): ")
    {
        detail = rest;
        while let Some(rest) = detail.strip_prefix("@user_script:") {
            detail = rest.trim_start_matches(|c: char| c == ' ' || c == ':' || c.is_ascii_digit());
        }
    }
    match detail.trim_start_matches('-').split(' ').next() {
        _ if detail.starts_with("The user executing the script can't") => "NOPERM",
        Some(word) if word.bytes().all(|byte| byte.is_ascii_uppercase()) => word,
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let words = ["OOM", "NOAUTH", "NOPERM", "READONLY", "LOADING", "WRONGTYPE", "TOLLGATE"];
        for word in words {
            let key =
                format!("toll:{{={word} @user_script:1: {word} can't run this command}}:p:l1");
            for line in [
                format!("ERR something about {key}"),
                format!("BUSYKEY {key}"),
                format!("ERR Error running script (call to f_01): @user_script:7: odd {key}"),
            ] {
                assert_eq!(kind_of(&line), ErrorKind::Unavailable, "{line}");
            }
        }
    }
}
