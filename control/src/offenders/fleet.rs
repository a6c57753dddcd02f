//! The reports of all processes of a service in Redis.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use redis::{FromRedisValue, Script};
use tokio::{sync::Mutex, time::Instant};

use super::Offender;
use crate::{OverrideError, Overrides};

/// The time for which a report counts. A process reports three times as often.
pub(super) const LASTS: Duration = Duration::from_secs(15);

/// The time for which the reports that were read are used.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The number of processes whose reports are kept.
const MAX_PROCESSES: usize = 1_000;

/// The offenders of a process, by policy.
pub(super) type Report = BTreeMap<String, Vec<Offender>>;

/// The place in Redis to which the processes of a service report.
pub(super) struct Fleet {
    overrides: Overrides,
    process: String,
    script: Script,
    /// The reports that were read last, which all callers share.
    read: Mutex<Option<Read>>,
}

/// The reports of the other processes.
struct Read {
    time: Instant,
    reports: Result<Arc<Vec<Report>>, OverrideError>,
}

impl Fleet {
    /// Creates the place beside the [overrides](Overrides).
    pub(super) fn new(overrides: &Overrides) -> Self {
        Self {
            overrides: overrides.clone(),
            process: format!("{:016x}", RandomState::new().hash_one(())),
            script: Script::new(include_str!("../../lua/offenders.lua")),
            read: Mutex::new(None),
        }
    }

    /// Writes the report of this process.
    pub(super) async fn report(&self, report: &Report) -> Result<(), OverrideError> {
        let json = serde_json::to_string(report).unwrap_or_default();
        self.call(&self.process, &json).await
    }

    /// Adds what the other processes have reported about a policy.
    pub(super) async fn add_others(
        &self,
        policy: &str,
        offenders: Vec<Offender>,
    ) -> Result<Vec<Offender>, OverrideError> {
        let reports = self.others().await?;
        let of_policy = reports.iter().filter_map(|report| report.get(policy));
        let mut by_key = HashMap::<String, Offender>::new();
        for offender in of_policy.flatten().cloned().chain(offenders) {
            let none = Offender { key: offender.key.clone(), denied: 0, spent: 0 };
            let sum = by_key.entry(offender.key).or_insert(none);
            sum.denied = sum.denied.saturating_add(offender.denied);
            sum.spent = sum.spent.saturating_add(offender.spent);
        }
        Ok(by_key.into_values().collect())
    }

    /// Returns the reports of the other processes. They are read at most once a second, by one caller for all.
    async fn others(&self) -> Result<Arc<Vec<Report>>, OverrideError> {
        // A read ends after the response timeout, and the waiting callers take its error too.
        let mut read = self.read.lock().await;
        if let Some(read) = read.as_ref().filter(|read| read.time.elapsed() < READ_INTERVAL) {
            return read.reports.clone();
        }
        let reports = self.call("", "").await.map(|reports: Vec<(String, String)>| {
            let others = reports.into_iter().filter(|(process, _)| *process != self.process);
            Arc::new(others.filter_map(|(_, json)| serde_json::from_str(&json).ok()).collect())
        });
        *read = Some(Read { time: Instant::now(), reports: reports.clone() });
        reports
    }

    /// Calls the script, if there is a Redis.
    async fn call<T: FromRedisValue + Default>(
        &self,
        process: &str,
        report: &str,
    ) -> Result<T, OverrideError> {
        let Some(backend) = self.overrides.redis() else { return Ok(T::default()) };
        let prefix = backend.prefix();
        let mut invocation = self.script.prepare_invoke();
        invocation.key(format!("{prefix}:{{offenders}}:reports"));
        invocation.key(format!("{prefix}:{{offenders}}:times"));
        invocation.arg(LASTS.as_millis() as u64).arg(MAX_PROCESSES).arg(process).arg(report);
        let invocation = &invocation;
        let send = |mut connection| async move { invocation.invoke_async(&mut connection).await };
        backend.send(send).await
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("process", &self.process).finish_non_exhaustive()
    }
}
