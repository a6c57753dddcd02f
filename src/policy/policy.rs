//! A named quota that can be replaced while the program runs, and a charge of a key under it: one needs the
//! other.

use std::{borrow::Cow, fmt, mem::discriminant, sync::Arc, time::SystemTime};

use super::{
    OnFailure,
    counters::{Counters, TrialCounts},
    live_quotas::{KeyQuota, LiveQuotas},
    name::Name,
};
use crate::{
    algorithm::{Asked, Terms},
    error::Error,
    key::Key,
    quota::{Algorithm, Quota},
};

/// A named [`Quota`] that can be replaced while it is in use.
///
/// A policy is a handle, and clones share the quota. Two policies with the same name share the
/// standings of their keys, so give each limit a name of its own. A check or a layer with two policies of
/// one name is an error: they would not be two limits.
///
/// ```
/// use plimsoll::{Policy, Quota};
///
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// search.set_quota(Quota::per_minute(200)); // for all clones; spent units stay spent
/// assert_eq!(search.quota().limit(), 200);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Policy(Arc<PolicyState>);

struct PolicyState {
    name: Name,
    unit: Option<Name>,
    quotas: LiveQuotas,
    counters: Counters,
}

impl Policy {
    /// Creates a policy with this name and quota: a [`Quota`], or its text.
    ///
    /// ```
    /// use plimsoll::{Policy, Quota};
    ///
    /// let search = Policy::new("search", "100/min")?;
    /// assert_eq!(search.quota(), Quota::per_minute(100));
    ///
    /// let error = Policy::new("login", "5/min token_bucket(5)").unwrap_err();
    /// assert!(error.to_string().contains("did you mean \"5/min token-bucket(5)\"?"));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// A name has 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`, and begins with a letter
    /// or a digit. It is shown in headers, problem documents and metrics.
    ///
    /// # Errors
    ///
    /// Returns an error if the name does not have this form, or if the text is no
    /// [quota](Quota#impl-FromStr-for-Quota).
    pub fn new<Q>(name: &str, quota: Q) -> Result<Self, Error>
    where
        Q: TryInto<Quota>,
        Error: From<Q::Error>,
    {
        let name = Name::parse("policy name", name)?;
        Ok(Self::of(name, None, LiveQuotas::new(quota.try_into()?)))
    }

    fn of(name: Name, unit: Option<Name>, quotas: LiveQuotas) -> Self {
        let counters = Counters::new(&name);
        Self(Arc::new(PolicyState { name, unit, quotas, counters }))
    }

    /// Sets the name of the unit: the parameter `qu` of the `RateLimit-Policy` header. The default
    /// is requests. The draft registers `content-bytes` and `concurrent-requests`.
    ///
    /// This creates a new handle that shares nothing with existing clones, so call it before the
    /// policy is cloned.
    ///
    /// # Errors
    ///
    /// Returns an error if the unit does not have the form of a policy name.
    pub fn with_unit(self, unit: &str) -> Result<Self, Error> {
        let unit = Some(Name::parse("quota unit", unit)?);
        Ok(Self::of(self.0.name.clone(), unit, self.0.quotas.copy()))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the name of the unit, or `None` if the policy counts requests.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.0.unit.as_deref()
    }

