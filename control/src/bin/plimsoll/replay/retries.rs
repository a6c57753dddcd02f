//! Clients that honour `Retry-After`: what they would have got through under a limit.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

use plimsoll::{Error, Policy};

use super::{requests::Request, simulation::Simulation};

const SECOND: u64 = 1_000_000;

/// Clients that send their requests one after the other, and wait as a denial says.
///
/// 1. A request is sent at the time of the log. If another request of its key waits, it waits behind that.
/// 2. A denied request is sent again after `Retry-After`, in whole seconds as in the header. The requests behind it
///    are sent then, too, until one is denied.
/// 3. A request is given up when it would wait for longer than the window of the limit, or if it costs more
///    than the limit. It is given up at once if the requests that wait for its key cost the whole capacity already.
pub(super) struct Retries {
    policy: Policy,
    queues: HashMap<u32, Queue>,
    /// The times at which queues are sent again, with the numbers of their keys.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) at_once: u64,
    pub(super) late: u64,
    pub(super) given_up: u64,
    /// The longest wait of a request that was late, in microseconds.
    pub(super) longest_wait: u64,
}

/// The requests of one key that wait, in the order of the log.
#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    units: u64,
}

impl Retries {
    pub(super) fn new(policy: Policy) -> Self {
        let queues = HashMap::new();
        let due = BinaryHeap::new();
        Self { policy, queues, due, at_once: 0, late: 0, given_up: 0, longest_wait: 0 }
    }

    /// Sends a request of the log, after the retries before it.
    pub(super) fn send(&mut self, simulation: &Simulation, request: &Request) -> Result<(), Error> {
        self.retry_until(simulation, request.at)?;
        let capacity = self.policy.quota().capacity();
        if let Some(queue) = self.queues.get_mut(&request.number) {
            if queue.units.saturating_add(request.cost) > capacity {
                self.given_up += 1;
            } else {
                queue.units += request.cost;
                queue.requests.push_back(*request);
            }
            return Ok(());
        }
        let judged = simulation.judge(&self.policy, request)?;
        if !judged.is_denied {
            self.at_once += 1;
        } else if let Some(next) = self.next_attempt(request, request.at, judged.retry_after) {
            let queue = Queue { requests: [*request].into(), units: request.cost };
            self.queues.insert(request.number, queue);
            self.due.push(Reverse((next, request.number)));
        } else {
            self.given_up += 1;
        }
        Ok(())
    }

    /// Sends the requests that still wait at the end of the logs.
    pub(super) fn end(&mut self, simulation: &Simulation) -> Result<(), Error> {
        self.retry_until(simulation, u64::MAX)
    }

    fn retry_until(&mut self, simulation: &Simulation, until: u64) -> Result<(), Error> {
        while let Some(Reverse((time, number))) = self.due.peek().copied()
            && time <= until
        {
            self.due.pop();
            self.retry(simulation, time, number)?;
        }
        Ok(())
    }

    /// Sends the requests of a key at `time`, until one is denied that waits on.
    fn retry(&mut self, simulation: &Simulation, time: u64, number: u32) -> Result<(), Error> {
        let Some(mut queue) = self.queues.remove(&number) else { return Ok(()) };
        while let Some(request) = queue.requests.front().copied() {
            let judged = simulation.judge(&self.policy, &Request { at: time, ..request })?;
            if !judged.is_denied {
                self.late += 1;
                self.longest_wait = self.longest_wait.max(time - request.at);
            } else if let Some(next) = self.next_attempt(&request, time, judged.retry_after) {
                self.queues.insert(number, queue);
                self.due.push(Reverse((next, number)));
                return Ok(());
            } else {
                self.given_up += 1;
            }
            queue.requests.pop_front();
            queue.units -= request.cost;
        }
        Ok(())
    }

    /// Returns the time of the next attempt of a request that was denied at `now`, unless it is given up.
    fn next_attempt(&self, request: &Request, now: u64, wait: Option<Duration>) -> Option<u64> {
        let next = now + (wait?.as_micros() as u64).max(1).next_multiple_of(SECOND);
        let patience = self.policy.quota().window().as_micros() as u64;
        (next - request.at <= patience.next_multiple_of(SECOND)).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::Key;

    use super::*;

    #[test]
    fn requests_wait_for_their_turn_or_are_given_up() {
        let simulation = Simulation::new();
        let mut retries = Retries::new(Policy::new("p", "2/10s").unwrap());
        let start = 1_700_000_000 * SECOND;
        let mut send = |second: u64, cost| {
            let key = Key::from("a");
            let request = Request { at: start + second * SECOND, key, number: 0, cost };
            retries.send(&simulation, &request).unwrap();
        };
        // Two pass. The third and the fourth wait until 10 s. The fifth finds two in front of it.
        for second in [0, 0, 1, 2, 3] {
            send(second, 1);
        }
        // At 10 s two pass. This one is denied until 20 s. A cost above the limit is never sent again.
        send(11, 1);
        retries.end(&simulation).unwrap();
        let request = Request { at: start + 40 * SECOND, key: Key::from("b"), number: 1, cost: 3 };
        retries.send(&simulation, &request).unwrap();
        let Retries { at_once, late, given_up, longest_wait, .. } = retries;
        assert_eq!((at_once, late, given_up, longest_wait), (2, 3, 2, 9 * SECOND));
    }
}
