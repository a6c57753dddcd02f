//! The handle to the overrides.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use plimsoll::{Clock, Limiter, SystemClock};

use super::{
    AuditAction, AuditEntry, Change, NewAuditEntry, NewOverride, Override, OverrideError,
    apply::Target,
    audit::MAX_AUDIT,
    entry::{check_author, field, find},
    error::MAX_OVERRIDES,
    memory::MemoryAudit,
    redis::RedisBackend,
    shared::{Backend, Shared},
    tasks::Tasks,
};
use crate::Registry;

/// The overrides of a service: changes of limits that apply for a time. Clones share them.
///
#[doc = include_str!("../../docs/overrides.md")]
#[derive(Debug, Clone)]
pub struct Overrides {
    shared: Arc<Shared>,
    tasks: Arc<Tasks>,
}

/// The Redis that has the overrides of a service.
///
/// It is one server: the one that has the budgets, or another one. [`Overrides::connect_with`] takes it.
#[derive(Clone)]
pub struct OverridesConfig {
    url: String,
    prefix: String,
    is_lazy: bool,
}

/// The condition in which this process follows the overrides. [`Overrides::status`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverridesStatus {
    /// The version of the last change that this process knows.
    pub version: u64,
    /// The time since Redis has answered. If it is more than 2 s, changes of other instances may be unknown
    /// here. It is zero for overrides in memory.
    pub unheard: Duration,
    /// The reason for which Redis does not answer, or for which an override is not applied here.
    pub error: Option<String>,
    /// The number of times that this process has put back overrides that Redis had lost.
    pub restores: u64,
}

impl OverridesConfig {
    /// Creates the configuration for the server at a URL, such as `redis://user:password@host:6379/0`.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: "plim".into(), is_lazy: false }
    }

    /// Sets the prefix of all keys in Redis: see [`RedisConfig::prefix`](plimsoll::RedisConfig::prefix).
    /// Instances share their overrides if they have the same prefix. The default is `plim`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Starts without overrides if Redis does not answer, and learns them when it does. The default is an
    /// error.
    #[must_use]
    pub fn lazy(mut self, is_lazy: bool) -> Self {
        self.is_lazy = is_lazy;
        self
    }
}

impl Overrides {
    /// The maximum number of overrides.
    pub const MAX: usize = MAX_OVERRIDES;

    /// The number of entries that the audit log keeps. In Redis there may be some more.
    pub const MAX_AUDIT: usize = MAX_AUDIT;

    /// Connects to the overrides in Redis, which all instances of a service share, and applies them.
    ///
    /// The process follows the overrides as long as it has a handle. After the last one is dropped, what is in
    /// force stays.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, or if Redis does not answer.
    pub async fn connect(
        url: &str,
        registry: Registry,
        limiter: Limiter,
    ) -> Result<Self, OverrideError> {
        Self::connect_with(OverridesConfig::url(url), registry, limiter).await
    }

    /// Connects to the overrides in Redis, as configured.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed. If Redis does not answer, returns an error unless the
    /// configuration is [lazy](OverridesConfig::lazy).
    pub async fn connect_with(
        config: OverridesConfig,
        registry: Registry,
        limiter: Limiter,
    ) -> Result<Self, OverrideError> {
        let backend = RedisBackend::new(&config.url, &config.prefix)?;
        let backend = Backend::Redis(Box::new(backend));
        let clock = Arc::new(SystemClock::new());
        let shared = Arc::new(Shared::new(Target { registry, limiter }, backend, clock));
        match shared.poll().await {
            Err(error) if !config.is_lazy => return Err(error),
            _ => drop(shared.follow().await),
        }
        let tasks = Tasks::default();
        tasks.start(&shared);
        Ok(Self { shared, tasks: Arc::new(tasks) })
    }

    /// Creates overrides of this process alone. They are lost when it ends.
    #[must_use]
    pub fn in_memory(registry: Registry, limiter: Limiter) -> Self {
        Self::in_memory_with_clock(registry, limiter, SystemClock::new())
    }

    /// Creates overrides of this process alone, which end by this clock.
    #[must_use]
    pub fn in_memory_with_clock(registry: Registry, limiter: Limiter, clock: impl Clock) -> Self {
        let backend = Backend::Memory(MemoryAudit::default());
        let target = Target { registry, limiter };
        let shared = Arc::new(Shared::new(target, backend, Arc::new(clock)));
        Self { shared, tasks: Arc::default() }
    }

    /// Shows keys as operators write them, in lists and in audit entries from now on. The default is a
    /// digest such as `#1f2e3d4c`.
    #[must_use]
    pub fn show_keys(self) -> Self {
        self.shared.show_keys.store(true, Ordering::Relaxed);
        self
    }

