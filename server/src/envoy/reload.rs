//! The reload of the files.

use std::sync::Arc;

use plimsoll_control::Watch;

use super::{
    config::{EnvoyConfig, EnvoyConfigError, Files},
    envoy::{Envoy, Seen},
};

impl Envoy {
    /// Watches the files: a change is in force within a second. A change with a mistake is reported once as
    /// an event, and in the metric `ratelimit_service_config_load_error`, and the configuration stays in
    /// force. A [domain that no file has any more](EnvoyConfig::kept_domains) stays in force too, as an event and the
    /// metric `plimsoll_server_envoy_kept_domains` report, unless [`EnvoyOptions::remove_domains`] is set.
    ///
    /// [`EnvoyOptions::remove_domains`]: super::EnvoyOptions::remove_domains
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn watch(&self) -> Watch {
        let watch = Watch::default();
        let envoy = self.clone();
        watch.start(move || {
            envoy.poll();
            true
        });
        watch
    }

    /// Reads the files again, and returns whether they have changed. [`watch`](Self::watch) does so by itself.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has a mistake. The configuration stays in force.
    pub fn reload(&self) -> Result<bool, EnvoyConfigError> {
        let config = self.config();
        let files = config.files_now();
        self.apply(&config, files)
    }

    /// Reads the files again, and acts on them if they have stayed the same since the last call. Each change is tried
    /// once.
    fn poll(&self) {
        let config = self.config();
        let files = config.files_now();
        {
            let mut seen = self.0.seen();
            if seen.files.as_ref() != Some(&files) {
                *seen = Seen { files: Some(files), is_tried: false };
                return;
            }
            if seen.is_tried {
                return;
            }
            seen.is_tried = true;
        }
        // An error is reported where it occurs.
        let _ = self.apply(&config, files);
    }

    fn apply(
        &self,
        config: &EnvoyConfig,
        files: Result<Files, EnvoyConfigError>,
    ) -> Result<bool, EnvoyConfigError> {
        let new = match files.and_then(|files| self.read(config, files)) {
            Ok(None) => return Ok(false),
            Ok(Some(new)) => new,
            Err(error) => {
                self.0.stats.config_load_error.increment(1);
                tracing::error!("the limits for Envoy stay as they are\n{error}");
                return Err(error);
            }
        };
        self.report(config, &new);
        self.0.config.store(Arc::new(new));
        Ok(true)
    }

    /// Returns the configuration of these files, or `None` if it is in force already.
    fn read(
        &self,
        config: &EnvoyConfig,
        files: Files,
    ) -> Result<Option<EnvoyConfig>, EnvoyConfigError> {
        if !config.has_files() || config.is_of(&files) {
            return Ok(None);
        }
        let new = config.with_files(files)?;
        new.register(&self.0.registry)?;
        Ok(Some(new))
    }

    /// Reports that a configuration comes into force, and which domains it keeps, once for each change of them.
    fn report(&self, before: &EnvoyConfig, new: &EnvoyConfig) {
        let kept: Vec<_> = new.kept_domains().collect();
        self.0.stats.config_load_success.increment(1);
        self.0.stats.kept_domains.set(kept.len() as f64);
        tracing::info!(domains = new.domains(), "the limits for Envoy were read again");
        if !kept.is_empty() && !before.kept_domains().eq(kept.iter().copied()) {
            tracing::warn!(
                "no file has the limits for Envoy of these domains any more, and they stay in force until \
                 a restart: {}. To remove limits, leave a file with the `domain` and `descriptors: []`, \
                 or set `remove-domains`",
                kept.join(", ")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use metrics_exporter_prometheus::PrometheusBuilder;
    use plimsoll::Limiter;
    use plimsoll_control::{Offenders, Registry};
    use plimsoll_testing::servers::directory;

    use super::{super::options::EnvoyOptions, *};

    #[test]
    fn a_file_with_a_mistake_is_parsed_once() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let file = directory().join("limits.yaml");
            let write = |text: &str| fs::write(&file, text).unwrap();
            write("domain: shop");
            let config = EnvoyConfig::load([&file], EnvoyOptions::default()).unwrap();
            let limiter = Limiter::in_memory();
            let envoy =
                Envoy::new(config, limiter, Registry::default(), Offenders::new(10)).unwrap();
            let errors = || {
                (0..3).for_each(|_| envoy.poll());
                let text = handle.render();
                let name = "ratelimit_service_config_load_error ";
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.expect("the metric").parse::<u64>().expect("a number")
            };
            assert_eq!(errors(), 0);
            write("domian: shop");
            assert_eq!([errors(), errors()], [1, 1]);
            assert!(envoy.reload().is_err(), "a call reads the files always");
            assert_eq!(errors(), 2);
            write("domain: shop\nlimits: []");
            assert_eq!([errors(), errors()], [3, 3], "another mistake");
            // The texts in force, and then the rejected ones, come back.
            write("domain: shop");
            assert_eq!(errors(), 3);
            write("domain: shop\nlimits: []");
            assert_eq!(errors(), 4);
            write("domain: other");
            assert_eq!(errors(), 4);
            assert!(envoy.config().tree.domain("other").is_some());
            assert!(envoy.config().tree.domain("shop").is_some(), "no file says that it ends");
        });
    }
}
