//! Limits from a file.

use std::{fmt, path::Path, sync::Arc};

use http::request::Parts;
use plimsoll::{Limiter, RateLimitLayer};

use super::{
    ConfigError, ConfigLayer, ConfigStatus, Explanation, Format, StoreConfig, current::Current,
    file::File, rules::Change,
};
use crate::registry::Registry;

/// Limits from a file. Clones share the configuration that is in force.
///
/// The [guide](crate::guide::config) has the fields, and complete examples in each format.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use plimsoll_control::Config;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_path("limits.toml")?;
/// config.watch();
/// let limiter = config.store().connect().await?;
/// let app: Router =
///     Router::new().route("/", get(|| async { "hello" })).layer(config.layer(&limiter)?);
/// # Ok(())
/// # }
/// ```
///
/// A text that has a mistake is an error, which shows the line:
///
/// ```
/// use plimsoll_control::{Config, Format};
///
/// let error = Config::from_text("policies.api = \"100/fortnight\"", Format::Toml).unwrap_err();
/// assert_eq!((error.line(), error.column()), (Some(1), Some(16)));
/// ```
#[derive(Clone)]
pub struct Config(Arc<Current>);

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

    /// Reads a file like [`from_path`](Self::from_path), and registers its policies beside the policies of the
    /// program. Rules of the file can name both.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a mistake.
    pub fn from_path_with(path: impl AsRef<Path>, registry: Registry) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let format = Format::of_path(path).ok_or_else(|| ConfigError::of_format(&name))?;
        let file = File::new(path);
        let text = file.read().map_err(|error| ConfigError::unreadable(&name, &error))?;
        Ok(Self(Arc::new(Current::new(name, format, registry, text, Some(file))?)))
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a mistake.
    pub fn from_text(text: &str, format: Format) -> Result<Self, ConfigError> {
        let name = format!("limits.{format}");
        let registry = Registry::default();
        Ok(Self(Arc::new(Current::new(name, format, registry, text.into(), None)?)))
    }

    /// Returns all [policies](plimsoll::Policy), of the file and of the program.
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

    /// Returns the rules in force, each as a line of text.
    ///
    /// ```
    /// use plimsoll_control::{Config, Format};
    ///
    /// let text = r#"
    ///     policies.logins = "5/min"
    ///     rules = [{ policy = "logins", key = { header = "x-api-key" }, only = ["POST /login"] }]
    /// "#;
    /// let config = Config::from_text(text, Format::Toml)?;
    /// assert_eq!(config.rules(), ["logins by header(x-api-key), only POST /login"]);
    /// # Ok::<(), plimsoll_control::ConfigError>(())
    /// ```
    #[must_use]
    pub fn rules(&self) -> Vec<String> {
        self.0.rules()
    }

    /// Returns which rules in force apply to a request, what they charge, and why the others do not apply. The closures of
    /// the rules find it, as they do in a [layer](Self::layer), and nothing is spent. Settings of the program, by
    /// [`layer_with`](Self::layer_with), are not considered.
    ///
    /// The extensions of the request are what the service has inserted before the layer: the address of the peer as a
    /// [`SocketAddr`](std::net::SocketAddr), [`Claims`](super::Claims), and the route that axum has matched.
    ///
    /// ```
    /// use http::Request;
    /// use plimsoll_control::{Config, Format};
    ///
    /// let text = r#"
    ///     policies.logins = "5/min"
    ///     rules = [{ policy = "logins", key = { header = "x-api-key" }, only = ["POST /login"] }]
    /// "#;
    /// let config = Config::from_text(text, Format::Toml)?;
    /// let explain = |method: &str| {
    ///     let request = Request::builder().method(method).uri("/login").header("x-api-key", "abc");
    ///     config.explain(&request.body(()).expect("a request").into_parts().0)
    /// };
    /// assert_eq!(explain("POST").rules[0].charges[0].policy().name(), "logins");
    /// assert_eq!(explain("GET").rules[0].notes, ["it applies only to POST /login"]);
    /// # Ok::<(), plimsoll_control::ConfigError>(())
    /// ```
    #[must_use]
    pub fn explain(&self, request: &Parts) -> Explanation {
        self.0.explain(request)
    }

    /// Returns the routes that the rules and exemptions in force name, such as `POST /login` and `/users/{id}`.
    #[must_use]
    pub fn routes(&self) -> Vec<String> {
        self.0.routes()
    }

    /// Returns hints on the configuration in force, for what is allowed and probably not meant: no rules, a policy
    /// that no rule uses, and the hints of the [store](StoreConfig::hints).
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let mut hints = self.0.hints();
        hints.extend(self.store().hints());
        hints
    }

    /// Creates a layer with the rules over a [limiter](Limiter). It follows the configuration.
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
    /// Returns an error if the configuration has no rules. If the closure panics for a later configuration, the rules
    /// stay as they are, and the policies are the new ones.
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
        let follower = self.0.follower(limiter.clone(), change)?;
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
        self.0.watch();
    }

    /// Reads the file again, and returns whether it has changed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has a mistake. The configuration stays in force.
    /// Later calls return the error again only after the file has changed; [`status`](Self::status) has it.
    pub fn reload(&self) -> Result<bool, ConfigError> {
        self.0.reload()
    }

    /// Returns which configuration is in force, and the mistake of a newer one.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        self.0.status()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.0.name)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
