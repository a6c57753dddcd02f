//! The store, its breaker, leases and memory, and the instances of the service.

use axum::{Json, extract::State};
use plimsoll::store::{BreakerStatus, MemoryStats, Status};
use serde_json::{Value, json};

use super::lookup::seconds;
use crate::{
    Config, Fleet, HitRates, OverridesStatus,
    admin::{config::Admin, problem::of_read},
    web::Problem,
};

/// Returns the status of this process and its store.
pub(in crate::admin) async fn status(State(admin): State<Admin>) -> Json<Value> {
    let status = admin.limiter.status();
    Json(json!({
        "instance": admin.instance,
        "store": store(&status),
        "home": status.home.as_deref().map(store),
        "leases": { "keys": status.leased_keys, "units": status.leased_units },
        "memory": status.memory.map_or_else(no_memory, memory),
        "config": admin.config.as_ref().map_or_else(no_config, config),
        "overrides": overrides(&admin.overrides.status()),
    }))
}

/// Returns the instances that announce themselves, and the units that they admit and deny together.
pub(in crate::admin) async fn fleet(State(admin): State<Admin>) -> Json<Fleet> {
    Json(admin.overrides.fleet().await)
}

/// Returns the share of the units of each policy that the fleet has denied.
pub(in crate::admin) async fn hits(State(admin): State<Admin>) -> Result<Json<HitRates>, Problem> {
    Ok(Json(admin.overrides.hit_rates().await.map_err(of_read)?))
}

fn store(status: &Status) -> Value {
    json!({
        "breaker": status.breaker.map_or_else(
            || no_data("there is no breaker: the store is in this process, or the breaker is off"),
            breaker,
        ),
        "open_breakers": status.open_breakers,
        "instances": status.instances.map_or_else(
            || no_data("the store has not counted its instances"),
            Value::from,
        ),
        "clock_drift_ppm": status.clock_drift_ppm,
        "latency_seconds": status.latency.map_or_else(
            || no_data("no request was sent to a store outside of this process"),
            |it| it.as_secs_f64().into(),
        ),
        "scheduling_delay_seconds": status.scheduling_delay.map_or_else(
            || no_data("no request has waited for the store for 10 ms"),
            |it| it.as_secs_f64().into(),
        ),
        "not_ready": status.not_ready,
    })
}

fn breaker(status: BreakerStatus) -> Value {
    match status {
        BreakerStatus::Closed => json!({ "state": "closed" }),
        BreakerStatus::Open { elapsed, probe_after } => json!({
            "state": "open", "open_seconds": seconds(elapsed), "probe_after": seconds(probe_after),
        }),
        _ => json!({ "state": "unknown" }),
    }
}

fn memory(stats: MemoryStats) -> Value {
    json!({
        "keys": stats.keys, "bytes": stats.bytes,
        "evicted": stats.evicted, "forgiven": stats.forgiven,
    })
}

fn no_memory() -> Value {
    no_data("this process keeps no units: the limiter has neither an embedded store nor a fallback")
}

fn config(config: &Config) -> Value {
    let status = config.status();
    json!({
        "version": status.version(),
        "needs_restart": status.needs_restart(),
        "error": status.error().map(|it| json!({
            "message": it.message(), "line": it.line(), "column": it.column(),
            "text": it.to_string(),
        })),
    })
}

fn no_config() -> Value {
    no_data("the limits come from the program: no configuration is loaded")
}

fn overrides(status: &OverridesStatus) -> Value {
    json!({
        "version": status.version,
        "seconds_since_reply": seconds(status.since_reply),
        "losses": status.losses,
        "lost": status.lost,
        "error": status.error,
    })
}

fn no_data(cause: &str) -> Value {
    json!({ "no_data": format!("No data because {cause}") })
}
