//! Allocations of requests, checks and keys. The allocator counts the allocations of all threads, so each test
//! runs alone.

mod by;
mod delay;
mod layer;
mod memory;
mod redis;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
pub(crate) static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
