//! [`DenialEvents`] as serialized data.

use super::DenialEvents;
use crate::settings::names;

names!(DenialEvents { OncePerSecond = "once-per-second", All = "all" });
