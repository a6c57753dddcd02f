//! The handle to the overrides.

use std::{fmt, sync::Arc, time::Duration};

use plimsoll::{
    Key, Limiter,
    clock::{Clock, SystemClock},
};
use tokio::runtime::Handle;

use super::{
    AuditAction, AuditEntry, Change, Override, OverrideError, OverrideKind,
    apply::Target,
    audit::MAX_AUDIT,
    backend::{Backend, Redis},
    config::{OverridesConfig, VERSION},
    entry::{check_author, field, find, find_field, shown_key},
    error::MAX_OVERRIDES,
    state::OverridesState,
};
use crate::{Fleet, HitRates, Offenders, Registered, Registry, StoreKind, time::from_millis};

/// The attempts at a change while other instances change overrides at the same time.
const ATTEMPTS: usize = 100;

/// The overrides of a service: changes of limits that apply for a time. Clones share them.
///
#[doc = include_str!("../../docs/links.md")]
#[doc = include_str!("../../docs/overrides.md")]
#[derive(Clone)]
pub struct Overrides {
    state: Arc<OverridesState>,
    shows_keys: bool,
}

/// The condition in which this process follows the overrides. [`Overrides::status`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverridesStatus {
    /// The [version](Override::version) of the last change that this process knows.
    pub version: u64,
    /// The time since Redis has answered. If it is more than 2 s, changes of other instances may be unknown
    /// here. It is zero for overrides in memory.
    pub since_reply: Duration,
    /// The reason for which Redis does not answer, or for which an override is not applied here.
    pub error: Option<String>,
    /// The number of times that Redis had lost changes that this process knew.
    pub losses: u64,
    /// The overrides that Redis has lost, as this process knew them. They are not in force any more. One that was
    /// set again, or that would have ended meanwhile, is none of them.
    pub lost: Vec<Override>,
}

impl Overrides {
    /// The maximum number of overrides.
    pub const MAX: usize = MAX_OVERRIDES;

    /// The number of entries that the audit log keeps. In Redis there may be some more.
    pub const MAX_AUDIT: usize = MAX_AUDIT;

    /// Connects to the overrides in Redis, which all instances of a service share, and applies them. Without a
    /// server, the overrides belong to this process, as the store does.
    ///
    /// The process follows the overrides as long as it has a handle. After the last one is dropped, what is in
    /// force stays.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, or if the store is shared and is not one server. If Redis
    /// does not answer, returns an error unless the [store](crate::StoreConfig::is_lazy) of the configuration is lazy.
    pub async fn connect(
        config: OverridesConfig,
        registry: Registry,
        limiter: Limiter,
    ) -> Result<Self, OverrideError> {
        let url = match (&config.url, config.kind) {
            (Some(url), _) => url,
            (None, StoreKind::Memory) => return Ok(Self::in_memory(registry, limiter)),
            (None, kind) => {
                let allowed = "one Redis server: name it with OverridesConfig::server";
                return Err(OverrideError::invalid("the store", kind.to_string(), allowed));
            }
        };
        let backend = Backend::Redis(Box::new(Redis::new(url, &config.prefix)?));
        let target = Target { registry, limiter };
        let overrides = Self::new(target, backend, config.version, SystemClock::new());
        if config.is_observer {
            overrides.state.announcer().hide();
        }
        let polled = overrides.state.poll().await;
        if !config.is_lazy {
            polled?;
        }
        overrides.state.start();
        Ok(overrides)
    }

    /// Creates overrides of this process alone, without [`OverridesConfig`]. They are lost when it ends.
    #[must_use]
    pub fn in_memory(registry: Registry, limiter: Limiter) -> Self {
        let backend = Backend::memory();
        Self::new(Target { registry, limiter }, backend, VERSION.into(), SystemClock::new())
    }

    fn new(target: Target, backend: Backend, version: String, clock: impl Clock) -> Self {
        let state = Arc::new(OverridesState::new(target, backend, version, Arc::new(clock)));
        Self { state, shows_keys: false }
    }