    /// Sets an override, and applies it in this process. It replaces the override that the policy or key
    /// has. Other instances apply it within 1.5 s.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, if the override has another
    /// [version](NewOverride::version), if there are [`MAX`](Self::MAX) other overrides, or if the change
    /// could not be stored or applied.
    pub async fn set(&self, new: NewOverride) -> Result<Change, OverrideError> {
        let shared = &self.shared;
        let (policy, key) = new.check(&shared.target.registry)?;
        self.tasks.start(shared);
        let field = field(policy.policy().name(), key.as_ref());
        let mut entry = AuditEntry::new(AuditAction::Set, &new.by, &new.reason);
        (entry.policy, entry.until) = (Some(new.policy.clone()), new.until);
        entry.key = new.key.clone().map(|key| shared.shown_key(&new.policy, key));
        entry.after = Some(new.kind.to_string());
        let change = shared.set(&field, &new, entry).await?;
        self.applied(&field, change).await
    }

    /// Removes the override of a policy, or of a key under it. The key is written as in
    /// [`NewOverride::key`], or is the digest that [`list`](Self::list) shows.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such override, or if the change could not be stored or applied.
    pub async fn remove(
        &self,
        policy: &str,
        key: Option<&str>,
        by: &str,
        reason: &str,
    ) -> Result<Change, OverrideError> {
        check_author(by, reason)?;
        let shared = &self.shared;
        let field = shared.find_field(policy, key)?;
        let known = shared.known().entries.get(&field).cloned();
        let key = known.map_or_else(|| key.map(Into::into), |known| known.key);
        let mut entry = AuditEntry::new(AuditAction::Remove, by, reason);
        entry.policy = Some(policy.into());
        entry.key = key.map(|key| shared.shown_key(policy, key));
        let change = shared.remove(&field, entry).await?;
        self.applied(&field, change).await
    }

    /// Returns the overrides that are in force, by policy and key.
    #[must_use]
    pub fn list(&self) -> Vec<Override> {
        let now_millis = self.shared.now_millis();
        let entries = Arc::clone(&self.shared.known().entries);
        let in_force = entries.values().filter(|entry| entry.is_in_force(now_millis));
        in_force.map(|entry| self.shown(entry.clone())).collect()
    }

    /// Returns how well this process follows the overrides.
    #[must_use]
    pub fn status(&self) -> OverridesStatus {
        let known = self.shared.known();
        OverridesStatus {
            version: known.version,
            unheard: self.shared.unheard(&known),
            error: known.store_error.clone().or_else(|| known.error.clone()),
            restores: known.restores,
        }
    }

    /// Returns the newest entries of the audit log, the newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis does not answer.
    pub async fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        let count = count.min(Self::MAX_AUDIT);
        match &self.shared.backend {
            Backend::Memory(audit) => Ok(audit.newest(count)),
            Backend::Redis(backend) => backend.audit(count).await,
        }
    }

    /// Adds an action to the audit log that is not an override, such as a reset.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, or if Redis does not answer.
    pub async fn record(&self, new: NewAuditEntry) -> Result<(), OverrideError> {
        self.check(&new)?;
        let mut entry = AuditEntry::new(new.action, new.by, new.reason);
        entry.key = new.key.map(|key| self.shared.shown_key(&new.policy, key));
        entry.policy = Some(new.policy);
        (entry.before, entry.after) = (new.before, new.after);
        match &self.shared.backend {
            Backend::Memory(audit) => audit.push(entry, self.shared.now_millis()),
            Backend::Redis(backend) => backend.note(&entry).await?,
        }
        Ok(())
    }

    /// Checks an entry for the audit log, before the action is done.
    pub(crate) fn check(&self, new: &NewAuditEntry) -> Result<(), OverrideError> {
        check_author(&new.by, &new.reason)?;
        find(&self.shared.target.registry, &new.policy, new.key.as_deref()).map(drop)
    }

    /// Returns the connection to Redis, if there is one.
    pub(crate) fn redis(&self) -> Option<&RedisBackend> {
        match &self.shared.backend {
            Backend::Memory(_) => None,
            Backend::Redis(backend) => Some(backend),
        }
    }

    /// Applies a change that is stored.
    async fn applied(&self, field: &str, change: Change) -> Result<Change, OverrideError> {
        self.shared.follow_one(field).await?;
        let shown = |entry: Option<Override>| entry.map(|it| self.shown(it));
        Ok(Change { before: shown(change.before), after: shown(change.after), ..change })
    }

    fn shown(&self, mut entry: Override) -> Override {
        entry.key = entry.key.map(|key| self.shared.shown_key(&entry.policy, key));
        entry
    }
}

