//! Denials that cost the store nothing.
//!
//! What the store says of a key that it denies is remembered for at most a second, for each charge
//! by itself. A check is denied without asking if one of its charges is known to be refused, and
//! as far as its keys have been heard of, the denial is the one that the store would give: also its
//! waits. What does not follow exactly is asked.
//!
//! Nothing comes from here that this process's own history does not imply: what this process
//! spends, gives back or resets voids what was remembered of the key, also what is on its way.

mod heard;
mod table;

use std::{sync::Arc, time::Duration};

use self::table::{Digests, Question, Table};
use crate::{
    clock::Clock,
    decision::StoreReply,
    error::Error,
    store::{Answer, Request, Resilience, Store},
    telemetry,
};

/// A store whose denials are remembered for a moment.
#[derive(Debug)]
pub(super) struct DenyCache {
    inner: Box<dyn Store>,
    table: Arc<Table>,
}

impl DenyCache {
    /// In front of a store for which a check waits so long.
    pub(super) fn new(
        inner: Box<dyn Store>,
        clock: Arc<dyn Clock>,
        deadline: Option<Duration>,
    ) -> Self {
        // What was asked may come later than who asked would have waited, but hardly that much.
        let journey = deadline.unwrap_or(Resilience::DEADLINE).saturating_mul(2);
        Self { inner, table: Arc::new(Table::new(clock, journey)) }
    }

    /// Asks the store for something that changes keys.
    fn change(&self, request: Request<'_>, digests: Digests) -> Answer {
        let changing = Changing::new(Arc::clone(&self.table), digests);
        match self.inner.call(request).now() {
            Ok(reply) => Answer::ready(changing.hear(reply)),
            Err(coming) => Answer::pending(async move { changing.hear(coming.await) }),
        }
    }
}

impl Store for DenyCache {
    fn call(&self, request: Request<'_>) -> Answer {
        let charges = match request {
            Request::Acquire(charges) => charges,
            Request::Peek(_) => return self.inner.call(request),
            Request::Force(charges) | Request::Reset(charges) => {
                let digests = charges.iter().map(|charge| self.table.digest(charge));
                return self.change(request, digests.collect());
            }
            Request::Refund(receipt) => {
                let digests = receipt.lines().iter().map(|it| self.table.digest(it.charge()));
                return self.change(request, digests.collect());
            }
        };
        let question = self.table.question(charges);
        if let Some(reply) = self.table.denial(&question) {
            telemetry::denied_from_cache();
            return Answer::ready(Ok(reply));
        }
        match self.inner.call(request).now() {
            Ok(reply) => {
                if let Ok(reply) = &reply {
                    self.table.hear(question, reply);
                }
                Answer::ready(reply)
            }
            Err(coming) => {
                let hearing = Hearing { table: Arc::clone(&self.table), question: Some(question) };
                Answer::pending(async move {
                    let reply = coming.await?;
                    hearing.hear(&reply);
                    Ok(reply)
                })
            }
        }
    }
}

/// Keys that the store is asked to change. What is asked or heard of them before the answer comes
/// does not hold. If none comes, the change may arrive yet.
struct Changing {
    table: Arc<Table>,
    digests: Digests,
}

impl Changing {
    fn new(table: Arc<Table>, digests: Digests) -> Self {
        digests.iter().for_each(|digest| table.change(*digest));
        Self { table, digests }
    }

    fn hear(mut self, reply: Result<StoreReply, Error>) -> Result<StoreReply, Error> {
        if reply.is_ok() {
            self.digests.drain(..).for_each(|digest| self.table.change(digest));
        }
        reply
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.digests.iter().for_each(|digest| self.table.doubt(*digest));
    }
}

/// A check whose answer is on its way, and may never come.
struct Hearing {
    table: Arc<Table>,
    question: Option<Question>,
}

impl Hearing {
    fn hear(mut self, reply: &StoreReply) {
        if let Some(question) = self.question.take() {
            self.table.hear(question, reply);
        }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(question) = self.question.take() {
            self.table.hear_nothing(question);
        }
    }
}
