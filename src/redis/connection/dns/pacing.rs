//! The limit of resolutions that run at the same time.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of resolutions that run at the same time in this process, each in a thread.
///
/// The usual resolver gives up after 30 seconds: it asks 3 name servers twice, for 5 seconds each.
/// At one new resolution a second, at most 30 of them run at the same time, so this limit is not
/// reached.
pub(super) const MAX_RESOLUTIONS: usize = 40;

/// The number of unanswered resolutions from which on the name server is assumed to be gone. Two
/// resolutions a second reach it after 10 seconds, when the usual resolver with one name server gives
/// up.
const MAX_UNPACED_RESOLUTIONS: usize = 20;

/// The time between the starts of two resolutions while the name server is assumed to be gone.
const PACED_INTERVAL: Duration = Duration::from_secs(1);

/// The delay before a resolution that may not start now is tried again.
const START_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A limit on the starts of resolutions, for all hosts together.
///
/// Up to [`MAX_UNPACED_RESOLUTIONS`] resolutions start without delay. If none of them is answered,
/// one more starts each second, until [`MAX_RESOLUTIONS`] run. The first answer ends this pacing: the
/// resolutions that started before it still count as running, but no longer as unanswered.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    running: usize,
    /// The number of running resolutions that started since the last answer.
    unanswered: usize,
    /// The number of answers so far.
    answers: u64,
    last_start: Option<Instant>,
}

/// The right to run one resolution, to be passed to [`Pacing::finish`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    answers: u64,
}

impl Pacing {
    /// Counts a resolution that starts at `now`.
    ///
    /// # Errors
    ///
    /// Returns the time after which to try again if the resolution may not start now.
    pub(super) fn start(&mut self, now: Instant) -> Result<Ticket, Duration> {
        let too_soon = self.last_start.is_some_and(|last| now < last + PACED_INTERVAL);
        let is_paced = self.unanswered >= MAX_UNPACED_RESOLUTIONS;
        if self.running >= MAX_RESOLUTIONS || (is_paced && too_soon) {
            return Err(START_RETRY_INTERVAL);
        }
        self.running += 1;
        self.unanswered += 1;
        self.last_start = Some(now);
        Ok(Ticket { answers: self.answers })
    }

    /// Counts the end of a resolution. `is_answered` is true if a name server has answered it.
    pub(super) fn finish(&mut self, ticket: Ticket, is_answered: bool) {
        self.running -= 1;
        if is_answered {
            self.unanswered = 0;
            self.answers += 1;
        } else if ticket.answers == self.answers {
            self.unanswered -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts one resolution every half second if it may, for 100 seconds. None is answered; each ends
    /// after `give_up`. Returns the longest interval between two starts.
    fn longest_interval(give_up: Duration) -> Duration {
        let (begin, mut pacing) = (Instant::now(), Pacing::default());
        let mut running: Vec<(Instant, Ticket)> = Vec::new();
        let (mut last, mut longest) = (begin, Duration::ZERO);
        for tick in 0..1_000 {
            let now = begin + START_RETRY_INTERVAL * tick;
            while running.first().is_some_and(|(started, _)| now >= *started + give_up) {
                pacing.finish(running.remove(0).1, false);
            }
            if now >= last + Duration::from_millis(500)
                && let Ok(ticket) = pacing.start(now)
            {
                longest = longest.max(now - last);
                last = now;
                running.push((now, ticket));
            }
            assert!(running.len() <= MAX_RESOLUTIONS);
        }
        longest
    }

    #[tokio::test]
    async fn a_resolution_starts_each_second_however_long_they_hang() {
        for seconds in [1, 5, 10, 20, 30] {
            let longest = longest_interval(Duration::from_secs(seconds));
            assert!(longest <= PACED_INTERVAL, "{seconds} s: {longest:?}");
        }
    }

    #[tokio::test]
    async fn the_number_of_resolutions_is_bounded() {
        let (mut now, mut pacing) = (Instant::now(), Pacing::default());
        let at_once = (0..100).filter(|_| pacing.start(now).is_ok()).count();
        assert_eq!(at_once, MAX_UNPACED_RESOLUTIONS);
        let later = (0..100).filter(|_| {
            now += PACED_INTERVAL;
            pacing.start(now).is_ok()
        });
        assert_eq!(at_once + later.count(), MAX_RESOLUTIONS);
    }

    #[tokio::test]
    async fn an_answer_lifts_the_pace() {
        let (now, mut pacing) = (Instant::now(), Pacing::default());
        let start_all = |pacing: &mut Pacing| -> Vec<Ticket> {
            std::iter::from_fn(|| pacing.start(now).ok()).collect()
        };
        let mut tickets = start_all(&mut pacing);
        pacing.finish(tickets.remove(0), true);
        let more = start_all(&mut pacing);
        assert_eq!(more.len(), MAX_UNPACED_RESOLUTIONS);
        // The end of those that hung before the answer frees nothing that they do not occupy.
        tickets.into_iter().for_each(|ticket| pacing.finish(ticket, false));
        assert!(pacing.start(now).is_err());
        pacing.finish(more[0], false);
        assert!(pacing.start(now).is_ok());
    }
}
