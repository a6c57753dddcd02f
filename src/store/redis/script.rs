//! The script: one text, one SHA.

use std::sync::{
    LazyLock,
    atomic::{AtomicBool, Ordering},
};

use redis::{Cmd, Script, Value};
use smallvec::SmallVec;

use super::{
    error::Failure,
    wire::{self, Check, Operation, Reply},
};

/// Put together from its parts when this crate is compiled.
const TEXT: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/acquire.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/sliding_buckets.lua"),
    include_str!("../../../lua/reset.lua"),
    include_str!("../../../lua/ring.lua"),
    include_str!("../../../lua/sliding_counter.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/answer.lua"),
);

static SHA: LazyLock<String> = LazyLock::new(|| Script::new(TEXT).get_hash().to_owned());

/// What the script is asked to do.
pub(super) struct Invocation {
    operation: Operation,
    /// Several only to acquire, each for itself, one after the other.
    pub(super) checks: SmallVec<[Check; 1]>,
    /// The time, from a test.
    now: Option<u64>,
}

impl Invocation {
    pub(super) fn new(
        operation: Operation,
        checks: impl IntoIterator<Item = Check>,
        now: Option<u64>,
    ) -> Self {
        Self { operation, checks: checks.into_iter().collect(), now }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.checks.len() > 1
    }

    /// What the answer says to each check.
    pub(super) fn read(&self, value: &Value) -> Result<SmallVec<[Option<Reply>; 1]>, Failure> {
        wire::read(self.operation, &self.checks, value)
    }

    /// Whether this can be what the script answers.
    pub(super) fn is_answer(&self, value: &Value) -> bool {
        wire::is_answer(&self.checks, value)
    }

    pub(super) fn by_sha(&self) -> Cmd {
        self.command("EVALSHA", &SHA)
    }

    /// Also loads the script.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", TEXT)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let keys = || self.checks.iter().flat_map(|check| check.iter().map(|line| &line.key));
        let lines = wire::pack(&self.checks);
        let size = keys().map(|key| key.len() + 8).sum::<usize>() + lines.len();
        let mut command = Cmd::with_capacity(8 + keys().count(), size + script.len() + 32);
        command.arg(name).arg(script).arg(keys().count());
        for key in keys() {
            command.arg(key);
        }
        command.arg(if self.is_shared() { "b" } else { self.operation.code() }).arg(lines);
        if let Some(now) = self.now {
            command.arg(now);
        }
        command
    }
}

/// Sees to it that a script that a server has lost is sent again by few of the checks that miss it.
#[derive(Debug, Default)]
pub(super) struct Loading(AtomicBool);

impl Loading {
    /// Runs the script; `send` sends a command to the server that has the keys.
    ///
    /// One of the checks that find the script missing sends it. The others ask once more, behind
    /// it, and send it themselves only if it is still missing: nobody waits for anybody.
    pub(super) async fn run<F, S>(&self, invocation: &Invocation, send: S) -> Result<Value, Failure>
    where
        F: Future<Output = Result<Value, Failure>>,
        S: Fn(Cmd) -> F,
    {
        match send(invocation.by_sha()).await {
            Err(failure) if failure.is_missing_script() => {}
            other => return other,
        }
        if self.0.swap(true, Ordering::AcqRel) {
            match send(invocation.by_sha()).await {
                Err(failure) if failure.is_missing_script() => {}
                other => return other,
            }
            return send(invocation.by_text()).await;
        }
        let _done = Done(&self.0);
        send(invocation.by_text()).await
    }
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::quota::Algorithm;

    #[test]
    fn every_algorithm_has_a_branch_and_keys_of_its_own() {
        for (number, layout) in Algorithm::STORED {
            assert!(TEXT.contains(&format!("if algorithm == {number} ")), "{layout}");
        }
        let layouts: BTreeSet<_> = Algorithm::STORED.iter().map(|(_, layout)| layout).collect();
        assert_eq!(layouts.len(), Algorithm::STORED.len());
    }

    /// A change of the script is a change for every running instance: old and new ones share keys
    /// while a service is rolled out. Change the layout version in the key names if they cannot.
    #[test]
    fn the_script_is_the_one_that_was_meant() {
        assert_eq!(*SHA, "effe6a97364efc1d4de06c1dafbf36f47f66e769");
    }
}
