//! Several futures at once.

use std::{future::poll_fn, pin::Pin, task::Poll};

/// Runs all futures at once, in this task, and returns their outputs in their order.
pub(super) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in running.iter_mut().zip(&mut outputs) {
            if let Some(Poll::Ready(ready)) = future.as_mut().map(|it| it.as_mut().poll(context)) {
                (*future, *output) = (None, Some(ready));
            }
        }
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn futures_wait_at_the_same_time() {
        let (say, hear): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<u8>()).unzip();
        let mut say: Vec<_> = say.into_iter().map(Some).collect();
        // Each future makes the one before it ready, so none is after the other.
        let futures = hear.into_iter().enumerate().map(|(number, hear)| {
            let before = number.checked_sub(1).and_then(|it| say[it].take());
            let own = if number == 2 { say[2].take() } else { None };
            async move {
                if let Some(own) = own {
                    own.send(2).unwrap();
                }
                let heard = hear.await.unwrap();
                if let Some(before) = before {
                    before.send(heard - 1).unwrap();
                }
                heard
            }
        });
        let futures: Vec<_> = futures.collect();
        assert_eq!(join_all(futures).await, [0, 1, 2]);
    }
}
