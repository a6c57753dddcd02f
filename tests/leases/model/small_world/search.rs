//! A search by breadth: all states of one more step.

use std::{
    collections::HashSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use super::{plan::World, state::State};

/// The outcome of one more step.
pub(super) enum Found {
    /// All states were looked at, or the time was over.
    Nothing,
    /// The actions that break a promise, and the promise.
    Violation(String),
}

/// The states that were reached so far.
///
/// A state is kept as the 64 bits of its hash, and a state to look at as the actions that lead to it.
pub(super) struct Search<'w> {
    world: &'w World,
    seen: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    frontier: Vec<Box<[u8]>>,
    /// The number of steps of which all states were looked at.
    pub(super) depth: usize,
}

impl<'w> Search<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let mut search =
            Self { world, seen: HashSet::default(), frontier: vec![Box::default()], depth: 0 };
        search.is_new(&State::new(world));
        search
    }

    pub(super) fn states(&self) -> usize {
        self.seen.len()
    }

    fn is_new(&mut self, state: &State<'_>) -> bool {
        let hash = self.seen.hasher().hash_one(state.text());
        self.seen.insert(hash)
    }

    /// Looks at all states of one more step. It stops without an end if `is_over` says so.
    pub(super) fn deeper(&mut self, is_over: impl Fn() -> bool) -> Found {
        let mut next = Vec::new();
        for path in std::mem::take(&mut self.frontier) {
            if is_over() {
                return Found::Nothing;
            }
            let mut before = State::new(self.world);
            for &number in &path {
                let kept = before.act(self.world.actions[usize::from(number)]);
                assert!(matches!(kept, Some(Ok(()))), "it was possible before");
            }
            for (number, &action) in self.world.actions.iter().enumerate() {
                let mut state = before.clone();
                let Some(kept) = state.act(action) else { continue };
                if let Err(promise) = kept {
                    let actions: Vec<_> =
                        path.iter().map(|it| self.world.actions[usize::from(*it)]).collect();
                    self.depth += 1;
                    return Found::Violation(format!("{promise} after {actions:?}, {action:?}"));
                }
                if self.is_new(&state) {
                    next.push(path.iter().copied().chain([number as u8]).collect());
                }
            }
        }
        self.frontier = next;
        self.depth += 1;
        Found::Nothing
    }
}
