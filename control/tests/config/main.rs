//! Configuration files: what they say, their mistakes, and their changes while a service runs.

mod guide;
mod mistakes;
mod random;
mod reload;
mod rules;
mod service;
mod shapes;
mod store;
