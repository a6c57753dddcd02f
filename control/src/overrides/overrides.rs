//! The handle to the overrides.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use plimsoll::{Clock, Limiter, SystemClock};
use tokio::{task::AbortHandle, time::sleep};

use super::{
    AuditAction, AuditEntry, Change, NewAuditEntry, NewOverride, Override, OverrideError,
    apply::{Applied, Entries, StoreTime, Target},
    entry::{check_author, digest, field, find},
    memory::MemoryAudit,
    time::{from_millis, to_millis},
};
use crate::Registry;

/// The overrides of a service: changes of limits that apply for a time. Clones share them.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use plimsoll::{Limiter, Policy, Quota};
/// use plimsoll_control::{KeyType, NewOverride, OverrideKind, Overrides, Registry, Source};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::default();
/// let api = Policy::new("api", "100/min")?;
/// registry.register(api.clone(), Source::Code, KeyType::Integer)?;
/// let overrides = Overrides::in_memory(registry, Limiter::in_memory());
///
/// let change = overrides
///     .set(NewOverride {
///         policy: "api".into(),
///         key: Some("42".into()),
///         kind: OverrideKind::Quota("500/min".parse()?),
///         until: Some(SystemTime::now() + Duration::from_secs(7_200)),
///         by: "dora".into(),
///         reason: "a launch".into(),
///         version: None,
///     })
///     .await?;
/// assert_eq!(api.charge(42, 1).quota(), &Quota::per_minute(500));
/// assert_eq!(overrides.list(), [change.after.expect("it is set")]);
///
/// overrides.remove("api", Some("42"), "dora", "the launch is over").await?;
/// assert_eq!(api.charge(42, 1).quota(), &Quota::per_minute(100));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Overrides(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    target: Target,
    clock: Arc<dyn Clock>,
    audit: MemoryAudit,
    known: Mutex<Known>,
    applied: tokio::sync::Mutex<Applied>,
    show_keys: AtomicBool,
    task: OnceLock<Task>,
}

/// What this process knows of the overrides.
#[derive(Debug, Default)]
struct Known {
    entries: Entries,
    version: u64,
    error: Option<String>,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Task(AbortHandle);

/// How well this process follows the overrides. [`Overrides::status`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverridesStatus {
    /// The version of the last change that this process knows.
    pub version: u64,
    /// The reason for which an override is not applied here, or for which Redis does not answer.
    pub error: Option<String>,
}

/// The time between two looks at the overrides.
const INTERVAL: Duration = Duration::from_secs(1);

impl Overrides {
    /// The maximum number of overrides.
    pub const MAX: usize = 10_000;

    /// The number of entries that the audit log keeps.
    pub const MAX_AUDIT: usize = 10_000;

    /// Creates overrides of this process alone. They are lost when it ends.
    #[must_use]
    pub fn in_memory(registry: Registry, limiter: Limiter) -> Self {
        Self::in_memory_with_clock(registry, limiter, SystemClock::new())
    }

    /// Creates overrides of this process alone, which end by this clock.
    #[must_use]
    pub fn in_memory_with_clock(registry: Registry, limiter: Limiter, clock: impl Clock) -> Self {
        Self(Arc::new(Shared {
            target: Target { registry, limiter },
            clock: Arc::new(clock),
            audit: MemoryAudit::default(),
            known: Mutex::default(),
            applied: tokio::sync::Mutex::default(),
            show_keys: AtomicBool::new(false),
            task: OnceLock::new(),
        }))
    }

    /// Shows keys as operators write them, in lists and in audit entries from now on. The default is a
    /// digest such as `#1f2e3d4c`.
    #[must_use]
    pub fn show_keys(self) -> Self {
        self.0.show_keys.store(true, Ordering::Relaxed);
        self
    }

