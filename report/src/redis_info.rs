//! Figures that a Redis server states of itself.

use plimsoll_testing::servers::Server;

/// The counts of a server at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// The processor time of its process in microseconds.
    cpu: f64,
    /// The calls of the script.
    calls: u64,
}

impl Counts {
    pub(crate) fn of(server: &Server) -> Self {
        let seconds = |name| server.info("cpu", name).parse::<f64>().expect("a number");
        let cpu = 1e6 * (seconds("used_cpu_user") + seconds("used_cpu_sys"));
        let stats: String = server.ask("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next()?.parse().ok());
        Self { cpu, calls: calls.unwrap_or(0) }
    }

    /// Returns the processor time in microseconds and the calls since `before`.
    pub(crate) fn since(self, before: Self) -> (f64, u64) {
        (self.cpu - before.cpu, self.calls - before.calls)
    }
}

/// Returns the memory of all that the server keeps, in bytes.
pub(crate) fn used_memory(server: &Server) -> u64 {
    server.info("memory", "used_memory").parse().expect("a number")
}
