//! Parts of an HTTP API that the admin page and `plimsoll-server` share: problem documents, JSON bodies, and tokens.

mod body;
mod problem;
mod tokens;

pub use self::{
    body::json,
    problem::{PROBLEM_JSON, Problem},
    tokens::{TokenError, Tokens},
};
