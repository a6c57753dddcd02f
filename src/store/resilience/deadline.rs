//! No check waits longer than this for its store.

use std::time::Duration;

use tokio::{runtime::Handle, time::timeout};

use crate::{
    error::{Error, ErrorKind},
    store::{Answer, Request, Store},
    telemetry,
};

/// A store that answers in time, or fails.
#[derive(Debug)]
pub(super) struct Deadline {
    inner: Box<dyn Store>,
    deadline: Duration,
}

impl Deadline {
    pub(super) fn new(inner: Box<dyn Store>, deadline: Duration) -> Self {
        Self { inner, deadline }
    }
}

impl Store for Deadline {
    fn call(&self, request: Request<'_>) -> Answer {
        let deadline = self.deadline;
        match self.inner.call(request).now() {
            Ok(ruling) => Answer::ready(ruling),
            Err(coming) => Answer::pending(async move {
                // Without tokio there is no timer; the store's own timeouts are then all there is.
                if Handle::try_current().is_err() {
                    return coming.await;
                }
                match timeout(deadline, coming).await {
                    Ok(ruling) => ruling,
                    Err(_) => {
                        telemetry::deadline_missed();
                        let message = format!("the store has not answered within {deadline:?}");
                        Err(Error::new(ErrorKind::Unavailable, message).uncertain())
                    }
                }
            }),
        }
    }
}
