//! Configuration files: what they say, their mistakes, and their changes while a service runs.

mod reload;
mod service;