    /// Sets an override, and applies it in this process. It replaces the override that the policy or key
    /// has.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, if the override has another
    /// [version](NewOverride::version), if there are [`MAX`](Self::MAX) other overrides, or if the change
    /// could not be stored or applied.
    pub async fn set(&self, new: NewOverride) -> Result<Change, OverrideError> {
        let shared = &self.0;
        let (policy, key) = new.check(&shared.target.registry)?;
        shared.start();
        let field = field(policy.policy().name(), key.as_ref());
        let change = shared.known().set(field, new, shared.now_millis())?;
        shared.note(AuditAction::Set, &change);
        shared.follow().await?;
        Ok(shared.shown_change(change))
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
        let shared = &self.0;
        let field = shared.find_field(policy, key)?;
        let mut change = shared.known().remove(&field, shared.now_millis())?;
        if let Some(before) = &mut change.before {
            (before.by, before.reason) = (by.into(), reason.into());
        }
        shared.note(AuditAction::Remove, &change);
        shared.follow().await?;
        Ok(shared.shown_change(change))
    }

    /// Returns the overrides that are in force, by policy and key.
    #[must_use]
    pub fn list(&self) -> Vec<Override> {
        let now = self.0.now_millis();
        let known = self.0.known();
        let in_force = known.entries.values().filter(|entry| entry.is_in_force(now));
        in_force.map(|entry| self.0.shown(entry.clone())).collect()
    }

    /// Returns how well this process follows the overrides.
    #[must_use]
    pub fn status(&self) -> OverridesStatus {
        let known = self.0.known();
        OverridesStatus { version: known.version, error: known.error.clone() }
    }

    /// Returns the newest entries of the audit log, the newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis does not answer.
    pub async fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        Ok(self.0.audit.newest(count))
    }

    /// Adds an action to the audit log that is not an override, such as a reset.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed, or if Redis does not answer.
    pub async fn record(&self, new: NewAuditEntry) -> Result<(), OverrideError> {
        check_author(&new.by, &new.reason)?;
        find(&self.0.target.registry, &new.policy, new.key.as_deref())?;
        let entry = AuditEntry {
            time: from_millis(self.0.now_millis()),
            action: new.action,
            key: new.key.map(|key| self.0.shown_key(&new.policy, key)),
            policy: Some(new.policy),
            before: new.before,
            after: new.after,
            until: None,
            by: new.by,
            reason: new.reason,
        };
        self.0.audit.push(entry, Self::MAX_AUDIT);
        Ok(())
    }
}

impl Shared {
    /// Starts the task that ends overrides, if it does not run.
    fn start(self: &Arc<Self>) {
        self.task.get_or_init(|| {
            let shared = Arc::downgrade(self);
            Task(tokio::spawn(follow(shared)).abort_handle())
        });
    }

    /// Applies the overrides in force to the policies of this process.
    async fn follow(&self) -> Result<(), OverrideError> {
        let mut applied = self.applied.lock().await;
        let time = StoreTime { now_millis: self.now_millis(), generation: 0 };
        let entries = self.known().entries.clone();
        let result = applied.follow(&entries, &self.target, time).await;
        let mut known = self.known();
        known.entries.retain(|_, entry| entry.is_in_force(time.now_millis));
        known.error = result.clone().err();
        result.map_err(|message| OverrideError::NotApplied { message })
    }

