//! Changes whose connection is cut, at each point of the way.

use std::time::Duration;

use plimsoll::{Limiter, Policy};
use plimsoll_control::{
    AuditAction, AuditEntry, KeyType, Origin, OverrideError, OverrideKind, Overrides,
    OverridesConfig, Registry,
};
use plimsoll_testing::servers::Server;
use tokio::time::{Instant, sleep};

use crate::{
    cutter::{Cutter, POINTS, Point},
    new, quota, reader,
};

/// A kind of change, and the audit entry that it must leave.
#[derive(Debug, Clone, Copy)]
enum Kind {
    QuotaOfPolicy,
    QuotaOfKey,
    Off,
    Block,
    Remove,
    Record,
}

/// The word of the call that sets or removes an override.
const CHANGE: &str = "\r\nchange\r\n";

const KINDS: [Kind; 6] =
    [Kind::QuotaOfPolicy, Kind::QuotaOfKey, Kind::Off, Kind::Block, Kind::Remove, Kind::Record];

impl Kind {
    /// The word that only the call of such a change has.
    fn word(self) -> &'static str {
        match self {
            Self::Record => "\r\nnote\r\n",
            _ => CHANGE,
        }
    }

    async fn make(self, overrides: &Overrides) -> Result<(), OverrideError> {
        // A change that is sent again must not find itself as the change of another operator.
        let set = async |key, kind| {
            let shown =
                overrides.list().into_iter().find(|it| it.key.is_some() == (key == Some(1)));
            let version = Some(shown.map_or(0, |it| it.version));
            overrides.set(new(key, kind, None), version).await.map(drop)
        };
        match self {
            Self::QuotaOfPolicy => set(None, quota("5/min")).await,
            Self::QuotaOfKey => set(Some(1), quota("6/min")).await,
            Self::Off => set(None, OverrideKind::Off).await,
            Self::Block => set(Some(1), OverrideKind::Block).await,
            Self::Remove => overrides.remove("api", None, None, "dora", "a test").await.map(drop),
            Self::Record => {
                let entry = AuditEntry::new(AuditAction::Reset, "api", "dora", "a test");
                overrides.record(entry).await
            }
        }
    }

    /// The overrides that are stored after it, if these were before: the override of the policy, and of the
    /// key.
    fn after(
        self,
        (policy, key): (Option<String>, Option<String>),
    ) -> (Option<String>, Option<String>) {
        match self {
            Self::QuotaOfPolicy => (Some("5/min".into()), key),
            Self::QuotaOfKey => (policy, Some("6/min".into())),
            Self::Off => (Some("off".into()), key),
            Self::Block => (policy, Some("block".into())),
            Self::Remove => (None, key),
            Self::Record => (policy, key),
        }
    }
}

async fn service(url: &str) -> Overrides {
    let registry = Registry::default();
    let policy = Policy::new("api", "1/min").expect("a policy");
    registry.register(policy, Origin::Code, KeyType::Integer).expect("a new name");
    let connected =
        Overrides::connect(OverridesConfig::new(url, "plim"), registry, Limiter::in_memory()).await;
    connected.expect("an answer")
}

/// The overrides of the policy and of the key, as another process reads them from Redis.
async fn stored(server: &Server) -> (Option<String>, Option<String>) {
    let list = reader(server).await.list();
    let find = |of_key: bool| {
        let found = list.iter().find(|it| it.key.is_some() == of_key);
        found.map(|it| it.kind.to_string())
    };
    (find(false), find(true))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_connection_is_cut_is_made_once() {
    let server = Server::start();
    let (cutter, url) = Cutter::start(server.port).await;
    let overrides = service(&url).await;
    let (mut expected, mut entries) = ((None, None), 0);
    for point in POINTS {
        for kind in KINDS {
            if let Kind::Remove = kind
                && expected.0.is_none()
            {
                Kind::Off.make(&overrides).await.expect("set");
                (expected, entries) = (Kind::Off.after(expected), entries + 1);
            }
            cutter.cut(kind.word(), point);
            let made = kind.make(&overrides).await;
            assert!(made.is_ok(), "{kind:?}, cut at {point:?}: {made:?}");
            assert!(cutter.has_cut(), "{kind:?}, {point:?}");
            (expected, entries) = (kind.after(expected), entries + 1);
            assert_eq!(stored(&server).await, expected, "{kind:?}, cut at {point:?}");
            let audit: usize = server.ask("XLEN plim:{overrides}:audit");
            assert_eq!(audit, entries, "{kind:?}, cut at {point:?}");
            // The answer has the state before, even if the first call gave it.
            assert_eq!(overrides.list().len(), reader(&server).await.list().len());
        }
    }
    // The log is read over a connection that was cut, too.
    cutter.cut("", Point::Idle);
    assert_eq!(overrides.audit(100).await.expect("an answer").len(), entries);
    server.assert_all_keys_expire();
}

/// The first reply takes longer than a reply may take. So Redis receives the change twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_arrives_twice_is_made_once() {
    let server = Server::start();
    let (cutter, url) = Cutter::start(server.port).await;
    let overrides = service(&url).await;
    overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    cutter.cut(CHANGE, Point::NoReply);
    let start = Instant::now();
    let change = overrides.set(new(None, quota("7/min"), None), None).await;
    let change = change.unwrap_or_else(|error| panic!("{error} after {:?}", start.elapsed()));
    assert_eq!(change.before.map(|it| it.kind), Some(quota("5/min")));
    assert_eq!(server.ask::<usize>("XLEN plim:{overrides}:audit"), 2);
    // The script asks once in each call if the change was made.
    let arrived = server.info("commandstats", "cmdstat_exists");
    assert!(arrived.starts_with("calls=3,"), "{arrived}");
}

/// Neither the first call nor the second one has a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_a_reply_may_have_been_made() {
    let server = Server::start();
    let (cutter, url) = Cutter::start(server.port).await;
    let overrides = service(&url).await;
    cutter.cut(CHANGE, Point::NoReply);
    let twice = async {
        while !cutter.has_cut() {
            sleep(Duration::from_millis(10)).await;
        }
        cutter.cut(CHANGE, Point::NoReply);
    };
    let (change, ()) = tokio::join!(overrides.set(new(None, quota("7/min"), None), None), twice);
    let error = change.expect_err("no reply");
    let message = "Redis did not answer, the change may have been made: no reply within 2s";
    assert_eq!(error.to_string(), message);
    // It was made, and the next poll learns it.
    let start = Instant::now();
    while overrides.list().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.ask::<usize>("XLEN plim:{overrides}:audit"), 1);
}

/// A change that was surely not made is an error that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_connections_has_changed_nothing() {
    let mut server = Server::start();
    let overrides = service(&server.url()).await;
    server.kill();
    let set = async || overrides.set(new(None, quota("7/min"), None), None).await;
    // The first one may have been on its way when the server ended.
    let _ = set().await;
    let error = set().await.expect_err("no server");
    let is_refused = matches!(&error, OverrideError::Unavailable { may_apply: false, .. });
    assert!(is_refused, "{error:?}");
}
