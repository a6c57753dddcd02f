//! [`Resilience`] and [`BreakerConfig`] as serialized data.

use std::{ops::RangeInclusive, time::Duration};

use super::{BreakerConfig, Resilience};
use crate::{
    error::Error,
    memory::MemoryConfig,
    settings::{DurationText, OrOff, fields, own_form},
};

fields! {
    Resilience, validate_resilience;
    deadline: OrOff<DurationText>, "1 ms to 1 hour, or off";
    breaker: OrOff<BreakerConfig>, "a map, or off";
    fallback: OrOff<MemoryConfig>, "a map, or off";
    instances: u32, "a number, at least 1";
    deny_cache: bool, "true or false";
}

fields! {
    BreakerConfig, validate_breaker;
    window: DurationText, "1 ms to 1 hour";
    min_calls: u32, "a number";
    failures_percent: u32, "1 to 100";
    consecutive: u32, "a number, at least 1";
    slow: DurationText, "1 ms to 1 hour";
    open: DurationText, "1 ms to 1 hour";
    ramp: DurationText, "0 s to 1 hour";
}

own_form!(BreakerConfig);

const HOUR: Duration = Duration::from_secs(3_600);
const LONG: RangeInclusive<Duration> = Duration::from_millis(1)..=HOUR;

fn validate_resilience(config: &Resilience) -> Result<(), Error> {
    match config.deadline {
        Some(deadline) if !LONG.contains(&deadline) => {
            Err(Error::invalid("Resilience::deadline", deadline, "1 ms to 1 hour, or off"))
        }
        _ if config.instances == 0 => {
            Err(Error::invalid("Resilience::instances", 0, "a number, at least 1"))
        }
        _ => Ok(()),
    }
}

fn validate_breaker(config: &BreakerConfig) -> Result<(), Error> {
    let BreakerConfig { window, failures_percent, consecutive, slow, open, ramp, .. } = *config;
    for (field, duration) in [
        ("BreakerConfig::window", window),
        ("BreakerConfig::slow", slow),
        ("BreakerConfig::open", open),
    ] {
        if !LONG.contains(&duration) {
            return Err(Error::invalid(field, duration, "1 ms to 1 hour"));
        }
    }
    if ramp > HOUR {
        return Err(Error::invalid("BreakerConfig::ramp", ramp, "0 s to 1 hour"));
    }
    if !(1..=100).contains(&failures_percent) {
        let field = "BreakerConfig::failures_percent";
        return Err(Error::invalid(field, failures_percent, "1 to 100"));
    }
    if consecutive == 0 {
        return Err(Error::invalid("BreakerConfig::consecutive", 0, "a number, at least 1"));
    }
    Ok(())
}
