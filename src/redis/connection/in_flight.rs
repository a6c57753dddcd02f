//! A request that waits for its reply.

use std::io;

use redis::{RedisError, Value};

use super::{Connection, Slot};
use crate::redis::{error::Failure, sent_flag::SentFlag};

/// A request that waits for its reply. Its result updates the state of the connection.
///
/// If it is dropped without a reply, because the caller has stopped waiting or the response timeout
/// has passed, all connections of the pool are checked, because they lead to the same server.
pub(super) struct InFlight<'p> {
    slots: &'p [Slot],
    slot: &'p Slot,
    connection: &'p Connection,
    is_answered: bool,
}

impl<'p> InFlight<'p> {
    /// Starts a request on the connection of a slot, one of the `slots` of a pool.
    pub(super) fn start(
        slots: &'p [Slot],
        slot: &'p Slot,
        connection: &'p Connection,
        sent_flag: &SentFlag,
    ) -> Self {
        sent_flag.mark_sent();
        Self { slots, slot, connection, is_answered: false }
    }

    /// Parses the reply, and updates the state of the connection.
    ///
    /// `parse` returns `None` for a value that cannot be the reply to this request.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no reply, if it is an error, or if it may belong to another request.
    pub(super) fn finish<T>(
        mut self,
        reply: Result<Value, RedisError>,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let liveness = &self.connection.liveness;
        let reply = reply.and_then(Value::extract_error).map_err(Failure::of_request);
        let result = match reply.map(parse) {
            Ok(None) => Err(Failure::NotOurs),
            // Another request has received a wrong reply meanwhile, so this reply may be wrong,
            // too.
            Ok(Some(_)) | Err(Failure::ServerError(_)) if liveness.is_desynchronized() => {
                Err(Failure::NotOurs)
            }
            Ok(Some(reply)) => Ok(reply),
            Err(failure) => Err(failure),
        };
        match &result {
            Ok(_) => liveness.record_reply(),
            Err(Failure::NotOurs) => {
                if liveness.desynchronize() {
                    // A server that always sends wrong replies must not get a new connection for
                    // each request.
                    self.slot.back_off(Failure::Unreachable(desynchronized()));
                }
            }
            Err(failure) if failure.ends_connection() => {
                liveness.close();
                if let Failure::ServerError(_) = failure {
                    // The server will refuse requests on a new connection, too.
                    self.slot.back_off(failure.clone());
                }
            }
            Err(Failure::ServerError(_)) => liveness.record_reply(),
            Err(_) => return result,
        }
        self.is_answered = true;
        result
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.slots.iter().for_each(Slot::start_check);
        }
    }
}

fn desynchronized() -> RedisError {
    let message = "the last connection replied to a request that was not sent";
    io::Error::new(io::ErrorKind::InvalidData, message).into()
}