    /// Returns a handle that shows keys as operators write them, in its lists and in the audit entries of its
    /// changes. Clones of it do so too, and other handles do not: they show a digest such as `#1f2e3d4c`.
    #[must_use]
    pub fn show_keys(self) -> Self {
        Self { shows_keys: true, ..self }
    }

    /// Publishes the units that each policy has admitted and denied, as these [offenders](Offenders) count them, with each
    /// poll. So the admin page of each instance shows the rates of all of them. It shows the first 100 policies by name.
    /// [`AdminConfig::new`](crate::admin::AdminConfig::new) calls this. Call it in an instance without an admin page.
    pub fn publish(&self, offenders: &Offenders) {
        self.state.announcer().publish(offenders.clone());
        // Outside of a runtime, the first request for the fleet starts the task.
        if Handle::try_current().is_ok() {
            self.state.start();
        }
    }

    /// Returns the instances that announce themselves, at most 1,000, and the sums of their counts. An instance that has
    /// ended is among them for 5 s. While Redis does not answer, and for overrides in memory, it is this instance alone.
    pub async fn fleet(&self) -> Fleet {
        self.state.start();
        self.state.fleet().await
    }

    /// Returns the share of the units of each policy that the fleet has denied: in the last hour, day and week.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis does not answer.
    pub async fn hit_rates(&self) -> Result<HitRates, OverrideError> {
        self.state.start();
        self.state.hit_rates().await
    }

    /// Sets an override, and applies it in this process. It replaces the override that the policy or key has, if that
    /// one has the expected [version](Override::version): 0 if there is none, or any for `None`. Other instances
    /// apply it within 1.5 s.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, if the present override has another version, if there are
    /// [`MAX`](Self::MAX) other overrides, or if the change could not be stored. A change that is stored is no
    /// error: see [`Change::not_applied`].
    pub async fn set(&self, new: Override, expected: Option<u64>) -> Result<Change, OverrideError> {
        let (_, key) = new.check(&self.state.target.registry)?;
        self.state.start();
        let field = field(&new.policy, key.as_ref());
        let entry = AuditEntry::new(AuditAction::Set, &new.policy, &new.by, &new.reason);
        let entry = AuditEntry { key: new.key.clone(), ..entry };
        self.change(&field, Some(&new), expected, entry).await
    }

    /// Removes the override of a policy, or of a key under it, if it has the expected version, or any version for
    /// `None`. The key is written as in [`Override::key`], or is the digest that [`list`](Self::list) shows. The
    /// registry need not have the policy any more.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such override, if it has another version, or if the change could not be
    /// stored.
    pub async fn remove(
        &self,
        policy: &str,
        key: Option<&str>,
        expected: Option<u64>,
        by: &str,
        reason: &str,
    ) -> Result<Change, OverrideError> {
        check_author(by, reason)?;
        // Another instance may have set it since the last poll.
        self.state.poll().await?;
        let entries = self.state.entries();
        let field = find_field(&self.state.target.registry, &entries, policy, key)?;
        let key = entries.get(&field).map_or(key, |known| known.key.as_deref());
        let entry = AuditEntry::new(AuditAction::Remove, policy, by, reason);
        let entry = AuditEntry { key: key.map(Into::into), ..entry };
        drop(entries);
        self.change(&field, None, expected, entry).await
    }

    /// Returns the [overrides](Override) that are in force, by policy and key.
    #[must_use]
    pub fn list(&self) -> Vec<Override> {
        let now_millis = self.state.now_millis();
        let entries = self.state.entries();
        let in_force = entries.values().filter(|entry| entry.is_in_force(now_millis));
        in_force.map(|entry| self.shown(entry.clone())).collect()
    }

    /// Returns how well this process follows the overrides.
    #[must_use]
    pub fn status(&self) -> OverridesStatus {
        let since_reply = self.state.since_reply();
        let now_millis = self.state.now_millis();
        let known = self.state.known();
        let lost = known.lost.values().filter(|entry| entry.is_in_force(now_millis));
        OverridesStatus {
            version: known.version,
            since_reply,
            error: known.store_error.clone().or_else(|| known.error.clone()),
            losses: known.losses,
            lost: lost.map(|entry| self.shown(entry.clone())).collect(),
        }
    }

