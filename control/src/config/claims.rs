//! The [claims](Claims) that an earlier layer leaves in a request.

use std::{collections::BTreeMap, sync::Arc};

/// Texts by name that an earlier layer, such as authentication, leaves in the extensions of a request. The
/// keys `claim` and tiers of a configuration read them. Clones share the texts.
///
/// ```
/// use plimsoll_control::Claims;
///
/// # let mut request = http::Request::new(());
/// let claims = Claims::from_iter([("account", "42"), ("plan", "gold")]);
/// request.extensions_mut().insert(claims);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(Arc<BTreeMap<String, String>>);

impl Claims {
    /// Returns the text of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<N: Into<String>, T: Into<String>> FromIterator<(N, T)> for Claims {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(claims: I) -> Self {
        let owned = claims.into_iter().map(|(name, text)| (name.into(), text.into()));
        Self(Arc::new(owned.collect()))
    }
}
