//! The service: its parts, its listeners, and its life from the start to the end.

use std::{
    fmt,
    io::{self, Write},
};

use axum::{Router, middleware::from_fn_with_state};
use plimsoll::Limiter;
use plimsoll_control::{
    Offenders, Overrides,
    admin::{self, AdminConfig},
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    check::{ServerError, validate},
    envoy::Envoy,
    grpc,
    health::Health,
    http::{self, Api, require_full_access, with_fallbacks},
    limits::Limits,
    listen::{Listener, Phase, Phases},
    metrics::Metrics,
    settings::{Address, Settings},
    signals::Signals,
};

/// The keys of each policy that are counted by themselves.
const OFFENDERS: usize = 1_000;

/// The service, before it [serves](Self::run).
pub struct Server {
    settings: Settings,
    limits: Limits,
    limiter: Limiter,
    overrides: Overrides,
    offenders: Offenders,
    api: Api,
    envoy: Option<Envoy>,
    metrics: Metrics,
    health: Health,
    phases: Phases,
}

impl Server {
    /// Reads the limits of the [settings](Settings), and connects to the store. Other machines reach nothing yet.
    ///
    /// # Errors
    ///
    /// Returns an error if a file has a mistake, if the store cannot be reached, or if an address would be open
    /// to other machines without tokens ([`Settings::is_unauthenticated`]).
    pub async fn new(settings: Settings) -> Result<Self, ServerError> {
        validate(&settings)?;
        // The recorder comes first, so that it receives all metrics.
        let metrics = Metrics::install()?;
        let limits = Limits::read(&settings)?;
        for warning in &limits.warnings {
            tracing::warn!(target: "plimsoll", "{warning}");
        }
        let limiter = limits.store.connect().await?;
        let mut overrides = limits.overrides(&limiter, &settings).await?;
        let mut offenders = Offenders::new(OFFENDERS);
        if settings.shows_keys {
            overrides = overrides.show_keys();
            offenders = offenders.show_keys();
        }
        let registry = limits.registry.clone();
        let api = Api::new(registry, limiter.clone(), offenders.clone(), &settings)?;
        if limits.is_shared() && settings.receipt_secret.is_none() {
            tracing::warn!(
                target: "plimsoll",
                "receipts and slots are accepted by the instance that made them only: give all \
                 instances one PLIMSOLL_RECEIPT_SECRET"
            );
        }
        let phases = Phases::new();
        let health = Health::new(phases.clone()).await;
        let envoy = limits.envoy(&limiter, &offenders)?;
        Ok(Self {
            settings,
            limits,
            limiter,
            overrides,
            offenders,
            api,
            envoy,
            metrics,
            health,
            phases,
        })
    }

    /// Serves until a signal, and then ends: the service is not ready any more, requests in flight are answered,
    /// and leased units are given back.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is in use, or signals cannot be received.
    pub async fn run(self) -> Result<(), ServerError> {
        let mut signals = Signals::new()?;
        self.limits.watch();
        let _watch = self.envoy.as_ref().map(Envoy::watch);
        let bounds = self.settings.bounds;
        let mut listeners = JoinSet::new();
        let http = bind("http", self.settings.http).await?;
        let grpc = bind("grpc", self.settings.grpc).await?;
        let admin = bind("admin", self.settings.admin).await?;
        // The program that reads the addresses may ask for the health at once.
        self.health.begin(Phase::Ready).await;
        if let Some(listener) = http {
            say(format_args!("http on http://{}", listener.address()));
            let router = self.http_router();
            listeners.spawn(listener.serve(router, http::too_slow, bounds, self.phases.clone()));
        }
        if let Some(listener) = grpc {
            say(format_args!("grpc on {}", listener.address()));
            let mut services = self.health.routes();
            if let Some(envoy) = &self.envoy {
                services = services.add_service(envoy.grpc());
            }
            let router = grpc::router(services, self.settings.clients.clone());
            listeners.spawn(listener.serve(router, grpc::too_slow, bounds, self.phases.clone()));
        }
        if let Some(listener) = admin {
            say(format_args!("admin on http://{}/", listener.address()));
            if !self.settings.has_operators {
                tracing::warn!(
                    target: "plimsoll",
                    "the admin page is closed, because there is no operator: \
                     PLIMSOLL_ADMIN_TOKEN, or [[operators]] in the settings file, opens it"
                );
            }
            let page = self.admin_router();
            listeners.spawn(listener.serve(page, http::too_slow, bounds, self.phases.clone()));
        }

        let is_interactive = signals.next().await;
        tracing::info!(target: "plimsoll", "the service ends");
        self.health.begin(Phase::Draining).await;
        if !is_interactive {
            tokio::select! {
                () = sleep(bounds.drain) => {}
                _ = signals.next() => {}
            }
        }
        self.health.begin(Phase::Closing).await;
        tokio::select! {
            () = async { while listeners.join_next().await.is_some() {} } => {}
            _ = signals.next() => tracing::warn!(target: "plimsoll", "another signal: connections are cut"),
        }
        listeners.shutdown().await;
        // Leased units go back to the store, so that other instances can use them. It waits 4 s at most.
        if let Err(error) = self.limiter.close().await {
            tracing::warn!(target: "plimsoll", "leased units are not given back: {error}");
        }
        tracing::info!(target: "plimsoll", "the service has ended");
        Ok(())
    }

    fn http_router(&self) -> Router {
        let envoy = self.envoy.as_ref().map_or_else(Router::new, Envoy::debug_router);
        let internal = envoy.merge(self.metrics.router());
        let internal = internal.layer(from_fn_with_state(self.api.clone(), require_full_access));
        let public = http::router(self.api.clone()).merge(self.health.router());
        with_fallbacks(public.merge(internal))
    }

    /// Returns the routes of the admin listener. Its metrics and its health need no token, and contain no keys.
    /// The paths of clients are not among them, because a client is not an operator.
    fn admin_router(&self) -> Router {
        let access = self.settings.operators.clone();
        let mut config = AdminConfig::new(self.overrides.clone(), self.offenders.clone(), access)
            .config(&self.limits.configs[0]);
        if let Some(name) = &self.settings.instance {
            config = config.instance(name);
        }
        admin::router(config).merge(self.health.router()).merge(self.metrics.router())
    }
}

/// Writes a line to standard output. Nothing depends on a reader.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

async fn bind(name: &'static str, address: Address) -> io::Result<Option<Listener>> {
    let Address::At(address) = address else { return Ok(None) };
    Listener::bind(name, address).await.map(Some).map_err(|error| {
        io::Error::new(error.kind(), format!("{name} cannot listen on {address}: {error}"))
    })
}
