//! The failures of a request to Redis, and their conversion to errors.

use std::io;

use redis::{ErrorKind as Cause, RedisError, ServerErrorKind as Server};

use super::{
    server_error::{
        FAILED_SCRIPT, FOREIGN_KEY, code_of, foreign_key, is_refused_in_script, quoted,
        server_error,
    },
    wire::{self, WireCharge, WireCheck},
};
use crate::{
    error::{Effect, Error, ErrorKind},
    runtime::FlightError,
};

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
            Self::Unreachable(_) | Self::NoRuntime => Effect::None,
            Self::ServerError(error) if is_refused_in_script(error) => Effect::Unknown,
            Self::ServerError(error) if !matches!(code_of(error), "ERR" | FAILED_SCRIPT) => {
                Effect::None
            }
            Self::ServerError(_) | Self::Lost(_) | Self::NotOurs => Effect::Unknown,
            Self::TimedOut(effect) => *effect,
        }
    }

    /// Returns the code of the server's error, or an empty text.
    fn code(&self) -> &str {
        if let Self::ServerError(error) = self { code_of(error) } else { "" }
    }

    /// Returns the policies of the key that holds something else than the state of a limit, if one does:
    /// one policy, if the server has named the key, and otherwise the policies of the check.
    pub(super) fn policies_of_foreign_key(&self, check: &WireCheck) -> Option<String> {
        let Self::ServerError(error) = self else { return None };
        if !matches!(code_of(error), "WRONGTYPE" | FOREIGN_KEY | FAILED_SCRIPT) {
            return None;
        }
        let found = foreign_key(error);
        let mut policies = Vec::new();
        for name in check.charges().iter().map(WireCharge::key_name) {
            let policy = wire::policy(name);
            let is_found = found.is_none_or(|key| String::from_utf8_lossy(name) == key);
            if is_found && !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        Some(policies.join(" or "))
    }

    /// Returns whether the server has lost the script.
    pub(super) fn is_missing_script(&self) -> bool {
        matches!(self, Self::ServerError(error) if error.kind() == Cause::Server(Server::NoScript))
    }

    /// Returns whether the server refused the request, and will refuse it until its settings or the store's are
    /// changed.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::ServerError(_) | Self::NotOurs)
            && self.redirect().is_none()
            && !self.calls_for_another_node()
            // For the time being.
            && !matches!(self.code(), "BUSY" | "LOADING" | "MISCONF" | "OOM")
    }

    /// Returns whether the connection must be replaced.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            // After a timeout the reply may still arrive, in its order.
            Self::Lost(error) => !error.is_timeout(),
            Self::ServerError(_) => matches!(self.code(), "READONLY" | "NOAUTH"),
            // There may be one reply too many. Each later reply would then belong to another
            // request.
            Self::NotOurs => true,
            Self::TimedOut(_) | Self::NoRuntime => false,
        }
    }

    /// Returns whether a node of a cluster cannot serve the request, so that another node may have
    /// taken over its slots. The request had no effect.
    pub(super) fn calls_for_another_node(&self) -> bool {
        matches!(self, Self::Unreachable(_))
            || matches!(self.code(), "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "NOAUTH")
    }

    /// Returns whether the checks of a batch with this failure are sent again one by one. The batch
    /// had no effect, and some of its checks may succeed alone:
    ///
    /// - while a slot moves, some of its keys are on this node and some on another one;
    /// - a server that cannot write still decides the checks that are denied, because a denial
    ///   writes nothing.
    pub(super) fn may_spare_single_checks(&self) -> bool {
        matches!(self.redirect(), Some(Redirect::Later))
            || matches!(self.code(), "OOM" | "MISCONF" | "READONLY")
    }

    /// Returns the destination to which a cluster node redirects the request, if it does.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::ServerError(error) = self else { return None };
        let redirect = match error.kind() {
            Cause::Server(Server::Moved) => Redirect::Moved,
            Cause::Server(Server::Ask) => Redirect::Ask,
            Cause::Server(Server::TryAgain) => return Some(Redirect::Later),
            _ => return None,
        };
        error.redirect_node().map(|(address, _)| redirect(address.to_owned()))
    }
}

impl From<FlightError<Self>> for Failure {
    fn from(error: FlightError<Self>) -> Self {
        match error {
            FlightError::Failed(failure) => failure,
            FlightError::NoRuntime => Self::NoRuntime,
            FlightError::Interrupted => {
                let message = "the runtime ended before the operation did";
                Self::Unreachable(io::Error::new(io::ErrorKind::Interrupted, message).into())
            }
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let effect = failure.effect();
        let error = match failure {
            Failure::ServerError(error) => server_error(error),
            Failure::Unreachable(error) | Failure::Lost(error) if error.kind() == Cause::Parse => {
                Self::new(
                    ErrorKind::Protocol,
                    "the server does not speak the Redis protocol: check the address",
                )
                .with_source(error)
            }
            Failure::Unreachable(error) if error.kind() != Cause::Io => server_error(error),
            Failure::Unreachable(error) => {
                let message = format!(
                    "cannot connect to Redis: check that it runs and that the address is right; \
                     nothing was charged: {}",
                    quoted(&error)
                );
                Self::new(ErrorKind::Unavailable, message).with_source(error)
            }
            Failure::Lost(error) => {
                let what = if error.is_timeout() {
                    "Redis did not answer in time"
                } else {
                    "the connection to Redis was lost"
                };
                let message = format!("{what}; the charge may have been made: {}", quoted(&error));
                Self::new(ErrorKind::Unavailable, message).with_source(error)
            }
            Failure::NotOurs => Self::new(
                ErrorKind::Protocol,
                "the reply is not from the limiter's script: something between here and Redis \
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
            Failure::NoRuntime => Self::new(
                ErrorKind::Unavailable,
                "RedisStore only works in a tokio runtime with I/O and time enabled (enable_all), in \
                 which the check has to be awaited; nothing was charged",
            ),
        };
        error.with_effect(effect)
    }
}
