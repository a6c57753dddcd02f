//! The text of the script, its calls, and the flag of a call that was sent.

use std::sync::{
    LazyLock,
    atomic::{AtomicBool, Ordering},
};

use redis::{Cmd, Script};

use super::wire::{self, Operation, WireCheck};
use crate::{error::Effect, quota::for_each_algorithm, runtime::TimeLimit};

/// Joins the files of the script, each of which parses by itself. A function decides one charge; an algorithm is a branch in it with its Lua file.
macro_rules! join {
    ($(
        $_name:ident { $($_field:tt: $_parameter:ident)? },
        $_text:literal, $number:literal, $_layout:literal, $lua:ident: $_state:ty;
    )+) => {
        concat!(
            include_str!("../../lua/prelude.lua"),
            include_str!("../../lua/self_test.lua"),
            "decide = function(operation, now, charge, admitted, again)\nlocal block_header\nwhile true do\n",
            include_str!("../../lua/charge.lua"),
            $(
                "if algorithm == ", $number, " then\n",
                include_str!(concat!("../../lua/", stringify!($lua), ".lua")),
                "end\n",
            )+
            include_str!("../../lua/periods.lua"),
            include_str!("../../lua/ring_find.lua"),
            include_str!("../../lua/release.lua"),
            include_str!("../../lua/ring.lua"),
            include_str!("../../lua/block.lua"),
            include_str!("../../lua/reset.lua"),
            include_str!("../../lua/write.lua"),
            include_str!("../../lua/answer.lua"),
            "end\nend\n",
            include_str!("../../lua/checks.lua"),
        )
    };
}

const TEXT: &str = for_each_algorithm!(join);

/// The maximum number of arguments of a call besides its keys.
const CALL_ARGUMENTS: usize = 6;
/// The number of bytes that are reserved for the key and the line of a charge, which is enough for most charges. As
/// many are reserved for the other arguments of a call.
const CHARGE_BYTES: usize = 96;

static SHA: LazyLock<String> = LazyLock::new(|| Script::new(TEXT).get_hash().to_owned());

/// The way in which a command names the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptBy {
    /// By its digest, as in nearly all calls.
    Digest,
    /// By its text, which makes the server keep the script.
    Text,
}

/// One call of the script: for one check, or for a batch of them.
pub(super) struct ScriptCall<'c> {
    pub(super) operation: Operation,
    /// The checks, of which there is more than one only to acquire. The script decides them one by
    /// one.
    pub(super) checks: &'c [WireCheck],
    /// The time that a test has set, in microseconds since the Unix epoch.
    pub(super) test_time: Option<u64>,
    pub(super) sent_flag: &'c SentFlag,
}

impl ScriptCall<'_> {
    /// Encodes the call as a command.
    pub(super) fn encode(&self, by: ScriptBy) -> Cmd {
        let charges = self.checks.iter().map(|check| check.charges().len()).sum::<usize>();
        let mut command =
            Cmd::with_capacity(CALL_ARGUMENTS + charges, (1 + charges) * CHARGE_BYTES);
        match by {
            ScriptBy::Digest => command.arg("EVALSHA").arg(&*SHA),
            ScriptBy::Text => command.arg("EVAL").arg(TEXT),
        };
        wire::encode(self.operation, self.checks, &mut command);
        if let Some(test_time) = self.test_time {
            command.arg(test_time);
        }
        command
    }
}

/// A flag of one request that is set when the request is written to a connection, and the deadline of its caller.
///
/// The connection pool calls [`mark_sent`](Self::mark_sent) before it sends the request. When a request
/// times out, its future is dropped before [`effect`](Self::effect) is called. So a request that
/// was not sent by then is never sent.
#[derive(Debug, Default)]
pub(super) struct SentFlag {
    is_sent: AtomicBool,
    deadline: Option<TimeLimit>,
}

impl SentFlag {
    /// Creates the flag of a request that its caller drops at the `deadline`, if it has one.
    pub(super) fn new(deadline: Option<TimeLimit>) -> Self {
        Self { is_sent: AtomicBool::new(false), deadline }
    }

    /// Returns whether the caller waits no longer than until the end of `limit`.
    pub(super) fn ends_by(&self, limit: TimeLimit) -> bool {
        self.deadline.is_some_and(|deadline| deadline.time() <= limit.time())
    }

    /// Marks the request as sent.
    pub(super) fn mark_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// Marks the request as not sent. Its reply, such as a redirection, has proved that it had no
    /// effect, and it will be sent once more.
    pub(super) fn mark_unsent(&self) {
        self.is_sent.store(false, Ordering::Relaxed);
    }

    /// Returns the effect that the request may have had if no reply arrives.
    pub(super) fn effect(&self) -> Effect {
        if self.is_sent.load(Ordering::Relaxed) { Effect::Unknown } else { Effect::None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::quota::Algorithm;

    #[test]
    fn every_algorithm_has_keys_of_its_own() {
        let layouts: BTreeSet<_> = Algorithm::STORED.iter().map(|(_, layout)| layout).collect();
        assert_eq!(layouts.len(), Algorithm::STORED.len());
    }

    #[test]
    fn only_a_request_that_was_sent_and_not_rejected_may_have_an_effect() {
        let sent_flag = SentFlag::default();
        assert_eq!(sent_flag.effect(), Effect::None);
        sent_flag.mark_sent();
        assert_eq!(sent_flag.effect(), Effect::Unknown);
        sent_flag.mark_unsent();
        assert_eq!(sent_flag.effect(), Effect::None);
    }

    /// A change of the script is a change for every running instance: old and new ones share keys
    /// while a service is rolled out. Change the layout version in the key names if they cannot.
    #[test]
    fn the_script_has_the_known_digest() {
        assert_eq!(*SHA, "17ed224c190026cee5fcad074bfcaffbdb6b5567");
    }
}
