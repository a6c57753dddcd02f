//! The requests of a connection over HTTP/2, which the task of the connection answers itself.
//!
//! With a task for each request, an answer would wake the task of its connection, often on another thread.
//! A request that panics ends its connection.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU8,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hyper::rt::Executor;

/// The streams that a connection has begun since it was polled last. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

/// The streams of a connection, polled together with it.
pub(super) struct Streams {
    begun: Begun,
    in_flight: FuturesUnordered<BoxFuture<'static, ()>>,
    turn: Arc<Turn>,
    waker: Waker,
}

/// The turn of a task. If a wake arrives during the turn, the task polls once more, and need not be scheduled again.
struct Turn {
    state: AtomicU8,
    task: Mutex<Waker>,
}

/// The states of a [`Turn`]: the task waits, is polled, or is to be polled again.
const WAITS: u8 = 0;
const IS_POLLED: u8 = 1;
const IS_WOKEN: u8 = 2;

/// The maximum number of rounds of a turn. After them, other tasks run.
const MAX_ROUNDS: usize = 16;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, stream: F) {
        lock(&self.0).push(stream.boxed());
    }
}

impl Streams {
    /// Creates the streams of the connection that begins them with `begun`.
    pub(super) fn new(begun: Begun) -> Self {
        let state = AtomicU8::new(WAITS);
        let turn = Arc::new(Turn { state, task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(Arc::clone(&turn));
        Self { begun, in_flight: FuturesUnordered::new(), turn, waker }
    }

    /// Polls a connection and its streams until none of them can continue, or the connection has ended.
    pub(super) fn poll<C: Future>(
        &mut self,
        mut connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        lock(&self.turn.task).clone_from(cx.waker());
        let mut own = Context::from_waker(&self.waker);
        for _ in 0..MAX_ROUNDS {
            self.turn.state.swap(IS_POLLED, AcqRel);
            let polled = connection.as_mut().poll(&mut own);
            // A stream has a clone of `begun`, so none may stay there.
            self.in_flight.extend(lock(&self.begun.0).drain(..));
            if polled.is_ready() {
                return polled;
            }
            while let Poll::Ready(Some(())) = self.in_flight.poll_next_unpin(&mut own) {}
            let state = &self.turn.state;
            if state.compare_exchange(IS_POLLED, WAITS, AcqRel, Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(IS_WOKEN, AcqRel) == WAITS {
            lock(&self.task).wake_by_ref();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
