//! [`OnFailure`] as serialized data.

use super::OnFailure;
use crate::settings::names;

names!(OnFailure { Local = "local", Allow = "allow", Deny = "deny" });
