//! The service in a process of its own, which tests kill and start again.

use std::{env, path::Path, time::Duration};

use plimsoll::{Limiter, OnFailure, RedisConfig, RedisStore, Resilience};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::{
    role::{Role, end_of_input},
    servers::free_port,
    web,
};
use tonic::transport::Server;

/// The deadline of a request to Redis.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// A process that serves a configuration.
pub(crate) struct Service {
    pub(crate) port: u16,
    variables: Vec<(&'static str, String)>,
    role: Option<Role>,
}

impl Service {
    /// Starts the service with the files at a path, over Redis or alone.
    pub(crate) fn start(config: &Path, redis: Option<&str>) -> Self {
        Self::start_at(free_port(), config, redis, &[])
    }

    pub(crate) fn start_with(
        config: &Path,
        redis: Option<&str>,
        more: &[(&'static str, &str)],
    ) -> Self {
        Self::start_at(free_port(), config, redis, more)
    }

    pub(crate) fn start_at(
        port: u16,
        config: &Path,
        redis: Option<&str>,
        more: &[(&'static str, &str)],
    ) -> Self {
        let mut variables = vec![
            ("PLIMSOLL_TEST_CONFIG", config.display().to_string()),
            ("PLIMSOLL_TEST_PORT", port.to_string()),
        ];
        variables.extend(redis.map(|url| ("PLIMSOLL_TEST_REDIS", url.to_owned())));
        variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let mut service = Self { port, variables, role: None };
        service.run();
        service
    }

    /// Starts the process, again after [`kill`](Self::kill).
    pub(crate) fn run(&mut self) {
        let variables: Vec<_> = self.variables.iter().map(|(name, it)| (*name, &**it)).collect();
        // The program under test is chosen in this line.
        let mut role = Role::start("service::service", &variables);
        role.says("grpc on");
        self.role = Some(role);
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.role = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The process of a [`Service`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service() {
    let Ok(config) = env::var("PLIMSOLL_TEST_CONFIG") else { return };
    let port: u16 = env::var("PLIMSOLL_TEST_PORT").unwrap().parse().unwrap();
    let resilience = Resilience::default().deadline(DEADLINE);
    let mut options = EnvoyOptions::default();
    if env::var("PLIMSOLL_TEST_DENIES").is_ok() {
        options = options.on_failure(OnFailure::Deny);
    }
    let limiter = match env::var("PLIMSOLL_TEST_REDIS") {
        Ok(url) => {
            let store = RedisStore::connect_with(RedisConfig::url(url).lazy(true)).await.unwrap();
            Limiter::with(store, resilience)
        }
        Err(_) => Limiter::in_memory(),
    };
    let envoy = Envoy::new(EnvoyConfig::load_with([config], options).unwrap(), limiter);
    let _watch = envoy.watch();
    let http = web::serve(envoy.debug_router()).await;
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::bind(address).unwrap();
    println!("\nhttp on http://{http}\ngrpc on {address}");
    let serve = Server::builder().add_service(envoy.grpc()).serve_with_incoming(incoming);
    tokio::select! {
        served = serve => served.unwrap(),
        () = end_of_input() => {}
    }
}
