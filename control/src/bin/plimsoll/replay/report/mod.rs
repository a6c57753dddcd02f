//! The report of a replay: as values, which `--json` prints, as tables for a terminal, and as an HTML page.

mod chart;
mod model;
mod page;
mod text;

pub(super) use self::model::{Candidate, Report, Window};