    fn now_millis(&self) -> u64 {
        self.clock.now().as_micros() / 1_000
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the field of an override, by its key or by the digest of the key.
    fn find_field(&self, policy: &str, key: Option<&str>) -> Result<String, OverrideError> {
        let by_digest = |text: &str| {
            let known = self.known();
            let mut entries = known.entries.iter().filter(|(_, entry)| entry.policy == policy);
            let found = entries.find(|(_, entry)| {
                let key = entry.key.as_deref();
                let key = find(&self.target.registry, policy, key).ok().and_then(|(_, key)| key);
                key.is_some_and(|key| digest(&key) == text)
            });
            found.map(|(field, _)| field.clone())
        };
        let by_key =
            find(&self.target.registry, policy, key).map(|(_, key)| field(policy, key.as_ref()));
        match (by_key, key) {
            (Ok(field), _) if self.known().entries.contains_key(&field) => Ok(field),
            (by_key, Some(text)) if text.starts_with('#') => {
                by_digest(text).ok_or(OverrideError::NotFound).or(by_key)
            }
            (by_key, _) => by_key,
        }
    }

    /// Adds a change to the audit log.
    fn note(&self, action: AuditAction, change: &Change) {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let Some(about) = after.or(before) else { return };
        let key = about.key.clone().map(|key| self.shown_key(&about.policy, key));
        let entry = AuditEntry {
            time: from_millis(self.now_millis()),
            action,
            policy: Some(about.policy.clone()),
            key,
            before: before.map(|it| it.kind.to_string()),
            after: after.map(|it| it.kind.to_string()),
            until: after.and_then(|it| it.until),
            by: about.by.clone(),
            reason: about.reason.clone(),
        };
        self.audit.push(entry, Overrides::MAX_AUDIT);
    }

    fn shown_change(&self, change: Change) -> Change {
        let shown = |entry: Option<Override>| entry.map(|it| self.shown(it));
        Change { before: shown(change.before), after: shown(change.after), ..change }
    }

    fn shown(&self, mut entry: Override) -> Override {
        entry.key = entry.key.map(|key| self.shown_key(&entry.policy, key));
        entry
    }

    /// Returns the form of a key that may be shown.
    fn shown_key(&self, policy: &str, text: String) -> String {
        if self.show_keys.load(Ordering::Relaxed) {
            return text;
        }
        match find(&self.target.registry, policy, Some(&text)) {
            Ok((_, Some(key))) => digest(&key),
            _ => digest(&plimsoll::Key::from(text)),
        }
    }
}

impl Known {
    fn set(
        &mut self,
        field: String,
        new: NewOverride,
        now_millis: u64,
    ) -> Result<Change, OverrideError> {
        let before = self.entries.get(&field).filter(|it| it.is_in_force(now_millis)).cloned();
        let found = before.as_ref().map_or(0, |it| it.version);
        if let Some(expected) = new.version.filter(|version| *version != found) {
            return Err(OverrideError::Conflict { expected, found });
        }
        if new.until.is_some_and(|until| to_millis(until) <= now_millis) {
            return Err(OverrideError::invalid("until", "a time in the past", "a time to come"));
        }
        if before.is_none() && self.entries.len() >= Overrides::MAX {
            return Err(OverrideError::TooMany);
        }
        let version = self.next_version(now_millis);
        let after = Override {
            policy: new.policy,
            key: new.key,
            kind: new.kind,
            until: new.until,
            since: from_millis(now_millis),
            by: new.by,
            reason: new.reason,
            version,
        };
        self.entries.insert(field, after.clone());
        Ok(Change { before, after: Some(after), version })
    }

    fn remove(&mut self, field: &str, now_millis: u64) -> Result<Change, OverrideError> {
        let before = self.entries.remove(field).filter(|it| it.is_in_force(now_millis));
        let before = Some(before.ok_or(OverrideError::NotFound)?);
        Ok(Change { before, after: None, version: self.next_version(now_millis) })
    }

    /// Versions are times, so that they grow even after the store has lost its data.
    fn next_version(&mut self, now_millis: u64) -> u64 {
        self.version = (self.version + 1).max(now_millis * 1_000);
        self.version
    }
}

/// Applies the overrides and ends them in time, until their handles are dropped.
async fn follow(shared: Weak<Shared>) {
    loop {
        sleep(INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        // The error is in the status, and the next round tries again.
        let _ = shared.follow().await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{ManualClock, Policy, Quota};

    use super::*;
    use crate::{KeyType, OverrideKind, Source};

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
        overrides.0.follow().await.unwrap();
        assert_eq!((limit(&service, 42), limit(&service, 7)), (9, 1));
        clock.advance(Duration::from_secs(60));
        assert!(overrides.list().is_empty());
        overrides.0.follow().await.unwrap();
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
        let api = overrides.0.target.registry.get("api").unwrap();
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
        let limiter = overrides.0.target.limiter.clone();
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
            overrides.0.target.registry.policies()[0].policy().quota()
        );
    }
}
