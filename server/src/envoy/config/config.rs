//! A configuration in the format of envoyproxy/ratelimit.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use plimsoll_control::{ConfigError, KeyType, Origin, Registry, document::Mistake};

use super::{
    build::Builder,
    error::EnvoyConfigError,
    files::{self, FileText, Files},
    tree::Tree,
};
use crate::envoy::options::EnvoyOptions;

/// A configuration in the format of envoyproxy/ratelimit, with the additional fields `quota` (a [`Quota`]) and
/// `count_denied`.
///
/// [`Quota`]: plimsoll::Quota
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
/// assert_eq!(config.domains(), 1);
///
/// let text = text.replace("minute", "minutes");
/// let error = EnvoyConfig::from_text("shop.yaml", &text, EnvoyOptions::default()).unwrap_err();
/// assert_eq!(error.errors()[0].line(), Some(5));
/// assert!(error.to_string().ends_with("= help: did you mean `minute`?"));
/// # Ok::<(), plimsoll_server::envoy::EnvoyConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct EnvoyConfig {
    pub(in crate::envoy) tree: Arc<Tree>,
    pub(in crate::envoy) options: EnvoyOptions,
    paths: Vec<PathBuf>,
    files: Arc<Files>,
    ignored: BTreeSet<&'static str>,
}

impl EnvoyConfig {
    /// Reads files. Each path is a file, or a folder. All files below a folder are read as YAML, whatever their names
    /// are, and those that end with `.json` as JSON. Files and folders whose names begin with a dot are not read.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has a [mistake](Mistake), or if a folder has no file.
    pub fn load(
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        let paths: Vec<_> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        let files = files::read(&paths).map_err(EnvoyConfigError::new)?;
        if !files.missing.is_empty() {
            return Err(EnvoyConfigError::new(files.missing));
        }
        Self::new(paths, files, options, None)
    }

    /// Reads a text in YAML. Errors call it `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has a [mistake](Mistake).
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
    /// Returns an error if a text has a [mistake](Mistake).
    pub fn from_texts<'t>(
        texts: impl IntoIterator<Item = (&'t str, &'t str)>,
        options: EnvoyOptions,
    ) -> Result<Self, EnvoyConfigError> {
        let texts = texts.into_iter().map(|(name, text)| FileText::yaml(name, text)).collect();
        let files = Files { texts, missing: Vec::new() };
        Self::new(Vec::new(), files, options, None)
    }

    /// Creates the configuration of some files. It keeps the domains of the one before that the files do not have.
    fn new(
        paths: Vec<PathBuf>,
        files: Files,
        options: EnvoyOptions,
        before: Option<&Tree>,
    ) -> Result<Self, EnvoyConfigError> {
        let mut builder = Builder::new(&options);
        files.texts.iter().for_each(|it| builder.add(&it.name, it.format, &it.text));
        let Builder { domains, errors, ignored, .. } = builder;
        if !errors.is_empty() {
            return Err(EnvoyConfigError::new(errors));
        }
        let tree = Arc::new(Tree::new(domains, before));
        Ok(Self { tree, options, paths, files: files.into(), ignored })
    }

    /// Returns the files as they are now.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read.
    pub(in crate::envoy) fn files_now(&self) -> Result<Files, EnvoyConfigError> {
        files::read(&self.paths).map_err(EnvoyConfigError::new)
    }

    /// Returns whether the configuration was made of these files.
    pub(in crate::envoy) fn is_of(&self, files: &Files) -> bool {
        *self.files == *files
    }

    /// Returns the configuration of the same paths with these files. It keeps the domains that the files no longer
    /// have, unless the options say that files remove domains.
    ///
    /// # Errors
    ///
    /// Returns an error if a file has a mistake, or if files remove domains and a folder has no file.
    pub(in crate::envoy) fn with_files(&self, files: Files) -> Result<Self, EnvoyConfigError> {
        let removes = self.options.remove_domains;
        if removes && !files.missing.is_empty() {
            return Err(EnvoyConfigError::new(files.missing));
        }
        let before = (!removes).then_some(&*self.tree);
        Self::new(self.paths.clone(), files, self.options.clone(), before)
    }

    /// Returns whether the configuration was read from files.
    pub(in crate::envoy) fn has_files(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Registers the policies of the limits, and removes the policies of the previous configuration. The limits
    /// are counted under the new ones from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if the [registry](Registry) has one of the policies from another source.
    pub(in crate::envoy) fn register(&self, registry: &Registry) -> Result<(), EnvoyConfigError> {
        let name = self.paths.first().map_or("envoy".into(), |path| path.display().to_string());
        let counted = self.tree.counted();
        let policies = counted.iter().map(|it| (it.configured(), KeyType::Text)).collect();
        let source = Origin::File(name.as_str().into());
        let registered = registry.replace(&source, policies).map_err(|error| {
            EnvoyConfigError::new(vec![ConfigError::new(Mistake::new(error), &name, "")])
        })?;
        counted.iter().for_each(|it| it.register(&registered));
        Ok(())
    }

    /// Returns the domains that no file has any more, and whose limits stay in force, in the order of their names.
    /// [`EnvoyOptions::remove_domains`] ends their limits.
    pub fn kept_domains(&self) -> impl Iterator<Item = &str> {
        self.tree.kept.iter().map(|domain| &**domain)
    }

    /// Returns the fields of the files that have no effect here, in the order of their names.
    pub fn ignored_fields(&self) -> impl Iterator<Item = &'static str> {
        self.ignored.iter().copied()
    }

    /// Returns the number of domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.tree.domains.len()
    }
}