    /// Returns the newest entries of the audit log, the newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis does not answer.
    pub async fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        self.state.backend().await?.audit(count.min(Self::MAX_AUDIT)).await
    }

    /// Adds an action to the audit log that is not an override, such as a [reset](AuditAction::Reset).
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, or if Redis does not answer.
    pub async fn record(&self, mut entry: AuditEntry) -> Result<(), OverrideError> {
        self.check(&entry)?;
        entry.key = entry.key.map(|key| self.shown_key(&entry.policy, key));
        entry.time = from_millis(self.state.now_millis());
        self.state.backend().await?.write(&entry, None).await.map(drop)
    }

    /// Returns the registry and the limiter to which the overrides are applied.
    #[cfg(feature = "admin")]
    pub(crate) fn target(&self) -> (Registry, Limiter) {
        (self.state.target.registry.clone(), self.state.target.limiter.clone())
    }

    /// Checks an entry for the audit log, before the action is done. Returns its policy and its key.
    pub(crate) fn check(
        &self,
        entry: &AuditEntry,
    ) -> Result<(Registered, Option<Key>), OverrideError> {
        check_author(&entry.by, &entry.reason)?;
        find(&self.state.target.registry, &entry.policy, entry.key.as_deref())
    }

    /// Learns the changes of other instances, makes this one if it is allowed then, and applies it. The key of the
    /// entry is in the clear.
    async fn change(
        &self,
        field: &str,
        new: Option<&Override>,
        expected: Option<u64>,
        mut entry: AuditEntry,
    ) -> Result<Change, OverrideError> {
        let state = &self.state;
        let found = find(&state.target.registry, &entry.policy, entry.key.as_deref()).ok();
        entry.key = entry.key.map(|key| self.shown_key(&entry.policy, key));
        let mut backend = state.backend().await?;
        for _ in 0..ATTEMPTS {
            state.learn(&mut backend).await?;
            let now_micros = state.now_micros();
            let edit = state.known().edit(field, new, expected, now_micros)?;
            let before = in_force(found.as_ref(), edit.change.before.as_ref());
            entry.describe(&edit.change);
            if !backend.write(&entry, Some(&edit)).await? {
                continue;
            }
            let mut change = state.known().put(edit);
            drop(backend);
            change.not_applied = state.follow_one(field).await.err();
            change.in_force_before = before;
            change.in_force_after = in_force(found.as_ref(), change.after.as_ref());
            change.before = change.before.map(|entry| self.shown(entry));
            change.after = change.after.map(|entry| self.shown(entry));
            return Ok(change);
        }
        Err(OverrideError::not_sent("other instances change overrides all the time"))
    }

    /// Returns the form of a key that this handle shows.
    fn shown_key(&self, policy: &str, text: String) -> String {
        if self.shows_keys { text } else { shown_key(&self.state.target.registry, policy, &text) }
    }

    fn shown(&self, mut entry: Override) -> Override {
        entry.key = entry.key.map(|key| self.shown_key(&entry.policy, key));
        entry
    }
}

/// Returns the limit in force for a policy, or for one key under it, with this override: a quota, `off` or `block`.
/// `None` if this process does not have the policy.
fn in_force(found: Option<&(Registered, Option<Key>)>, entry: Option<&Override>) -> Option<String> {
    let (policy, key) = found?;
    Some(match (key, entry.map(|entry| entry.kind)) {
        _ if !policy.is_enabled() => OverrideKind::Off.to_string(),
        (_, Some(OverrideKind::Block)) => OverrideKind::Block.to_string(),
        (Some(key), _) => policy.policy().charge(*key, 1).quota().to_string(),
        (None, _) => policy.policy().quota().to_string(),
    })
}

