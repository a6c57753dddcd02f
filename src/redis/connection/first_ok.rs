//! The first success of several attempts.

use std::io;

use redis::RedisError;
use tokio::task::JoinSet;

/// Returns the first success, and aborts the other attempts.
///
/// # Errors
///
/// Returns an error if all attempts fail. The error is that of the last attempt to which a server answered,
/// or else that of the first attempt that failed.
pub(super) async fn first_ok<T: 'static>(
    mut attempts: JoinSet<Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let mut last: Option<RedisError> = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is_io_error() && last.is_some() => {}
            Ok(Err(error)) => last = Some(error),
            // The runtime is shutting down and has aborted the attempt.
            Err(_) => {}
        }
    }
    Err(last.unwrap_or_else(|| {
        let message = "the runtime ended before the operation did";
        io::Error::new(io::ErrorKind::Interrupted, message).into()
    }))
}

#[cfg(test)]
mod tests {
    use redis::ErrorKind;

    use super::*;

    fn unreachable() -> RedisError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    #[tokio::test]
    async fn the_first_success_counts() {
        let mut attempts = JoinSet::new();
        attempts.spawn(async { Err(unreachable()) });
        attempts.spawn(async { Ok(7) });
        attempts.spawn(std::future::pending());
        assert_eq!(first_ok(attempts).await.expect("one succeeds"), 7);
    }

    #[tokio::test]
    async fn the_error_of_a_server_that_answered_is_preferred() {
        let mut attempts = JoinSet::<Result<(), RedisError>>::new();
        attempts.spawn(async { Err((ErrorKind::AuthenticationFailed, "wrong password").into()) });
        attempts.spawn(async {
            tokio::task::yield_now().await;
            Err(unreachable())
        });
        let error = first_ok(attempts).await.expect_err("both fail");
        assert_eq!(error.kind(), ErrorKind::AuthenticationFailed);
        assert!(first_ok(JoinSet::<Result<(), RedisError>>::new()).await.is_err());
    }
}
