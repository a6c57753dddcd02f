//! A configuration in the format of envoyproxy/ratelimit.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use plimsoll_control::{
    ConfigError, KeyType, Registry, Source as RegistrySource, document::Mistake,
};

use super::{
    build::Builder,
    error::EnvoyConfigError,
    files::{self, Source},
    rule::{Limit, Rule},
    tree::Tree,
};
use crate::envoy::options::EnvoyOptions;

/// A configuration in the format of envoyproxy/ratelimit, with the additional fields `quota` and
/// `count_denied`.
///
/// ```
/// use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};
///
/// let text = r#"
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: { unit: minute, requests_per_unit: 100 }
///   - key: export
///     rate_limit: { quota: "20/10min token-bucket(5)" }
/// "#;
/// let config = EnvoyConfig::from_text("shop.yaml", text, EnvoyOptions::default())?;
/// assert!(config.dump().contains("shop.user: unit=MINUTE requests_per_unit=100"));
///
/// let text = text.replace("minute", "minutes");
/// let error = EnvoyConfig::from_text("shop.yaml", &text, EnvoyOptions::default()).unwrap_err();
/// assert_eq!(error.errors()[0].line(), Some(5));
/// assert!(error.to_string().ends_with("= help: did you mean `minute`?"));
/// # Ok::<(), plimsoll_server::envoy::EnvoyConfigError>(())
/// ```
#[derive(Clone)]
pub struct EnvoyConfig {
    pub(in crate::envoy) tree: Arc<Tree>,
    pub(in crate::envoy) options: EnvoyOptions,
    paths: Vec<PathBuf>,
    sources: Arc<[Source]>,
}

impl EnvoyConfig {
    /// Reads files with the default [`EnvoyOptions`]. Each path is a file, or a folder of files that end
    /// with `.yaml`, `.yml` or `.json`.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or has a mistake.
    pub fn load(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Result<Self, EnvoyConfigError> {
        Self::load_with(paths, EnvoyOptions::default())
    }

    /// Reads files like [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or has a mistake.
    pub fn load_with(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        let paths: Vec<_> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        let sources = files::read(&paths).map_err(EnvoyConfigError::new)?;
        Self::new(paths, sources, options)
    }

    /// Reads a text in YAML. Errors call it `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a mistake.
    pub fn from_text(
        name: &str,
        text: &str,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        Self::from_texts([(name, text)], options)
    }

    /// Reads several texts like [`from_text`](Self::from_text): pairs of a name and a text.
    ///
    /// # Errors
    ///
    /// Returns an error if a text has a mistake.
    pub fn from_texts<'t>(
        texts: impl IntoIterator<Item = (&'t str, &'t str)>,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        let sources = texts.into_iter().map(|(name, text)| Source::yaml(name, text)).collect();
        Self::new(Vec::new(), sources, options)
    }

    fn new(
        paths: Vec<PathBuf>,
        sources: Vec<Source>,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        let mut builder = Builder { options: &options, tree: Tree::default(), errors: Vec::new() };
        sources.iter().for_each(|it| builder.add(&it.name, it.format, &it.text));
        let Builder { tree, errors, .. } = builder;
        if !errors.is_empty() {
            return Err(EnvoyConfigError::new(errors));
        }
        Ok(Self { tree: Arc::new(tree), options, paths, sources: sources.into() })
    }

    /// Returns the texts that the files have now.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read.
    pub(in crate::envoy) fn sources_now(&self) -> Result<Vec<Source>, EnvoyConfigError> {
        files::read(&self.paths).map_err(EnvoyConfigError::new)
    }

    /// Returns whether the configuration was made of these texts.
    pub(in crate::envoy) fn is_of(&self, sources: &[Source]) -> bool {
        *self.sources == *sources
    }

    /// Returns the configuration of the same files with these texts.
    ///
    /// # Errors
    ///
    /// Returns an error if a text has a mistake.
    pub(in crate::envoy) fn with_sources(
        &self,
        sources: Vec<Source>,
    ) -> Result<Self, EnvoyConfigError> {
        Self::new(self.paths.clone(), sources, self.options.clone())
    }

    /// Returns whether the configuration was read from files.
    pub(in crate::envoy) fn has_files(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Registers the policies of the limits in place of those of the configuration before, under which the
    /// limits are counted from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if the registry has one of the policies from another source.
    pub(in crate::envoy) fn register(&self, registry: &Registry) -> Result<(), EnvoyConfigError> {
        let name = self.paths.first().map_or("envoy".into(), |path| path.display().to_string());
        let rules = self.tree.rules();
        let counted = || {
            rules.iter().filter_map(|rule| match &rule.limit {
                Limit::Counted(counted) => Some(counted),
                Limit::Unlimited | Limit::Never => None,
            })
        };
        let policies = counted().map(|counted| (counted.policy().clone(), KeyType::Text)).collect();
        let source = RegistrySource::File(name.as_str().into());
        let registered = registry.replace(&source, policies).map_err(|error| {
            EnvoyConfigError::new(vec![ConfigError::new(Mistake::new(error), &name, "")])
        })?;
        counted().for_each(|counted| counted.register(&registered));
        Ok(())
    }

    /// Returns the number of domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.tree.domains.len()
    }

    /// Returns a line for each limit, as `/rlconfig` shows it.
    #[must_use]
    pub fn dump(&self) -> String {
        self.tree.rules().into_iter().map(line).collect()
    }
}

fn line(rule: &Rule) -> String {
    let Rule { metric_key, shown, is_shadow, is_quota, .. } = rule;
    let limit = match &rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Never => format!("unit={} requests_per_unit=0", shown.unit().as_str_name()),
        Limit::Counted(counted) => format!(
            "unit={} requests_per_unit={}, quota: {}, policy: {}",
            shown.unit().as_str_name(),
            shown.requests_per_unit,
            counted.policy().quota(),
            counted.policy().name(),
        ),
    };
    format!("{metric_key}: {limit}, shadow_mode: {is_shadow}, quota_mode: {is_quota}\n")
}

impl fmt::Debug for EnvoyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyConfig")
            .field("paths", &self.paths)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