    /// Returns the quota that is in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.0.quotas.quota()
    }

    /// Returns how many times the quota has been replaced.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.quotas.version()
    }

    /// Replaces the quota, at once and for all clones of this handle.
    ///
    /// - Units that a key has spent stay spent, and expire no later than under the old quota.
    /// - A new limit applies at once.
    /// - After a change of the window, the new bound holds once one new window has passed.
    /// - After a change of the [`Algorithm`], all keys start with no units spent.
    pub fn set_quota(&self, quota: Quota) {
        self.0.quotas.set(quota);
    }

    /// Replaces the quota for one key until a given time, at once and for all clones of this handle: for
    /// a customer who needs more for a day, or a client that should get less.
    ///
    /// - It wins over [`Charge::with_quota`], and so over [`Rule::quota`](crate::Rule::quota).
    /// - It ends by itself. A time in the past ends the quota that the key has.
    /// - What the key has spent stays spent when its quota begins, changes or ends, as with
    ///   [`set_quota`](Self::set_quota).
    /// - It applies in this process. Call this in each instance of a service.
    /// - A call copies the quotas of the other keys, so its time grows with their number. Charges never wait
    ///   for it.
    /// - If the wall clock is set or the machine is suspended after the call, the quota still lasts for
    ///   the time that was left at the call.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use plimsoll::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// api.set_key_quota("acme", Quota::per_minute(5_000), tomorrow)?;
    /// assert_eq!(api.charge("acme", 1).quota().limit(), 5_000);
    /// assert_eq!(api.charge("alice", 1).quota().limit(), 100);
    ///
    /// let listed = api.key_quotas();
    /// assert_eq!((listed.len(), listed[0].until), (1, tomorrow));
    /// assert!(api.remove_key_quota("acme"));
    /// assert_eq!(api.charge("acme", 1).quota().limit(), 100);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if 10,000 other keys have a quota already.
    pub fn set_key_quota(
        &self,
        key: impl Into<Key>,
        quota: Quota,
        until: SystemTime,
    ) -> Result<(), Error> {
        self.0.quotas.set_key(key.into(), quota, until)
    }

    /// Removes the [quota of a key](Self::set_key_quota). Returns whether the key had one.
    pub fn remove_key_quota(&self, key: impl Into<Key>) -> bool {
        self.0.quotas.remove_key(&key.into())
    }

    /// Returns the [quotas of keys](Self::set_key_quota) that are in force, in the order of the keys.
    #[must_use]
    pub fn key_quotas(&self) -> Vec<KeyQuota> {
        self.0.quotas.of_keys()
    }

    /// Creates a [`Charge`] of `cost` units to `key`: one line of a check. A cost of 0 reads the
    /// standing of the key and spends nothing.
    pub fn charge(&self, key: impl Into<Key>, cost: u64) -> Charge<'_> {
        Charge::new(self, key.into(), cost)
    }

    /// Returns the name, and the quota with its algorithm: `api 100/min sliding-log`.
    pub(crate) fn description(&self) -> String {
        let quota = self.quota();
        let algorithm = quota.algorithm();
        // The text of a quota leaves the default algorithm out.
        if algorithm == Algorithm::default() {
            return format!("{} {quota} {algorithm}", self.name());
        }
        format!("{} {quota}", self.name())
    }

    /// Returns how the decisions of this policy on [trial](Charge::trial) compare with the decisions on live
    /// charges, over all limiters of this process since the policy was created.
    #[must_use]
    pub fn trial_counts(&self) -> TrialCounts {
        self.0.counters.trial_counts()
    }

    /// Returns whether both are clones of one policy, and not two with the same name.
    ///
    /// ```
    /// use plimsoll::Policy;
    ///
    /// let search = Policy::new("search", "100/min")?;
    /// assert!(search.is_clone_of(&search.clone()));
    /// assert!(!search.is_clone_of(&Policy::new("search", "100/min")?));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns a hash of the name, which is the same in every process.
    pub(crate) fn id(&self) -> u64 {
        self.0.name.id()
    }
}

impl PartialEq for Policy {
    /// Compares the names: policies with the same name share their standings.
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.0.name)
            .field("quota", &format_args!("{}", self.quota()))
            .field("version", &self.version())
            .finish()
    }
}

