//! What a server or a connection says went wrong, and what that means for the caller.

use redis::{ErrorKind as Cause, RedisError, ServerErrorKind as Server};

use crate::error::{Effect, Error, ErrorKind};

/// What came instead of an answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// No connection: nothing was sent.
    Unreachable(RedisError),
    /// A connection was lost, or an answer late, after the request may have been sent.
    Lost(RedisError),
    /// The server answered with an error: nothing was charged.
    ServerError(RedisError),
    /// An answer that is not the script's.
    NotOurs,
}

/// Where a cluster sends a request that came to the wrong node.
pub(super) enum Redirect {
    /// Here, and from now on.
    Moved(String),
    /// There, this time.
    Ask(String),
    /// Here, in a moment.
    Later,
}

impl Failure {
    pub(super) fn of_request(error: RedisError) -> Self {
        match error.kind() {
            Cause::Io | Cause::Parse => Self::Lost(error),
            _ => Self::ServerError(error),
        }
    }

    pub(super) fn is_missing_script(&self) -> bool {
        matches!(self, Self::ServerError(error) if error.kind() == Cause::Server(Server::NoScript))
    }

    /// Whether the connection is of no more use.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            // A late answer keeps the connection: it still comes, in its order.
            Self::Lost(error) => !error.is_timeout(),
            Self::ServerError(error) => matches!(code_of(error), "READONLY" | "NOAUTH"),
            // There may be one answer too many, and each that follows is another's.
            Self::NotOurs => true,
        }
    }

    /// Whether a call that several checks share has done nothing, and each can ask for itself: of keys
    /// that are just being moved some are here and some are there; and who is denied writes nothing,
    /// so that a server that refuses to write can still say so.
    pub(super) fn spares_some(&self) -> bool {
        let Self::ServerError(error) = self else { return false };
        matches!(self.redirect(), Some(Redirect::Later))
            || matches!(code_of(error), "OOM" | "MISCONF" | "READONLY")
    }

    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::ServerError(error) = self else { return None };
        let address = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            Cause::Server(Server::Moved) => address().map(Redirect::Moved),
            Cause::Server(Server::Ask) => address().map(Redirect::Ask),
            Cause::Server(Server::TryAgain | Server::ClusterDown | Server::MasterDown) => {
                Some(Redirect::Later)
            }
            _ => None,
        }
    }
}

const RIGHTS: &str = "grant the user ~<prefix>:* +evalsha +eval +time +get +set +getrange \
                      +setrange +pexpire +pexpireat +del, in a cluster +asking +cluster|slots, behind \
                      Sentinel +role";

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::ServerError(error) => refused(error),
            Failure::NotOurs => Self::new(
                ErrorKind::Protocol,
                "the answer is not that of the limiter's script: something between here and Redis \
                 answers in its place",
            )
            .with_effect(Effect::Unknown),
            Failure::Unreachable(error) => match error.kind() {
                Cause::Io => Self::new(
                    ErrorKind::Unavailable,
                    "cannot connect to Redis: check that it runs and that the address is right; \
                     nothing was charged",
                )
                .with_source(error),
                _ => refused(error),
            },
            Failure::Lost(error) if error.kind() == Cause::Parse => Self::new(
                ErrorKind::Protocol,
                "the server does not speak the Redis protocol: check the address",
            )
            .with_source(error)
            .with_effect(Effect::Unknown),
            Failure::Lost(error) => {
                let message = if error.is_timeout() {
                    "Redis did not answer in time; the charge may have been made"
                } else {
                    "the connection to Redis was lost; the charge may have been made"
                };
                Self::new(ErrorKind::Unavailable, message)
                    .with_source(error)
                    .with_effect(Effect::Unknown)
            }
        }
    }
}

/// Nothing was charged: the script checks everything before it writes anything. Only of one that has
/// failed on the way, because a key was spoilt, it is not known how far it came.
fn refused(error: RedisError) -> Error {
    let failed = code_of(&error) == "ERR";
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
        "NOPERM" => (ErrorKind::Unauthorized, format!("this Redis user lacks rights: {RIGHTS}")),
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
        "MOVED" | "ASK" | "CROSSSLOT" => {
            let message = "this Redis is one node of a cluster: connect with RedisStore::cluster, \
                           which knows where each key is; nothing was charged";
            (ErrorKind::Unavailable, message.into())
        }
        _ => (ErrorKind::Unavailable, format!("Redis refused the request: {error}")),
    };
    let error = Error::new(kind, message).with_source(error);
    if failed { error.with_effect(Effect::Unknown) } else { error }
}

/// The first word of what the server says. What follows may name keys, and decides nothing.
fn code_of(error: &RedisError) -> &str {
    let code = match error.code() {
        Some(code) => code,
        None if error.kind() == Cause::AuthenticationFailed => return "WRONGPASS",
        None => return "",
    };
    let Some(mut said) = error.detail().filter(|_| code == "ERR") else { return code };
    // Redis 6.2 says "ERR Error running script (call to f_..): @user_script:7: " before it.
    if let Some(call) = said.strip_prefix("Error running script (call to ")
        && let Some((_, rest)) = call.split_once("): ")
    {
        said = rest;
        while let Some(rest) = said.strip_prefix("@user_script:") {
            said = rest.trim_start_matches(|c: char| c == ' ' || c == ':' || c.is_ascii_digit());
        }
    }
    match said.trim_start_matches('-').split(' ').next() {
        _ if said.starts_with("The user executing the script can't") => "NOPERM",
        Some(word) if word.bytes().all(|byte| byte.is_ascii_uppercase()) => word,
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of an error that the server sends.
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
