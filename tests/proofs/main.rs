//! The models of the proofs in `proofs/`, beside the crate and the script: all three decide alike.
//!
//! `./scripts/proofs` checks the proofs and builds the program that runs the models. A machine without Coq
//! fails here.

mod changes;
mod differential;
mod history;
mod model;
