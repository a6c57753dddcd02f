//! A configuration that is in force, and its replacement.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use arc_swap::ArcSwap;
use plimsoll::{Limiter, RateLimitLayer};
use serde::Deserialize;

use super::{
    ConfigError, ConfigLayer, ConfigStatus, Format,
    document::{Mistake, Node},
    layer::{Change, Follower},
    plan::Plan,
    rules::Rules,
    spec::FileSpec,
    store::StoreConfig,
    watch,
};
use crate::registry::{Registry, Source};

/// Limits from a file. Clones share the configuration that is in force.
#[derive(Clone)]
pub struct Config(Arc<Shared>);

/// What the clones, the layers and the task that watches the file share.
pub(super) struct Shared {
    name: String,
    path: Option<PathBuf>,
    format: Format,
    registry: Registry,
    /// The store with which the program started.
    store: StoreConfig,
    rules: ArcSwap<Rules>,
    state: Mutex<State>,
    watch: watch::Slot,
}

struct State {
    /// The text that was read last, whether or not it is in force.
    text: Option<Vec<u8>>,
    status: ConfigStatus,
    followers: Vec<Weak<Follower>>,
}

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// The JSON Schema of configurations, for editors and for tests of files.
    pub const JSON_SCHEMA: &str = include_str!("../../docs/config/limits.schema.json");

    /// Reads a file. The end of its name says the [`Format`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a mistake.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_path_with(path, Registry::default())
    }

    /// Reads a file like [`from_path`](Self::from_path), and registers its policies beside those of the
    /// program. Rules of the file can name both.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a mistake.
    pub fn from_path_with(path: impl AsRef<Path>, registry: Registry) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let format =
            Format::of_path(path).map_err(|mistake| ConfigError::of(mistake, &name, ""))?;
        let bytes = read(path).map_err(|error| ConfigError::unreadable(&name, &error))?;
        Self::load(name, Some(path.into()), format, registry, bytes)
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a mistake.
    pub fn from_text(text: &str, format: Format) -> Result<Self, ConfigError> {
        let name = format!("limits.{format}");
        Self::load(name, None, format, Registry::default(), text.into())
    }

    fn load(
        name: String,
        path: Option<PathBuf>,
        format: Format,
        registry: Registry,
        bytes: Vec<u8>,
    ) -> Result<Self, ConfigError> {
        let source = Source::File(name.as_str().into());
        let (rules, store) = apply(&bytes, format, &registry, &source, false)
            .map_err(|(mistake, text)| ConfigError::of(mistake, &name, &text))?;
        let (status, watch) = (ConfigStatus::first(), watch::Slot::default());
        let state = State { text: Some(bytes), status, followers: Vec::new() };
        let rules = ArcSwap::from_pointee(rules);
        let state = Mutex::new(state);
        Ok(Self(Arc::new(Shared { name, path, format, registry, store, rules, state, watch })))
    }

    /// Returns the policies, also those of the program.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns the store and the resilience with which the program started. They stay as they are when the
    /// file changes.
    #[must_use]
    pub fn store(&self) -> &StoreConfig {
        &self.0.store
    }

    /// Creates a layer with the rules over a limiter. It follows the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration has no rules.
    pub fn layer(&self, limiter: &Limiter) -> Result<ConfigLayer, ConfigError> {
        self.new_layer(limiter, None)
    }

    /// Creates a layer like [`layer`](Self::layer), with settings of the program: `change` is called with
    /// the layer of each configuration that comes into force.
    ///
    /// ```
    /// use plimsoll::Limiter;
    /// use plimsoll_control::{Config, Format};
    ///
    /// let text = r#"
    ///     policies.api = "100/min"
    ///     rules = [{ policy = "api", key = "peer_ip" }]
    /// "#;
    /// let config = Config::from_text(text, Format::Toml)?;
    /// let layer = config.layer_with(&Limiter::in_memory(), |layer| {
    ///     layer.on_decision(|decision, _| println!("{}", decision.is_allowed()))
    /// })?;
    /// # Ok::<(), plimsoll_control::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration has no rules.
    pub fn layer_with<F>(&self, limiter: &Limiter, change: F) -> Result<ConfigLayer, ConfigError>
    where
        F: Fn(RateLimitLayer) -> RateLimitLayer + Send + Sync + 'static,
    {
        self.new_layer(limiter, Some(Box::new(change)))
    }

    fn new_layer(
        &self,
        limiter: &Limiter,
        change: Option<Box<Change>>,
    ) -> Result<ConfigLayer, ConfigError> {
        let mut state = self.0.state();
        let rules = self.0.rules.load();
        let follower = Follower::new(limiter.clone(), change, &rules)
            .ok_or_else(|| ConfigError::of(no_rules(), &self.0.name, ""))?;
        let follower = Arc::new(follower);
        state.followers.retain(|follower| follower.strong_count() > 0);
        state.followers.push(Arc::downgrade(&follower));
        drop(state);
        Ok(ConfigLayer::new(follower, Arc::clone(&self.0)))
    }

    /// Watches the file: a change is in force within one second.
    ///
    /// The task ends when the last clone of the configuration and the last of its layers are dropped.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn watch(&self) {
        if self.0.path.is_some() {
            self.0.watch.start(Arc::downgrade(&self.0));
        }
    }

    /// Reads the file again, and returns whether it has changed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a mistake. The configuration stays in force.
    pub fn reload(&self) -> Result<bool, ConfigError> {
        match &self.0.path {
            Some(path) => self.0.take(read(path)),
            None => Ok(false),
        }
    }

    /// Returns which configuration is in force, and the mistake of a newer one.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        self.0.status()
    }
}

