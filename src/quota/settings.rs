//! Quotas and algorithms as serialized data.

use super::{Algorithm, Quota};
use crate::{error::Error, settings::parsed_text};

const ALGORITHMS: &str = "sliding-log, sliding-buckets(N), sliding-counter, token-bucket(BURST), \
                          fixed-window";

parsed_text!(Quota, str::parse);
parsed_text!(Algorithm, |text: &str| {
    Algorithm::from_text(text).ok_or_else(|| Error::invalid("algorithm", text, ALGORITHMS))
});
