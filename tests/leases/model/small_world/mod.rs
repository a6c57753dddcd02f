//! Every interleaving of a small world: two holders on one key, in ticks of a millisecond.
//!
//! The [`model`](super) tries random histories of large fleets. This one tries all histories of a small
//! fleet, up to a number of steps: checks, leases, lost answers, refunds, crashes, holders that sleep
//! between two steps, and changes of the limit, in any order and at any time. It drives the same
//! [`Stock`](super::super::stock::Stock) and the same algorithms. After each step, no window may have more
//! units than the bound, and each denial must have an exact wait.
//!
//! States that were reached before, in as many steps or fewer, are not looked at again. So a trace that is
//! found is one of the shortest.
//!
//! The long form goes on for as many seconds as given, over all worlds together:
//!
//! ```console
//! $ PLIMSOLL_WORLD_SECONDS=600 cargo test --release --all-features --lib small_world -- --nocapture
//! ```

mod plan;
mod search;
mod state;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use self::{
    plan::{MUTANTS, World, worlds},
    search::{Found, Search},
};

fn tell(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
}

/// Returns the time for each world of the long form.
fn long_form(worlds: usize) -> Option<Duration> {
    let seconds: u32 = std::env::var("PLIMSOLL_WORLD_SECONDS").ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.into()) / worlds as u32)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures its own time")]
fn no_interleaving_breaks_a_bound() {
    let worlds = worlds();
    let long = long_form(worlds.len());
    let (started, mut states) = (Instant::now(), 0);
    for world in &worlds {
        let began = Instant::now();
        let mut search = Search::new(world);
        let goes_on = |depth| match long {
            None => depth < world.depth,
            Some(time) => began.elapsed() < time,
        };
        while goes_on(search.depth) {
            if let Found::Violation(trace) = search.deeper(|| !goes_on(0) && long.is_some()) {
                panic!("{}: {trace}", world.name);
            }
        }
        states += search.states();
        let (name, depth, seen) = (world.name, search.depth, search.states());
        tell(&format!("measured {name}: all of {depth} steps, {seen} states\n"));
    }
    let seconds = started.elapsed().as_secs_f64();
    tell(&format!("measured small worlds: {states} states in {seconds:.1} s\n"));
}

/// Each mutant breaks one rule of the lease layer, and the search finds it.
#[test]
fn each_broken_rule_is_found() {
    for (mutant, world, most_steps) in MUTANTS {
        let world = World { mutant: Some(*mutant), ..world() };
        let mut search = Search::new(&world);
        let trace = loop {
            assert!(search.depth < *most_steps, "{mutant:?} is not found in {most_steps} steps");
            if let Found::Violation(trace) = search.deeper(|| false) {
                break trace;
            }
        };
        let (depth, states) = (search.depth, search.states());
        tell(&format!("mutants {mutant:?}: found in {depth} steps, {states} states: {trace}\n"));
    }
}
