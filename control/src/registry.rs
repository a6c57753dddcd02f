//! The [policies](Policy) of a service by name: with the quota that is configured, the one in force, and where
//! each came from.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use http::request::Parts;
use plimsoll::{Policy, Quota};

use crate::KeyType;

/// The origin of the [quota](Quota) of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The program.
    Code,
    /// A [configuration](crate::Config) file, by its path.
    File(Arc<str>),
    /// An [override](crate::Override) by an operator.
    Override,
}

/// The [policies](Policy) of a service by name. Clones share the policies.
///
/// ```
/// use plimsoll::{Policy, Quota};
/// use plimsoll_control::{KeyType, Registry, Origin};
///
/// let registry = Registry::default();
/// let search = Policy::new("search", "100/min")?;
/// registry.register(search, Origin::Code, KeyType::Text)?;
///
/// let search = registry.get("search").expect("it is registered");
/// assert_eq!(search.policy().quota(), Quota::per_minute(100));
/// assert_eq!(search.configured(), (Quota::per_minute(100), Origin::Code));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<RwLock<BTreeMap<String, Registered>>>);

/// A [policy](Policy) of a [`Registry`]. Clones share the policy.
#[derive(Debug, Clone)]
pub struct Registered(Arc<Entry>);

#[derive(Debug)]
struct Entry {
    policy: Policy,
    keys: ArcSwap<KeyType>,
    quotas: Mutex<Quotas>,
    is_enabled: AtomicBool,
    has_switch: AtomicBool,
}

/// The [quotas](Quota) of a policy. The one in force is the override, or else the configured one.
#[derive(Debug)]
struct Quotas {
    configured: Quota,
    origin: Origin,
    overridden: Option<Quota>,
}

/// The error of [`Registry::register`] for a name that has another policy already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryError {
    name: String,
    /// The property that the policy cannot have, and the property that it has.
    new: String,
    registered: String,
}

impl Registry {
    /// Adds a [policy](Policy). If it is registered already, it stays, and is returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is registered for another policy than a clone of this one, even with the
    /// same quota: a change of the registered policy would not reach the rules of this one. So does another type
    /// of its keys.
    pub fn register(
        &self,
        policy: Policy,
        origin: Origin,
        keys: KeyType,
    ) -> Result<Registered, RegistryError> {
        let mut policies = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = policies.get(policy.name()) {
            entry.is(&policy, &keys)?;
            return Ok(entry.clone());
        }
        let entry = Registered::new(policy, origin, keys);
        policies.insert(entry.policy().name().to_owned(), entry.clone());
        Ok(entry)
    }

    /// Replaces all policies of a file by these, and returns them by name. A policy that stays keeps what
    /// its keys have spent, its overrides, and whether it is switched off.
    ///
    /// # Errors
    ///
    /// Returns an error, and changes nothing, if a name is registered from another origin with another
    /// quota, or with another unit.
    pub fn replace(
        &self,
        origin: &Origin,
        new: Vec<(Policy, KeyType)>,
    ) -> Result<BTreeMap<String, Registered>, RegistryError> {
        let mut policies = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (policy, _) in &new {
            if let Some(entry) = policies.get(policy.name()) {
                entry.validate(policy, origin)?;
            }
        }
        policies.retain(|name, entry| {
            entry.configured().1 != *origin || new.iter().any(|(policy, _)| policy.name() == name)
        });
        let replaced = new.into_iter().map(|(policy, keys)| {
            let name = policy.name().to_owned();
            let entry = match policies.get(&name) {
                Some(entry) => {
                    entry.replace(policy.quota(), origin, keys);
                    entry.clone()
                }
                None => Registered::new(policy, origin.clone(), keys),
            };
            policies.insert(name.clone(), entry.clone());
            (name, entry)
        });
        Ok(replaced.collect())
    }

    /// Removes a policy, such as one that the configuration no longer has.
    pub fn remove(&self, name: &str) -> Option<Registered> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Registered> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns all policies, in the order of their names.
    #[must_use]
    pub fn policies(&self) -> Vec<Registered> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Registered {
    fn new(policy: Policy, origin: Origin, keys: KeyType) -> Self {
        let quotas = Quotas { configured: policy.quota(), origin, overridden: None };
        Self(Arc::new(Entry {
            policy,
            keys: ArcSwap::from_pointee(keys),
            quotas: Mutex::new(quotas),
            is_enabled: AtomicBool::new(true),
            has_switch: AtomicBool::new(false),
        }))
    }

    /// Returns an error if this is another policy, or has other keys.
    fn is(&self, policy: &Policy, keys: &KeyType) -> Result<(), RegistryError> {
        if !self.policy().is_clone_of(policy) {
            let registered = "another policy of this name".to_owned();
            return Err(self.refuse("this one".to_owned(), registered));
        }
        let new = format!("the keys {keys}");
        let registered = format!("the keys {}", self.keys());
        if new == registered { Ok(()) } else { Err(self.refuse(new, registered)) }
    }

    /// Returns an error if this policy cannot become `policy` from `origin`.
    fn validate(&self, policy: &Policy, origin: &Origin) -> Result<(), RegistryError> {
        let (quota, registered_origin) = self.configured();
        if registered_origin != *origin && quota != policy.quota() {
            return Err(self.refuse(policy.quota().to_string(), quota.to_string()));
        }
        // A policy with another unit shares no handle with this one, which rules and overrides have.
        if self.policy().unit() != policy.unit() {
            return Err(self.refuse(unit(policy), unit(self.policy())));
        }
        Ok(())
    }

    /// Returns the error of another policy, with the property that it cannot have.
    fn refuse(&self, new: String, registered: String) -> RegistryError {
        RegistryError { name: self.policy().name().into(), new, registered }
    }

    /// Replaces what a file says. A policy of another origin stays as it is.
    fn replace(&self, quota: Quota, origin: &Origin, keys: KeyType) {
        if self.configured().1 == *origin {
            self.set_configured(quota, origin.clone());
            self.0.keys.store(Arc::new(keys));
        }
    }

    /// Returns the [policy](Policy). Its quota is the one in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Returns the [type](KeyType) of the keys.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyType> {
        self.0.keys.load_full()
    }

