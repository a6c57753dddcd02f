//! What a server or a connection says went wrong, and what that means for the caller.

use redis::{ErrorKind as Cause, RedisError, ServerErrorKind as Server};

use crate::error::{Error, ErrorKind};

/// What came instead of an answer.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// No connection: nothing was sent.
    Unreachable(RedisError),
    /// A connection was lost, or an answer late, after the request may have been sent.
    Lost(RedisError),
    /// The server answered with an error: nothing was charged.
    Refused(RedisError),
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
            _ => Self::Refused(error),
        }
    }

    pub(super) fn is_missing_script(&self) -> bool {
        matches!(self, Self::Refused(error) if error.kind() == Cause::Server(Server::NoScript))
    }

    /// Whether the connection is of no more use.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            // A late answer keeps the connection: it still comes, in its order.
            Self::Lost(error) => !error.is_timeout(),
            Self::Refused(error) => is_demoted(error) || error.code() == Some("NOAUTH"),
            Self::NotOurs => false,
        }
    }

    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::Refused(error) = self else { return None };
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

fn is_demoted(error: &RedisError) -> bool {
    error.kind() == Cause::Server(Server::ReadOnly)
}

const RIGHTS: &str = "grant the user ~<prefix>:* +evalsha +eval +time +get +set +getrange \
                      +setrange +pexpire +pexpireat +del, in a cluster +asking +cluster|slots, behind \
                      Sentinel +role";

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => refused(error),
            Failure::NotOurs => Self::new(
                ErrorKind::Protocol,
                "the answer is not that of the limiter's script: something between here and Redis \
                 answers in its place",
            )
            .uncertain(),
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
            .uncertain(),
            Failure::Lost(error) => {
                let message = if error.is_timeout() {
                    "Redis did not answer in time; the charge may have been made"
                } else {
                    "the connection to Redis was lost; the charge may have been made"
                };
                Self::new(ErrorKind::Unavailable, message).with_source(error).uncertain()
            }
        }
    }
}

/// Nothing was charged: the script checks everything before it writes anything.
fn refused(error: RedisError) -> Error {
    let text = error.to_string();
    let code = error.code().unwrap_or_default();
    // Redis 6.2 wraps what a command in a script says into an error of the script.
    let says = |word: &str| code == word || text.contains(word);
    let (kind, message) = if error.kind() == Cause::InvalidClientConfig {
        (
            ErrorKind::Invalid,
            "the address of Redis is not valid: it is redis://[user[:password]@]host[:port][/db], \
             rediss:// for TLS, or unix:///path"
                .into(),
        )
    } else if error.kind() == Cause::AuthenticationFailed || says("WRONGPASS") || says("NOAUTH") {
        let message = "Redis does not accept the user or the password: check them in the URL";
        (ErrorKind::Unauthorized, message.into())
    } else if says("NOPERM") || text.contains("can't run this command") {
        (ErrorKind::Unauthorized, format!("this Redis user lacks rights: {RIGHTS}"))
    } else if is_demoted(&error) || says("READONLY") {
        let message = "this Redis is a read-only replica: connect to the primary, or through \
                       Sentinel or the cluster, which follow it; nothing was charged";
        (ErrorKind::ReadOnly, message.into())
    } else if says("OOM") {
        let message = "Redis is out of memory: raise maxmemory, or let it evict \
                       (maxmemory-policy volatile-ttl); nothing was charged";
        (ErrorKind::OutOfMemory, message.into())
    } else if says("MISCONF") {
        let message = "Redis cannot write its data to disk and refuses all changes: make room there, \
                       or see in its log what else is wrong; nothing was charged";
        (ErrorKind::CannotPersist, message.into())
    } else if says("LOADING") {
        let message = "Redis is still loading its data: wait; nothing was charged";
        (ErrorKind::Loading, message.into())
    } else if says("WRONGTYPE") || says("TOLLGATE") {
        let message = "a key of the limiter holds something else: choose another prefix, or delete \
                       it; it was left as it is and nothing was charged";
        (ErrorKind::WrongType, message.into())
    } else {
        (ErrorKind::Unavailable, format!("Redis refused the request: {text}"))
    };
    Error::new(kind, message).with_source(error)
}