/// Prints no address and no password.
impl fmt::Debug for OverridesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverridesConfig").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{ManualClock, Policy, Quota};

    use super::*;
    use crate::{
        KeyType, OverrideKind, Source,
        overrides::{digest, time::from_millis},
    };

    const START_MICROS: u64 = 1_000_000_000_000;

    struct Service {
        overrides: Overrides,
        clock: ManualClock,
        policy: Policy,
    }

    fn service() -> Service {
        let (registry, clock) = (Registry::default(), ManualClock::at(START_MICROS));
        let policy = Policy::new("api", "1/min").unwrap();
        registry.register(policy.clone(), Source::Code, KeyType::Integer).unwrap();
        let limiter = Limiter::in_memory();
        let overrides = Overrides::in_memory_with_clock(registry, limiter, clock.clone());
        Service { overrides, clock, policy }
    }

    fn new(key: Option<&str>, kind: OverrideKind, seconds: Option<u64>) -> NewOverride {
        let until = seconds.map(|it| from_millis(START_MICROS / 1_000 + it * 1_000));
        NewOverride {
            policy: "api".into(),
            key: key.map(Into::into),
            kind,
            until,
            by: "dora".into(),
            reason: "a test".into(),
            version: None,
        }
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
        overrides.set(new(None, quota("5/min"), Some(60))).await.unwrap();
        overrides.set(new(Some("42"), quota("9/min"), Some(120))).await.unwrap();
        assert_eq!((limit(&service, 42), limit(&service, 7)), (9, 5));
        let shown: Vec<_> = overrides.list().into_iter().map(|it| it.key).collect();
        assert_eq!(shown, [None, Some(digest(&42.into()))]);
        clock.advance(Duration::from_secs(60));
        assert!(overrides.shared.follow().await.is_empty());
        assert_eq!((limit(&service, 42), limit(&service, 7)), (9, 1));
        clock.advance(Duration::from_secs(60));
        assert!(overrides.list().is_empty());
        assert!(overrides.shared.follow().await.is_empty());
        assert_eq!(limit(&service, 42), 1);
    }

    #[tokio::test]
    async fn a_change_names_what_was_before_and_conflicts_with_another_one() {
        let Service { overrides, .. } = service();
        let first = overrides.set(new(None, quota("5/min"), None)).await.unwrap();
        let stale = NewOverride { version: Some(0), ..new(None, quota("7/min"), None) };
        let error = overrides.set(stale).await.unwrap_err();
        let found = first.version;
        assert!(matches!(error, OverrideError::Conflict { expected: 0, found: it } if it == found));
        let next = NewOverride { version: Some(found), ..new(None, OverrideKind::Off, None) };
        let second = overrides.set(next).await.unwrap();
        assert_eq!(second.before, first.after);
        assert!(second.version > first.version);
        let api = overrides.shared.target.registry.get("api").unwrap();
        assert!(!api.is_enabled());
        assert_eq!(api.overridden(), None);
        overrides.remove("api", None, "dora", "done").await.unwrap();
        assert!(api.is_enabled());
        let again = overrides.remove("api", None, "dora", "done").await.unwrap_err();
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
                (AuditAction::Set, None, Some("5/min"), "a test"),
            ]
        );
    }

    #[tokio::test]
    async fn a_block_is_lifted_by_its_digest() {
        let Service { overrides, policy, .. } = service();
        overrides.set(new(Some("42"), OverrideKind::Block, None)).await.unwrap();
        let limiter = overrides.shared.target.limiter.clone();
        assert!(!limiter.check(policy.charge(42, 1)).await.unwrap().is_allowed());
        let key = overrides.list()[0].key.clone().expect("it is of a key");
        assert!(key.starts_with('#') && !key.contains("42"), "{key}");
        overrides.remove("api", Some(&key), "dora", "done").await.unwrap();
        assert!(limiter.check(policy.charge(42, 1)).await.unwrap().is_allowed());
    }

    #[tokio::test]
    async fn an_error_names_the_value_and_what_is_allowed() {
        let Service { overrides, .. } = service();
        let text = async |new| overrides.set(new).await.unwrap_err().to_string();
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
        let unnamed = NewOverride { reason: " ".into(), ..new(None, quota("5/min"), None) };
        assert_eq!(text(unnamed).await, "reason is empty, allowed is 1 to 1000 bytes");
        let unknown = NewOverride { policy: "app".into(), ..new(None, quota("5/min"), None) };
        assert_eq!(text(unknown).await, "there is no policy \"app\", there are: api");
        assert_eq!(
            Quota::per_minute(1),
            overrides.shared.target.registry.policies()[0].policy().quota()
        );
    }
}