/// Prints no keys.
impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{Policy, Quota, clock::ManualClock};

    use super::*;
    use crate::{KeyType, Offender, Origin, OverrideKind, overrides::digest, time::from_millis};

    const START_MICROS: u64 = 1_000_000_000_000;

    struct Service {
        overrides: Overrides,
        clock: ManualClock,
        policy: Policy,
    }

    fn service() -> Service {
        let (registry, clock) = (Registry::default(), ManualClock::at(START_MICROS));
        let policy = Policy::new("api", "1/min").unwrap();
        registry.register(policy.clone(), Origin::Code, KeyType::Integer).unwrap();
        let limiter = Limiter::in_memory();
        let overrides = Overrides::new(
            Target { registry, limiter },
            Backend::memory(),
            VERSION.into(),
            clock.clone(),
        );
        Service { overrides, clock, policy }
    }

    fn new(key: Option<&str>, kind: OverrideKind, seconds: Option<u64>) -> Override {
        let until = seconds.map(|it| from_millis(START_MICROS / 1_000 + it * 1_000));
        let key = key.map(Into::into);
        Override { key, until, ..Override::new("api", kind, "dora", "a test") }
    }

    fn quota(text: &str) -> OverrideKind {
        OverrideKind::Quota(text.parse().unwrap())
    }

    fn limit(service: &Service, key: u64) -> u64 {
        service.policy.charge(key, 1).quota().limit()
    }

    #[tokio::test]
    async fn an_override_applies_until_it_ends() {
        let service = service();
        let Service { overrides, clock, .. } = &service;
        overrides.set(new(None, quota("5/min"), Some(60)), None).await.unwrap();
        overrides.set(new(Some("42"), quota("9/min"), Some(120)), None).await.unwrap();
        assert_eq!((limit(&service, 42), limit(&service, 7)), (9, 5));
        let shown: Vec<_> = overrides.list().into_iter().map(|it| it.key).collect();
        assert_eq!(shown, [None, Some(digest(&42.into()))]);
        clock.advance(Duration::from_secs(60));
        overrides.state.follow().await;
        assert_eq!(overrides.status().error, None);
        assert_eq!((limit(&service, 42), limit(&service, 7)), (9, 1));
        clock.advance(Duration::from_secs(60));
        assert!(overrides.list().is_empty());
        overrides.state.follow().await;
        assert_eq!(overrides.status().error, None);
        assert_eq!(limit(&service, 42), 1);
    }

    #[tokio::test]
    async fn a_change_names_what_was_before_and_conflicts_with_another_one() {
        let Service { overrides, .. } = service();
        let first = overrides.set(new(None, quota("5/min"), None), None).await.unwrap();
        let stale = overrides.set(new(None, quota("7/min"), None), Some(0)).await;
        let error = stale.unwrap_err();
        let found = first.version;
        assert!(matches!(error, OverrideError::Conflict { expected: 0, found: it } if it == found));
        let in_force = |change: &Change| {
            (change.in_force_before.clone().unwrap(), change.in_force_after.clone().unwrap())
        };
        assert_eq!(in_force(&first), ("1/min".into(), "5/min".into()));
        let key = overrides.set(new(Some("42"), quota("9/min"), None), None).await.unwrap();
        assert_eq!(in_force(&key), ("5/min".into(), "9/min".into()));
        let key = overrides.remove("api", Some("42"), None, "dora", "done").await.unwrap();
        assert_eq!(in_force(&key), ("9/min".into(), "5/min".into()));
        let next = new(None, OverrideKind::Off, None);
        let second = overrides.set(next, Some(found)).await.unwrap();
        assert_eq!(second.before, first.after);
        assert!(second.version > first.version);
        let api = overrides.state.target.registry.get("api").unwrap();
        assert!(!api.is_enabled());
        assert_eq!(api.overridden(), None);
        let third = overrides.remove("api", None, None, "dora", "done").await.unwrap();
        assert_eq!(in_force(&third), ("off".into(), "1/min".into()));
        assert!(api.is_enabled());
        let again = overrides.remove("api", None, None, "dora", "done").await.unwrap_err();
        assert!(matches!(again, OverrideError::NotFound));
        let audit = overrides.audit(10).await.unwrap();
        let lines: Vec<_> = audit
            .iter()
            .map(|it| (it.action, it.before.as_deref(), it.after.as_deref(), it.reason.as_str()))
            .collect();
        assert_eq!(
            lines,
            [
                (AuditAction::Remove, Some("off"), None, "done"),
                (AuditAction::Set, Some("5/min"), Some("off"), "a test"),
                (AuditAction::Remove, Some("9/min"), None, "done"),
                (AuditAction::Set, None, Some("9/min"), "a test"),
                (AuditAction::Set, None, Some("5/min"), "a test"),
            ]
        );
    }

    #[tokio::test]
    async fn a_handle_that_shows_keys_changes_no_other_one() {
        let Service { overrides, .. } = service();
        let revealing = overrides.clone().show_keys();
        revealing.set(new(Some("42"), quota("5/min"), None), None).await.unwrap();
        assert_eq!(revealing.clone().list()[0].key.as_deref(), Some("42"));
        assert_eq!(overrides.list()[0].key, Some(digest(&42.into())));
        overrides.remove("api", Some("42"), None, "dora", "done").await.unwrap();
        let keys: Vec<_> = overrides.audit(2).await.unwrap().into_iter().map(|it| it.key).collect();
        assert_eq!(keys, [Some(digest(&42.into())), Some("42".into())]);
    }

    #[tokio::test]
    async fn no_key_is_printed_for_debugging() {
        let Service { overrides, .. } = service();
        let overrides = overrides.show_keys();
        let new = new(Some("424242"), quota("5/min"), None);
        let mut printed = format!("{new:?}");
        let change = overrides.set(new, None).await.unwrap();
        assert_eq!(overrides.list()[0].key.as_deref(), Some("424242"));
        printed += &format!("{change:?} {overrides:?} {:?}", overrides.list());
        printed += &format!("{:?}", overrides.audit(1).await.unwrap());
        let offender = Offender { key: "424242".into(), denied: 1, spent: 0 };
        printed += &format!("{offender:?}");
        assert!(!printed.contains("424242"), "{printed}");
    }

    #[tokio::test]
    async fn a_block_is_lifted_by_its_digest() {
        let Service { overrides, policy, .. } = service();
        overrides.set(new(Some("42"), OverrideKind::Block, None), None).await.unwrap();
        let limiter = overrides.state.target.limiter.clone();
        assert!(!limiter.check(policy.charge(42, 1)).await.unwrap().is_allowed());
        let key = overrides.list()[0].key.clone().expect("it is of a key");
        assert!(key.starts_with('#') && !key.contains("42"), "{key}");
        overrides.remove("api", Some(&key), None, "dora", "done").await.unwrap();
        assert!(limiter.check(policy.charge(42, 1)).await.unwrap().is_allowed());
    }

    #[tokio::test]
    async fn an_error_names_the_value_and_what_is_allowed() {
        let Service { overrides, .. } = service();
        let text = async |new| overrides.set(new, None).await.unwrap_err().to_string();
        assert_eq!(
            text(new(Some("alice"), quota("5/min"), None)).await,
            "the key is \"alice\", allowed is an integer"
        );
        assert_eq!(
            text(new(None, quota("5/min token-bucket(5)"), None)).await,
            "quota is 5/min token-bucket(5), which counts by token-bucket, allowed is a quota that counts \
             by sliding-log, such as 1/min: under another algorithm all keys would start with no units spent"
        );
        assert_eq!(
            text(new(None, OverrideKind::Block, None)).await,
            "kind is block, allowed is a quota or off; only a key is blocked"
        );
        assert_eq!(
            text(new(None, quota("5/min"), Some(0))).await,
            "until is a time in the past, allowed is a time to come"
        );
        let unnamed = Override { reason: " ".into(), ..new(None, quota("5/min"), None) };
        assert_eq!(text(unnamed).await, "reason is empty, allowed is 1 to 1000 bytes");
        let unknown = Override { policy: "app".into(), ..new(None, quota("5/min"), None) };
        assert_eq!(text(unknown).await, "there is no policy \"app\", there are: api");
        assert_eq!(
            Quota::per_minute(1),
            overrides.state.target.registry.policies()[0].policy().quota()
        );
    }
}
