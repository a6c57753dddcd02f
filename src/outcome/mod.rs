//! Charging by outcome: what rules do with their charge when the response is known.

mod tally;

pub use self::tally::Tally;
