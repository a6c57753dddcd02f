//! The configuration that is in force, and its replacement.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use arc_swap::ArcSwap;
use http::request::Parts;
use plimsoll::Limiter;

use super::{
    ConfigError, ConfigStatus, Format, StoreConfig,
    document::{Mistake, parse, read_node},
    explain::Explanation,
    file::File,
    follower::Follower,
    plan::Plan,
    rules::{Change, Rules},
    spec::FileSpec,
    watch::Watch,
};
use crate::registry::{Origin, Registry};

/// The state that the clones of a configuration, its layers and the task that watches the file share.
pub(super) struct Current {
    pub(super) name: String,
    format: Format,
    pub(super) registry: Registry,
    /// The store with which the program started.
    pub(super) store: StoreConfig,
    status: ArcSwap<ConfigStatus>,
    state: Mutex<State>,
    file: Option<File>,
    watch: Watch,
}

struct State {
    /// The text that was read last, whether or not it is in force. It is `None` if the file could not be
    /// read.
    text: Option<Vec<u8>>,
    rules: Rules,
    followers: Vec<Weak<Follower>>,
}

impl Current {
    /// Puts the first text in force, which was read from `file` if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a [mistake](Mistake).
    pub(super) fn new(
        name: String,
        format: Format,
        registry: Registry,
        text: Vec<u8>,
        file: Option<File>,
    ) -> Result<Self, ConfigError> {
        let (rules, store) = apply(&text, format, &registry, &name, false)?;
        let state = State { text: Some(text), rules, followers: Vec::new() };
        let status = ArcSwap::from_pointee(ConfigStatus::first(&name));
        let state = Mutex::new(state);
        Ok(Self { name, format, registry, store, status, state, file, watch: Watch::default() })
    }

    /// Returns the [rules](Rules) in force, each as a line of text.
    pub(super) fn rules(&self) -> Vec<String> {
        self.state().rules.lines()
    }

    /// Returns the result of each [rule](Rules) in force for a request.
    pub(super) fn explain(&self, request: &Parts) -> Explanation {
        self.state().rules.explain(request)
    }

    /// Returns the routes that the file names.
    pub(super) fn routes(&self) -> Vec<String> {
        self.state().rules.routes()
    }

    /// Returns hints on the configuration in force.
    pub(super) fn hints(&self) -> Vec<String> {
        self.state().rules.hints()
    }

    pub(super) fn status(&self) -> ConfigStatus {
        ConfigStatus::clone(&self.status.load())
    }

    /// Returns the [rules](Rules) over a limiter, which follow the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no rules.
    pub(super) fn follower(
        &self,
        limiter: Limiter,
        change: Option<Box<Change>>,
    ) -> Result<Arc<Follower>, ConfigError> {
        let mut state = self.state();
        let follower = Follower::new(limiter, change, &state.rules).map(Arc::new);
        let follower = follower.ok_or_else(|| ConfigError::new(no_rules(), &self.name, ""))?;
        state.followers.retain(|follower| follower.strong_count() > 0);
        state.followers.push(Arc::downgrade(&follower));
        Ok(follower)
    }

    /// Starts the task that watches the file.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.file.is_some() {
            let current = Arc::downgrade(self);
            // The task keeps nothing alive.
            self.watch.start(move || current.upgrade().map(|current| current.poll()).is_some());
        }
    }

    fn poll(&self) {
        if let Some(read) = self.file.as_ref().and_then(File::read_settled) {
            // The status has the error.
            let _ = self.take(read);
        }
    }

    /// Reads the file, and returns whether it has changed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a [mistake](Mistake), unless that was returned
    /// before.
    pub(super) fn reload(&self) -> Result<bool, ConfigError> {
        self.file.as_ref().map_or(Ok(false), |file| self.take(file.read()))
    }

    fn take(&self, read: io::Result<Vec<u8>>) -> Result<bool, ConfigError> {
        let mut state = self.state();
        let text = read.as_ref().ok();
        if state.text.as_ref() == text {
            return Ok(false);
        }
        state.text = text.cloned();
        let mut status = self.status();
        let result = match read {
            Ok(text) => self.replace(&text, &mut state, &mut status),
            Err(error) => Err(ConfigError::unreadable(&self.name, &error)),
        };
        status.record(&self.name, result.as_ref().err());
        self.status.store(Arc::new(status));
        result.map(|()| true)
    }

    fn replace(
        &self,
        text: &[u8],
        state: &mut State,
        status: &mut ConfigStatus,
    ) -> Result<(), ConfigError> {
        state.followers.retain(|follower| follower.strong_count() > 0);
        let needs_rules = !state.followers.is_empty();
        let source = Origin::File(self.name.as_str().into());
        let mut before = self.registry.policies();
        before.retain(|registered| registered.configured().1 == source);
        let (rules, store) = apply(text, self.format, &self.registry, &self.name, needs_rules)?;
        let names = before.iter().map(|registered| registered.policy().name());
        let gone: Vec<_> = names.filter(|name| self.registry.get(name).is_none()).collect();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            tracing::warn!(target: "plimsoll", "{} no longer has these policies: {gone}", self.name);
        }
        state.followers.iter().filter_map(Weak::upgrade).for_each(|it| it.follow(&rules));
        state.rules = rules;
        status.set_needs_restart(&self.name, store != self.store);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a text, validates it, registers its policies and makes its rules. A text with a mistake changes
/// nothing.
fn apply(
    bytes: &[u8],
    format: Format,
    registry: &Registry,
    name: &str,
    needs_rules: bool,
) -> Result<(Rules, StoreConfig), ConfigError> {
    let planned = match std::str::from_utf8(bytes) {
        Ok(text) => plan(text, format, registry, needs_rules),
        Err(error) => {
            let at = error.valid_up_to();
            Err(Mistake::new("the file is not UTF-8").at(at..at).into())
        }
    };
    let applied = planned.and_then(|plan| Ok(plan.apply(registry, &Origin::File(name.into()))?));
    applied.map_err(|mistakes| ConfigError::new(mistakes, name, &String::from_utf8_lossy(bytes)))
}

fn plan(
    text: &str,
    format: Format,
    registry: &Registry,
    needs_rules: bool,
) -> Result<Plan, Vec<Mistake>> {
    let is_blank = text.trim().is_empty();
    let document = if is_blank { None } else { Some(parse(text, format)?) };
    let Some(document) = document.filter(|document| !document.is_empty()) else {
        // A lost text must not end the limits.
        let empty = Mistake::new("the file is empty");
        return Err(empty.allowed("`policies = {}` for no limits").into());
    };
    let plan = Plan::new(read_node::<FileSpec>(&document)?, registry)?;
    if needs_rules && !plan.has_rules() { Err(no_rules().into()) } else { Ok(plan) }
}

fn no_rules() -> Mistake {
    Mistake::new("the configuration has no rules")
        .allowed("at least one rule; `enabled = false` lets all requests pass")
}
