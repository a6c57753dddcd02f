//! The middleware as tower sees it: readiness, bodies, stacking, failures; and what it writes.
#![allow(missing_docs)]

mod answers;
mod contract;
mod delay;
mod headers;
mod on_denied;
mod trials;
mod turns;
mod verdicts;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use plimsoll::{
    Error, Limiter, MemoryStore, Policy, Rule,
    clock::ManualClock,
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};

pub(crate) const START: u64 = 1_700_000_000_000_000;

pub(crate) fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::at(START);
    let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    (Limiter::new(store), clock)
}

pub(crate) fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

/// All requests are one key.
pub(crate) fn rule(name: &str, quota: &str) -> Rule {
    Rule::new(policy(name, quota), |_| "everybody")
}

pub(crate) fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::builder().uri(path).body(Empty::new()).unwrap()
}

pub(crate) async fn text<B>(response: Response<B>) -> (u16, HeaderMap, String)
where
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

/// A store whose answers are pending at first, as the answers of a remote store are.
#[derive(Debug)]
pub(crate) struct PendingStore(pub(crate) MemoryStore);

impl Store for PendingStore {
    fn call(&self, request: StoreRequest<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let reply = self.0.call(request, deadline).now().unwrap();
        Answer::pending(async move {
            tokio::task::yield_now().await;
            reply
        })
    }
}

/// A store that is unavailable.
#[derive(Debug)]
pub(crate) struct UnavailableStore;

impl Store for UnavailableStore {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

/// A store that rejects every check as invalid.
#[derive(Debug)]
pub(crate) struct RejectingStore;

impl Store for RejectingStore {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Invalid, "limit is too high")))
    }
}

/// The events of a test, in order.
pub(crate) type Log = Arc<Mutex<VecDeque<String>>>;