/// A cost in units for a [`Key`] under a [`Policy`]: one line of a check.
///
/// [`Policy::charge`] creates it, with the [`Quota`] that is in force at that time. It borrows the
/// policy, so that threads which use the same policy do not contend for its reference count;
/// [`into_owned`](Self::into_owned) removes the borrow.
///
/// ```
/// use plimsoll::{Limiter, OnFailure, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let limiter = Limiter::in_memory();
/// let search = Policy::new("search", Quota::per_minute(100))?;
///
/// // A batch takes as many units as are left, at least 1 and at most 500.
/// let batch = search.charge("alice", 1).up_to(500).with_on_failure(OnFailure::Deny);
/// let decision = limiter.check(batch).await?;
/// assert_eq!(decision.outcomes().next().expect("one charge").granted(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Charge<'p> {
    policy: Cow<'p, Policy>,
    key: Key,
    quota: Quota,
    cost: u64,
    max_cost: u64,
    purpose: Purpose,
    enforcement: Enforcement,
    /// `None` if the caller has set none.
    on_failure: Option<OnFailure>,
    /// True if the quota is this charge's own, and not the policy's.
    has_own_quota: bool,
    /// True if the quota was set for the key.
    has_key_quota: bool,
    /// True if the quota is a [part](Self::with_part) of the quota in force.
    is_part: bool,
    /// The number of equal shares into which the quota is divided. The charge is made against one of
    /// them.
    shares: u32,
}

/// The effect of a charge in its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enforcement {
    /// It denies the check if it does not pass, and is spent if the check is admitted.
    Live,
    /// It denies nothing, and is spent if it passes and the check is admitted.
    Shadow,
    /// It denies nothing, and is spent if it passes.
    Trial,
}

/// The purpose of the units of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Use,
    /// The units between `cost` and `max_cost` are a lease.
    Lease,
    /// The units replace units in flight that are about to expire. The mark of the old ones has this highest
    /// bit.
    Renewal(bool),
}

impl<'p> Charge<'p> {
    #[inline]
    pub(crate) fn new(policy: &'p Policy, key: Key, cost: u64) -> Self {
        let (quota, key_quota) = policy.0.quotas.of(&key);
        Self {
            policy: Cow::Borrowed(policy),
            key,
            quota: key_quota.unwrap_or(quota),
            cost,
            max_cost: cost,
            purpose: Purpose::Use,
            enforcement: Enforcement::Live,
            on_failure: None,
            has_own_quota: false,
            has_key_quota: key_quota.is_some(),
            is_part: false,
            shares: 1,
        }
    }

    /// Charges as many units as are free, from [`cost`](Self::cost) to `max_cost`: for work in
    /// batches. [`Outcome::granted`](crate::decision::Outcome::granted) returns the number of units.
    #[must_use]
    pub fn up_to(self, max_cost: u64) -> Self {
        Self { max_cost: max_cost.max(self.cost), purpose: Purpose::Use, ..self }
    }

    /// Charges like [`up_to`](Self::up_to), but at most half of the units that are free beyond
    /// [`cost`](Self::cost): for units that are taken in advance, so that others find some as well.
    ///
    /// If `free` units are free, the store grants at most `cost + (free - cost) / 2`, rounded down.
    #[must_use]
    pub fn lease_up_to(self, max_cost: u64) -> Self {
        Self { purpose: Purpose::Lease, ..self.up_to(max_cost) }
    }

