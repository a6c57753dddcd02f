//! The columns of a log whose fields stand at fixed places.

use super::roles::{Rank, Role, Roles};

/// The names of columns, and the role of each.
#[derive(Debug)]
pub(super) struct Columns(Vec<(String, Option<(Role, Rank)>)>);

impl Columns {
    /// Finds the role of each column by its name.
    pub(super) fn new<T: Into<String>>(names: impl IntoIterator<Item = T>, roles: &Roles) -> Self {
        let names = names.into_iter().map(Into::into);
        Self(names.map(|name: String| (name.clone(), roles.of(&name))).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn name(&self, at: u16) -> &str {
        self.0.get(usize::from(at)).map_or("", |(name, _)| name)
    }

    pub(super) fn role(&self, at: usize) -> Option<(Role, Rank)> {
        self.0.get(at).and_then(|(_, role)| *role)
    }

    /// Returns whether a column has this role.
    pub(super) fn has(&self, role: Role) -> bool {
        self.0.iter().any(|(_, it)| it.is_some_and(|(it, _)| it == role))
    }
}
