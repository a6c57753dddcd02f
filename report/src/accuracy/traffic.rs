//! The six kinds of traffic. All seeds are fixed, so that each run gives the same figures.

use plimsoll_testing::seed::Random;

use super::limits::Limit;

/// A kind of traffic of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Requests at equal distances, 1.2 times the limit.
    Steady,
    /// Requests at random times, on average 0.95 times the limit.
    Poisson,
    /// 5 to 60 requests within 100 ms, at random times, on average 1.1 times the limit.
    Bursts,
    /// The limit in the 2 s before every second edge of a period, and again in the 2 s after it.
    AtTheEdge,
    /// A day of requests at random times: at night 0.1, at noon 1.7 times the limit.
    Daily,
    /// Waits until all units are back, spends all at once just before an edge, and then asks again at
    /// the time that each denial names.
    Adversary,
}

impl Traffic {
    pub(crate) const EACH: [Self; 6] =
        [Self::Steady, Self::Poisson, Self::Bursts, Self::AtTheEdge, Self::Daily, Self::Adversary];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Poisson => "Poisson",
            Self::Bursts => "bursts",
            Self::AtTheEdge => "on-off at the edge",
            Self::Daily => "a day",
            Self::Adversary => "adversary",
        }
    }

    /// Returns the number of seeds, each of which is a client of its own.
    pub(crate) fn clients(self) -> u64 {
        match self {
            Self::Poisson | Self::Bursts => 20,
            Self::Steady | Self::AtTheEdge | Self::Adversary => 5,
            Self::Daily => 3,
        }
    }

    /// Sends the requests of one client to `limit`, and reports each with its decision.
    pub(crate) fn run(
        self,
        client: u64,
        units: u64,
        window: u64,
        limit: &mut dyn Limit,
        report: &mut dyn FnMut(u64, bool),
    ) {
        // Periods of a fixed window begin at multiples of the window.
        let start = 1_000_000 * window;
        let random = &mut Random(0x9e37_79b9_7f4a_7c15 ^ (client + 1));
        let mut ask = |now: u64| {
            let decision = limit.ask(now);
            report(now, decision.is_ok());
            decision
        };
        match self {
            Self::Steady => {
                let gap = window * 10 / (units * 12);
                (0..60 * window / gap)
                    .for_each(|n| _ = ask(start + random_phase(client) + n * gap));
            }
            Self::Poisson => {
                let end = start + 60 * window;
                let mean = window as f64 / (0.95 * units as f64);
                arrivals(random, start, end, |_| mean).for_each(|now| _ = ask(now));
            }
            Self::Bursts => {
                let mean_gap = window as f64 * 32.5 / (1.1 * units as f64);
                let mut now = start;
                while now < start + 60 * window {
                    now += exponential(random, mean_gap) as u64;
                    for _ in 0..5 + random.below(56) {
                        now += random.below(3_000);
                        let _ = ask(now);
                    }
                }
            }
            Self::AtTheEdge => {
                for cycle in 1..30 {
                    let edge = start + 2 * cycle * window;
                    let gap = 2_000_000 / units;
                    for n in 0..2 * units {
                        let _ = ask(edge - 2_000_000 + n * gap + client);
                    }
                }
            }
            Self::Daily => {
                let day = 24 * 3_600_000_000;
                let mean = |now: u64| {
                    let part = (now - start) as f64 / day as f64;
                    let load = 0.9 - 0.8 * (part * std::f64::consts::TAU).cos();
                    window as f64 / (load * units as f64)
                };
                arrivals(random, start, start + day, mean).for_each(|now| _ = ask(now));
            }
            Self::Adversary => {
                for cycle in 1..20 {
                    let edge = start + 4 * cycle * window;
                    // A unit that was admitted at this time is in every window that ends before `end`.
                    let (mut now, end) = (edge - 1_000, edge - 1_000 + window);
                    while now < end {
                        if let Err(wait) = ask(now) {
                            now += wait.max(1);
                        }
                    }
                }
            }
        }
    }
}

/// Returns a time within a second, so that clients do not begin at the same part of a period.
fn random_phase(client: u64) -> u64 {
    client * 199_933
}

/// Returns times from `start` to `end` with these mean distances.
fn arrivals(
    random: &mut Random,
    start: u64,
    end: u64,
    mean: impl Fn(u64) -> f64,
) -> impl Iterator<Item = u64> {
    let mut now = start;
    std::iter::from_fn(move || {
        now += exponential(random, mean(now)) as u64;
        (now < end).then_some(now)
    })
}

fn exponential(random: &mut Random, mean: f64) -> f64 {
    // Never the logarithm of 0.
    let uniform = (random.below(1 << 52) + 1) as f64 / (1_u64 << 52) as f64;
    -uniform.ln() * mean
}