    /// Charges under `quota` instead of the [quota of the policy](Policy::quota): for limits that
    /// differ from key to key, such as those in the contracts of customers.
    ///
    /// The units count under the name of the [`Policy`], which headers, events and metrics show. A
    /// key keeps what it has spent when its quota changes from one charge to the next, as with
    /// [`Policy::set_quota`]: [`live_limits`](crate::guide::live_limits#a-quota-for-each-key) states the
    /// bounds. [`set_quota`](Policy::set_quota) does not change this charge. If a quota is
    /// [set for the key](Policy::set_key_quota), that one applies.
    ///
    /// If a check has several charges of this policy and key, they need the same quota, and are summed.
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let api = Policy::new("api", Quota::per_minute(100))?;
    ///
    /// // The contract of this customer.
    /// let agreed = Quota::per_minute(5_000);
    /// let decision = limiter.check(api.charge("acme", 1).with_quota(agreed)).await?;
    /// assert_eq!(decision.binding().expect("one charge").standing().remaining, 4_999);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_quota(mut self, quota: Quota) -> Self {
        self.quota = if self.has_key_quota { self.quota } else { quota };
        self.has_own_quota = true;
        self
    }

    /// Returns the same charge against a part of its quota, for a store that divides quotas between several
    /// stores. The quota of the policy or of the key no longer applies to it.
    #[must_use]
    pub fn with_part(self, part: Quota) -> Self {
        Self { quota: part, is_part: true, ..self }
    }

    /// Returns the charge as it was made while its policy had `quota`.
    pub(crate) fn decided_under(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    /// Makes this a shadow charge, which is decided and reported but never denies a check.
    ///
    /// Its units are spent only if it passes and the check is admitted. Otherwise the charge is not
    /// made: it is not in the [`Receipt`](crate::decision::Receipt), so it is neither refunded nor settled.
    /// A [trial](Self::trial) also counts the requests that the check denies.
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { enforcement: Enforcement::Shadow, ..self }
    }

    /// Makes this a trial charge, which counts as if its quota were the only limit. It never denies a
    /// check.
    ///
    /// Its units are spent whenever it passes by itself, also if the check is denied. So it shows what a
    /// looser limit would admit, which a [shadow](Self::shadow) cannot show. Give it a policy of its own:
    /// under the policy and key of a live charge, both spend the same units.
    ///
    /// If the check is admitted, the units are in the [`Receipt`](crate::decision::Receipt), and are refunded
    /// and settled with the units of the other charges. The units of a denied check stay spent.
    /// [`Policy::trial_counts`] compares the trial with the live charges, and
    /// [`guide::trials`](crate::guide::trials) says when to use which.
    ///
    /// Under a [concurrency limit](Quota::concurrent) it is a [shadow](Self::shadow), because the work of a
    /// denied request is never in flight.
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// let limiter = Limiter::in_memory();
    /// let live = Policy::new("api", Quota::per_minute(100))?;
    /// let looser = Policy::new("api-200", Quota::per_minute(200))?;
    /// for _ in 0..300 {
    ///     let _ = limiter.check_now([live.charge("alice", 1), looser.charge("alice", 1).trial()])?;
    /// }
    /// let counts = looser.trial_counts();
    /// assert_eq!((counts.allowed_by_both, counts.allowed_by_trial_only), (100, 100));
    /// assert_eq!((counts.allowed_by_live_only, counts.denied_by_both), (0, 100));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn trial(self) -> Self {
        Self { enforcement: Enforcement::Trial, ..self }
    }

    /// Sets what happens to the request when the store cannot answer. The default is
    /// [`OnFailure::Local`]. In [`Limiter::until_ready`](crate::Limiter::until_ready), a charge for which
    /// this is not called waits until the store answers again.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Sets what happens when the store cannot answer, unless it is set already.
    #[must_use]
    pub(crate) fn or_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure.get_or_insert(on_failure);
        self
    }

    /// Returns the same charge with a [`Policy`] handle of its own.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
        Charge { policy: Cow::Owned(self.policy.into_owned()), ..self }
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the key that is charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the quota when the charge was made: of the [key](Policy::set_key_quota), or of
    /// [`with_quota`](Self::with_quota), or of the policy.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the cost in units: the least that is charged.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns how many units a store spends for the charge if `free` units are free: 0 if it is refused, and
    /// otherwise its [`cost`](Self::cost), or more after [`up_to`](Self::up_to) or
    /// [`lease_up_to`](Self::lease_up_to). [`Step`](crate::store::Step) does so by itself.
    #[must_use]
    pub fn units_if_free(&self, free: u64) -> u64 {
        self.asked().units(free)
    }

    /// Returns the units that the charge asks for.
    pub(crate) fn asked(&self) -> Asked {
        let terms = if self.is_lease() { Terms::Lease } else { Terms::Use };
        Asked { cost: self.cost, max_cost: self.max_cost, terms }
    }

    /// Returns whether the units beyond the [`cost`](Self::cost) are a
    /// [lease](Self::lease_up_to).
    pub(crate) fn is_lease(&self) -> bool {
        self.purpose == Purpose::Lease
    }

    /// Returns whether this charge can deny its check: it is neither a [shadow](Self::shadow) nor a
    /// [trial](Self::trial).
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.enforcement == Enforcement::Live
    }

    /// Returns whether this is a [shadow](Self::shadow) charge.
    pub(crate) fn is_shadow(&self) -> bool {
        !self.is_live() && !self.is_trial()
    }

    /// Returns whether this is a [trial](Self::trial) charge.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        self.enforcement == Enforcement::Trial && !self.quota.is_concurrent()
    }

    /// Returns what happens to the request when the store cannot answer.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure.unwrap_or_default()
    }

    /// Returns whether both charges have the same policy and key, and are both live, shadows or
    /// trials, so that they are decided as one.
    pub(crate) fn is_same_line(&self, other: &Self) -> bool {
        self.policy.is_clone_of(&other.policy)
            && self.enforcement == other.enforcement
            && self.key == other.key
    }

    /// Returns whether the quota is [its own](Self::with_quota), and not the policy's. It is `None` for the
    /// quota of the [key](Policy::set_key_quota).
    pub(super) fn owns_quota(&self) -> Option<bool> {
        (!self.has_key_quota).then_some(self.has_own_quota)
    }

    /// Adds the units of another charge of the same line. The stricter [`OnFailure`] applies.
    pub(super) fn add(&mut self, other: &Self) {
        self.on_failure = OnFailure::stricter_of(self.on_failure, other.on_failure);
        self.cost = self.cost.saturating_add(other.cost);
        self.max_cost = self.max_cost.saturating_add(other.max_cost);
        self.purpose = self.purpose.max(other.purpose);
    }

    /// Returns the current quota of the key, or else of the policy. Returns the quota of this charge if it
    /// is [its own](Self::with_quota) or a [part](Self::with_part), or if the algorithm of the current quota is
    /// another one.
    pub(crate) fn quota_in_force(&self) -> Quota {
        if self.is_part {
            return self.quota;
        }
        let (quota, key_quota) = self.policy.0.quotas.of(&self.key);
        if self.has_own_quota && key_quota.is_none() {
            return self.quota;
        }
        let quota = key_quota.unwrap_or(quota).share(self.shares);
        let same = discriminant(&quota.algorithm()) == discriminant(&self.quota.algorithm());
        if same { quota } else { self.quota }
    }

    /// Returns the same charge as the renewal of a unit in flight whose mark has this highest bit.
    pub(crate) fn renewing(self, highest_bit: bool) -> Self {
        Self { purpose: Purpose::Renewal(highest_bit), ..self }
    }

    /// Returns the highest bit of the third number of the [`Mark`](crate::store::Mark) of the unit in flight that the
    /// charge renews, if it does. A store that consists of two stores may set this bit in the marks of one of
    /// them, and so renews each unit in the store that has it.
    #[must_use]
    pub fn renews(&self) -> Option<bool> {
        if let Purpose::Renewal(highest_bit) = self.purpose { Some(highest_bit) } else { None }
    }

    /// Returns the same charge against one of `shares` equal shares of the quota.
    pub(crate) fn share(&self, shares: u32) -> Self {
        Self { quota: self.quota.share(shares), shares, ..self.clone() }
    }

    /// Returns the charge that leases units: at least `cost` and at most `max`.
    pub(crate) fn leasing(&self, cost: u64, max: u64) -> Self {
        Self { cost, ..self.clone() }.lease_up_to(max)
    }

    /// Returns whether a process may pay the charge with leased units. Shadows and trials, charges of a number of units
    /// that the store chooses, and charges that can never pass are always sent to the store.
    pub(crate) fn may_be_leased(&self) -> bool {
        self.quota.lease().is_some()
            && self.cost > 0
            && self.max_cost == self.cost
            && self.cost <= self.quota.capacity()
            && self.is_live()
    }

    /// Returns the same charge for another number of units, under the quota in force.
    pub(crate) fn with_cost(self, cost: u64) -> Self {
        Self { quota: self.quota_in_force(), cost, max_cost: cost, ..self }
    }
}
