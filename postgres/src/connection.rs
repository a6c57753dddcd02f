//! One connection to the server, and its statements.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    pin::pin,
    task::Poll,
    time::Duration,
};

use plimsoll::{
    clock::Timestamp,
    store::{StateChange, StateId},
};
use tokio::{task::JoinSet, try_join};
use tokio_postgres::{Client, Error, NoTls, Statement};

use crate::{config::PostgresConfig, error::Failure};

/// The most rows that are removed at a time.
pub(crate) const MAX_REMOVED: usize = 1_100;

/// The unit of the time until which a row is kept, in microseconds. As long as this number stays the same,
/// an update of the row needs no new entry in an index.
const KEEP_MICROS: u64 = 600_000_000;

/// An open connection.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The task that writes to the socket and reads from it. It ends with the connection.
    _driver: JoinSet<Result<(), Error>>,
    timeout: Duration,
    lock: Statement,
    read: Statement,
    write: Statement,
    remove: Statement,
}

/// The time of the server, and the states of a transaction that has begun.
pub(crate) type Begun = (Timestamp, HashMap<StateId, Vec<u8>>);

impl Connection {
    /// Connects, and creates the table if it is not there.
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self, Failure> {
        let PostgresConfig { timeout, table, .. } = config;
        let opened = within(*timeout, async {
            let mut tasks = JoinSet::new();
            let client = connect(config, &mut tasks).await?;
            set_up(&client, config).await?;
            let read = format!(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, t.id, t.state \
                 FROM (SELECT 1) AS one LEFT JOIN {table} AS t ON t.id = ANY($1)"
            );
            let write = format!(
                "INSERT INTO {table} AS t (id, state, keep_until) \
                 SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::integer[]) ON CONFLICT (id) \
                 DO UPDATE SET state = EXCLUDED.state, keep_until = EXCLUDED.keep_until"
            );
            let remove = format!(
                "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE keep_until < $1 \
                 LIMIT {MAX_REMOVED} FOR UPDATE SKIP LOCKED)"
            );
            let lock = "SELECT pg_advisory_xact_lock(name) FROM unnest($1::bigint[]) AS name";
            let (lock, read, write, remove) = try_join!(
                client.prepare(lock),
                client.prepare(&read),
                client.prepare(&write),
                client.prepare(&remove),
            )?;
            Ok(Self { client, _driver: tasks, timeout: *timeout, lock, read, write, remove })
        });
        opened.await
    }

    /// Begins a transaction that has the states with these names to itself, and reads them, in one
    /// exchange. The names are in ascending order.
    ///
    /// The lock is a statement of its own: a statement sees what was committed before it began, and so
    /// before it waited.
    pub(crate) async fn begin(&self, ids: &BTreeSet<StateId>) -> Result<Begun, Failure> {
        let names: Vec<i64> = ids.iter().map(lock_name).collect();
        let ids: Vec<&[u8]> = ids.iter().map(StateId::as_slice).collect();
        let exchange = within(self.timeout, async {
            try_join!(
                self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
                async { self.client.query(&self.lock, &[&names]).await },
                async { self.client.query(&self.read, &[&ids]).await },
            )
        });
        let (_, _, rows) = exchange.await?;
        let mut time = 0;
        let mut states = HashMap::new();
        for row in &rows {
            time = row.try_get::<_, i64>(0)?.max(time);
            let id = row.try_get::<_, Option<&[u8]>>(1)?;
            if let Some(Ok(id)) = id.map(StateId::try_from) {
                states.insert(id, row.try_get(2)?);
            }
        }
        Ok((Timestamp::from_micros(time.unsigned_abs()), states))
    }

    /// Writes states and commits, in one exchange. A transaction that has changed nothing is ended without waiting
    /// for the answer.
    pub(crate) async fn commit(
        &self,
        rows: &BTreeMap<StateId, StateChange>,
    ) -> Result<(), Failure> {
        if rows.is_empty() {
            send(self.client.batch_execute("COMMIT"));
            return Ok(());
        }
        let ids: Vec<&[u8]> = rows.keys().map(StateId::as_slice).collect();
        let states: Vec<&[u8]> = rows.values().map(|row| row.bytes.as_slice()).collect();
        let kept: Vec<i32> = rows.values().map(|row| keep_until(row.expires_at) + 2).collect();
        let exchange = within(self.timeout, async {
            try_join!(
                async { self.client.execute(&self.write, &[&ids, &states, &kept]).await },
                self.client.batch_execute("COMMIT"),
            )
        });
        exchange.await.map(|_| ())
    }

    /// Removes some rows that have expired, without waiting for the answer.
    pub(crate) fn remove_expired(&self, now: Timestamp) {
        send(self.client.execute(&self.remove, &[&keep_until(now)]));
    }
}

/// Connects, and drives the connection by one of `tasks`.
async fn connect(
    config: &PostgresConfig,
    tasks: &mut JoinSet<Result<(), Error>>,
) -> Result<Client, Error> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        let tls = tokio_postgres_rustls::MakeRustlsConnect::new(tls.clone());
        let (client, driver) = config.server.connect(tls).await?;
        tasks.spawn(driver);
        return Ok(client);
    }
    let (client, driver) = config.server.connect(NoTls).await?;
    tasks.spawn(driver);
    Ok(client)
}

/// Sets the limits of the session, and creates the table if it is not there.
async fn set_up(client: &Client, config: &PostgresConfig) -> Result<(), Error> {
    let PostgresConfig { table, timeout, .. } = config;
    let millis = timeout.as_millis().clamp(1, 1 << 30);
    let commit = if config.waits_for_disk { "" } else { "SET synchronous_commit = off;" };
    let settings = format!(
        "SET statement_timeout = {millis}; SET idle_in_transaction_session_timeout = {millis}; {commit}"
    );
    client.batch_execute(&settings).await?;
    let found = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[table]).await?;
    if found.get(0) {
        return Ok(());
    }
    let index = table.replace('.', "_");
    // Two processes that create the table at the same time wait for each other.
    let create = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext('{table}')); \
         CREATE TABLE IF NOT EXISTS {table} \
         (id bytea PRIMARY KEY, state bytea NOT NULL, keep_until integer NOT NULL) \
         WITH (fillfactor = 70); \
         ALTER TABLE {table} ALTER COLUMN state SET STORAGE EXTERNAL; \
         CREATE INDEX IF NOT EXISTS {index}_keep_until ON {table} (keep_until); COMMIT"
    );
    client.batch_execute(&create).await
}

/// Returns the number by which a state is locked. Two states of one number wait for each other, which
/// changes no decision.
fn lock_name(id: &StateId) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *id;
    // In the order of the names, so that all transactions lock in one order.
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the number of the ten minutes since 1970 in which a time lies.
fn keep_until(time: Timestamp) -> i32 {
    i32::try_from(time.as_micros() / KEEP_MICROS).unwrap_or(i32::MAX - 2)
}

/// Waits for `answer` at most so long.
async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    let answered = tokio::time::timeout(timeout, answer).await;
    answered.map_err(|_| Failure::new("PostgreSQL did not answer in time"))?.map_err(Failure::from)
}

/// Sends a request at its first poll. Its answer is read and dropped by the driver.
fn send<T>(request: impl Future<Output = T>) {
    let mut request = pin!(request);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _: Poll<T> = request.as_mut().poll(&mut context);
}