    /// Returns the configured [quota](Quota), and its [origin](Origin): the code or a file.
    #[must_use]
    pub fn configured(&self) -> (Quota, Origin) {
        let quotas = self.quotas();
        (quotas.configured, quotas.origin.clone())
    }

    /// Returns the [origin](Origin) of the quota in force.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let quotas = self.quotas();
        if quotas.overridden.is_some() { Origin::Override } else { quotas.origin.clone() }
    }

    /// Replaces the configured quota. It is in force unless the policy has an override.
    pub(crate) fn set_configured(&self, quota: Quota, origin: Origin) {
        let mut quotas = self.quotas();
        (quotas.configured, quotas.origin) = (quota, origin);
        self.enforce(&quotas);
    }

    /// Returns the quota of the [override](crate::Override) that is in force.
    #[must_use]
    pub fn overridden(&self) -> Option<Quota> {
        self.quotas().overridden
    }

    /// Sets the quota of an override, or ends it.
    pub(crate) fn set_override(&self, quota: Option<Quota>) {
        let mut quotas = self.quotas();
        quotas.overridden = quota;
        self.enforce(&quotas);
    }

    /// Returns whether the policy limits anything. The rules of a configuration skip a policy that is
    /// switched off, and so does a rule of the program with the [`switch`](Self::switch).
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.0.is_enabled.load(Ordering::Relaxed)
    }

    /// Returns the condition by which a rule of the program skips the policy while it is switched off. The
    /// admin page switches off only policies that a rule skips then. [`Rule::only`](plimsoll::Rule::only) takes
    /// one condition: combine it with the condition of a route by `&&`.
    ///
    /// ```
    /// use plimsoll::{Policy, Rule, by};
    /// use plimsoll_control::{KeyType, Registry, Origin};
    ///
    /// let registry = Registry::default();
    /// let search = Policy::new("search", "100/min")?;
    /// let search = registry.register(search, Origin::Code, KeyType::Text)?;
    /// let rule = Rule::new(search.policy().clone(), by::header("x-api-key")).only(search.switch());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn switch(&self) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + use<> {
        self.set_switch();
        let registered = self.clone();
        move |_| registered.is_enabled()
    }

    /// Records that a rule asks if the policy is switched on.
    pub(crate) fn set_switch(&self) {
        self.0.has_switch.store(true, Ordering::Relaxed);
    }

    /// Returns whether a rule asks if the policy is switched on: a rule of a configuration, or one of the
    /// program with the [`switch`](Self::switch).
    #[must_use]
    pub fn has_switch(&self) -> bool {
        self.0.has_switch.load(Ordering::Relaxed)
    }

    /// Switches the policy on or off.
    pub(crate) fn set_enabled(&self, is_enabled: bool) {
        self.0.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Returns whether both are the same entry of a [registry](Registry), and not two with the same name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn enforce(&self, quotas: &Quotas) {
        let quota = quotas.overridden.unwrap_or(quotas.configured);
        // An equal quota is not a new version.
        if self.0.policy.quota() != quota {
            self.0.policy.set_quota(quota);
        }
    }

    fn quotas(&self) -> MutexGuard<'_, Quotas> {
        self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unit(policy: &Policy) -> String {
    format!("the unit {:?}", policy.unit().unwrap_or("requests"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("code"),
            Self::File(path) => f.write_str(path),
            Self::Override => f.write_str("override"),
        }
    }
}

impl RegistryError {
    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, new, registered } = self;
        write!(f, "the policy {name:?} is registered with {registered}, and cannot have {new} too")
    }
}

impl std::error::Error for RegistryError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(quota: &str) -> Policy {
        Policy::new("search", quota).expect("a policy")
    }

    #[test]
    fn a_name_is_one_policy() {
        let registry = Registry::default();
        let search = policy("5/s");
        let register =
            |policy: &Policy, keys| registry.register(policy.clone(), Origin::Code, keys);
        let first = register(&search, KeyType::Text).unwrap();
        first.set_override(Some("7/s".parse().unwrap()));
        let again = register(&search, KeyType::Text).unwrap();
        assert!(again.is_same(&first));
        assert_eq!(search.quota(), "7/s".parse().unwrap());
        let error = |policy: &Policy, keys| register(policy, keys).unwrap_err().to_string();
        assert_eq!(
            error(&policy("5/s"), KeyType::Text),
            "the policy \"search\" is registered with another policy of this name, and cannot have this one too"
        );
        assert!(error(&search, KeyType::Integer).contains("the keys an integer"));
    }

    #[test]
    fn an_override_outlives_a_reload_of_the_file() {
        let registry = Registry::default();
        let search = registry.register(policy("5/s"), Origin::Code, KeyType::Text).unwrap();
        search.set_override(Some("7/s".parse().unwrap()));
        let file = Origin::File("limits.toml".into());
        search.set_configured("6/s".parse().unwrap(), file.clone());
        assert_eq!(search.policy().quota(), "7/s".parse().unwrap());
        assert_eq!(search.origin(), Origin::Override);
        search.set_override(None);
        assert_eq!(search.policy().quota(), "6/s".parse().unwrap());
        assert_eq!(search.origin(), file);
    }
}