impl Shared {
    pub(super) fn status(&self) -> ConfigStatus {
        self.state().status.clone()
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Puts a text in force that was read from the file, and returns whether it has changed.
    pub(super) fn take(&self, read: io::Result<Vec<u8>>) -> Result<bool, ConfigError> {
        let mut state = self.state();
        let text = read.as_ref().ok().cloned();
        if state.text == text && (text.is_some() || state.status.error().is_some()) {
            return Ok(false);
        }
        state.text = text;
        let result = match read {
            Ok(bytes) => self.apply(&bytes, &mut state),
            Err(error) => Err(ConfigError::unreadable(&self.name, &error)),
        };
        state.status.record(&self.name, result.as_ref().err());
        result.map(|()| true)
    }

    fn apply(&self, bytes: &[u8], state: &mut State) -> Result<(), ConfigError> {
        state.followers.retain(|follower| follower.strong_count() > 0);
        let source = Source::File(self.name.as_str().into());
        let needs_rules = !state.followers.is_empty();
        let (rules, store) = apply(bytes, self.format, &self.registry, &source, needs_rules)
            .map_err(|(mistake, text)| ConfigError::of(mistake, &self.name, &text))?;
        state.status.set_needs_restart(&self.name, store != self.store);
        let rules = Arc::new(rules);
        for follower in state.followers.iter().filter_map(Weak::upgrade) {
            follower.follow(&rules);
        }
        self.rules.store(rules);
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
    source: &Source,
    needs_rules: bool,
) -> Result<(Rules, StoreConfig), (Mistake, String)> {
    let text = String::from_utf8_lossy(bytes);
    let applied = (|| {
        if let Err(error) = std::str::from_utf8(bytes) {
            let at = error.valid_up_to();
            return Err(Mistake::new("the file is not UTF-8").at(at..at));
        }
        if text.trim().is_empty() {
            return Err(Mistake::new("the file is empty"));
        }
        let node = Node::parse(&text, format)?;
        let plan = Plan::new(FileSpec::deserialize(&node)?, registry)?;
        if needs_rules && !plan.has_rules() {
            return Err(no_rules());
        }
        plan.apply(registry, source)
    })();
    applied.map_err(|mistake| (mistake, text.into_owned()))
}

fn no_rules() -> Mistake {
    Mistake::new("the configuration has no rules")
        .allowed("at least one rule; `enabled = false` lets all requests pass")
}

/// Reads a file.
///
/// # Errors
///
/// Returns an error if the file is too large.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.0.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
