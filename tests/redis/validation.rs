//! States with one number out of its bounds, which no script has written. Each is an error, and stays
//! as it is. A state whose number is just in bounds is decided.

use plimsoll::{
    Limiter, Policy, RedisStore, Resilience,
    clock::ManualClock,
    error::{Effect, ErrorKind},
    redis::RedisConfig,
};
use plimsoll_testing::{policy, servers::Server};

use crate::patient;

const NOW: u64 = 1_700_000_000_000_000;
const MINUTE: u64 = 60_000_000;
const SECOND: u64 = 1_000_000;
const LONGEST_WINDOW: u64 = 34_560_000_000_000;
const LARGEST_TIME: u64 = (1 << 53) - 1;
const LARGEST_COUNT: u64 = 1 << 52;

/// The widths of the numbers of a state, and numbers in bounds.
struct Layout {
    quota: &'static str,
    tag: &'static str,
    fields: &'static [(&'static str, usize, u64)],
}

const FIXED_WINDOW: Layout = Layout {
    quota: "100/min fixed-window",
    tag: "f3",
    fields: &[("current", 7, 1), ("previous", 7, 1), ("time", 7, NOW), ("window", 6, MINUTE)],
};

const SLIDING_COUNTER: Layout = Layout {
    quota: "100/min sliding-counter",
    tag: "c3",
    fields: &[("current", 7, 1), ("previous", 7, 1), ("time", 7, NOW), ("window", 6, MINUTE)],
};

const TOKEN_BUCKET: Layout = Layout {
    quota: "100/min token-bucket(50)",
    tag: "t2",
    fields: &[
        ("debt", 6, 1),
        ("credit", 6, 0),
        ("time", 7, NOW),
        ("limit", 5, 1),
        ("window", 6, MINUTE),
        ("until", 6, NOW / 1_000 + 90_000),
    ],
};

/// Two records of a short log.
const SHORT_LOG: Layout = Layout {
    quota: "100/min",
    tag: "l4",
    fields: &[
        ("known", 7, NOW),
        ("window", 6, MINUTE),
        ("count", 1, 2),
        ("head", 6, 8),
        ("start", 4, 0),
        ("first_bits", 6, (NOW - 1) % (1 << 48)),
        ("first_total", 4, 1),
        ("second_bits", 6, NOW % (1 << 48)),
        ("second_total", 4, 2),
    ],
};

/// Two records of a long log, in one block.
const SLIDING_LOG: Layout = Layout {
    quota: "100/min",
    tag: "l4",
    fields: &[
        ("known", 7, NOW),
        ("window", 6, MINUTE),
        ("old_life", 6, MINUTE / 2),
        ("old_end", 6, 8),
        ("start", 4, 0),
        ("head", 6, 8),
        ("tail", 6, 10),
        ("places", 4, 0),
        ("until", 7, NOW / 1_000 + 90_000),
        ("before_last", 4, 1),
        ("last_time", 7, NOW),
        ("last_total", 4, 2),
        ("head_time", 7, NOW - 1),
        ("head_total", 4, 1),
        ("first_bits", 6, (NOW - 1) % (1 << 48)),
        ("first_total", 4, 1),
        ("second_bits", 6, NOW % (1 << 48)),
        ("second_total", 4, 1),
    ],
};

/// A blocked key that has spent nothing.
const BLOCK: Layout = Layout {
    quota: "100/min fixed-window",
    tag: "f3",
    fields: &[
        ("word", 7, u64::from_le_bytes(*b"blocked\0")),
        ("end", 7, NOW + MINUTE),
        ("life", 7, MINUTE),
        ("expiry", 7, NOW),
    ],
};

impl Layout {
    /// Returns a state with some other numbers, or of another length.
    fn state(&self, changes: &[(&str, u64)]) -> Vec<u8> {
        let mut state = Vec::new();
        for (name, width, usual) in self.fields {
            let changed = changes.iter().find(|change| change.0 == *name);
            let number = changed.map_or(*usual, |change| change.1);
            state.extend(&number.to_le_bytes()[..*width]);
        }
        if let Some((_, length)) = changes.iter().find(|change| change.0 == "length") {
            state.resize(*length as usize, 0);
        }
        state
    }
}

struct Keys {
    server: Server,
    limiter: Limiter,
}

impl Keys {
    async fn start() -> Self {
        let server = Server::start();
        let clock = ManualClock::default();
        clock.set(NOW);
        let config = patient().plain_keys(true);
        let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
            .await
            .expect("a store");
        Self {
            server,
            limiter: Limiter::with_resilience(store.with_test_clock(clock), Resilience::none()),
        }
    }

    fn set(&self, layout: &Layout, state: &[u8]) {
        let mut connection = self.server.client().get_connection().expect("a connection");
        let key = format!("plim:{{=alice}}:p:{}", layout.tag);
        redis::cmd("SET").arg(key).arg(state).exec(&mut connection).expect("set");
    }

    fn get(&self, layout: &Layout) -> Vec<u8> {
        let mut connection = self.server.client().get_connection().expect("a connection");
        let key = format!("plim:{{=alice}}:p:{}", layout.tag);
        redis::cmd("GET").arg(key).query(&mut connection).expect("a state")
    }

    async fn remaining(&self, policy: &Policy) -> u64 {
        let peek = self.limiter.peek(policy.charge("alice", 0)).await.expect("a decision");
        peek.outcomes().next().expect("an outcome").standing().remaining
    }

    /// Asserts that the state with the first changes is foreign, and that with the second is not.
    async fn bound(&self, layout: &Layout, foreign: &[(&str, u64)], decided: &[(&str, u64)]) {
        let policy = policy("p", layout.quota);
        let state = layout.state(foreign);
        self.set(layout, &state);
        for cost in [0, 1] {
            let error = self.limiter.check(policy.charge("alice", cost)).await;
            let error = error.expect_err(&format!("{}: {foreign:?} is foreign", layout.quota));
            assert_eq!(error.kind(), ErrorKind::WrongType, "{}: {foreign:?}", layout.quota);
            // After a script that fails on the state, the effect is unknown.
            assert_eq!(error.effect(), Effect::None, "{}: {foreign:?}: {error}", layout.quota);
            let kept = self.get(layout);
            assert_eq!(kept, state, "{}: {foreign:?} is left as it is", layout.quota);
        }
        self.set(layout, &layout.state(decided));
        let result = self.limiter.peek(policy.charge("alice", 1)).await;
        assert!(result.is_ok(), "{}: {decided:?} is in bounds: {result:?}", layout.quota);
    }
}

#[tokio::test]
async fn blocks() {
    let keys = Keys::start().await;
    keys.bound(&BLOCK, &[("life", LONGEST_WINDOW + 1)], &[("life", LONGEST_WINDOW)]).await;
    keys.bound(&BLOCK, &[("word", u64::from_le_bytes(*b"Blocked\0"))], &[]).await;
    keys.bound(&BLOCK, &[("length", 27)], &[("end", LARGEST_TIME)]).await;
}

#[tokio::test]
async fn counters() {
    let keys = Keys::start().await;
    for layout in [FIXED_WINDOW, SLIDING_COUNTER] {
        for (name, bound) in [
            ("current", LARGEST_COUNT),
            ("previous", LARGEST_COUNT),
            ("time", LARGEST_TIME),
            ("window", LONGEST_WINDOW),
        ] {
            keys.bound(&layout, &[(name, bound + 1)], &[(name, bound)]).await;
        }
        keys.bound(&layout, &[("window", 0)], &[("window", 1)]).await;
        keys.bound(&layout, &[("length", 26)], &[]).await;
        for length in [27 + 7, 27 + 34, 27 + 36, 27 + 35 * 2] {
            keys.bound(&layout, &[("length", length)], &[("length", 27 + 35)]).await;
        }
    }
}

/// A record of earlier windows that no charge can have left.
#[tokio::test]
async fn carried_units() {
    let keys = Keys::start().await;
    let latest = NOW + MINUTE + 2 * LONGEST_WINDOW;
    for Layout { quota, tag, fields } in [FIXED_WINDOW, SLIDING_COUNTER] {
        let record = [
            ("generation", 7, NOW + MINUTE),
            ("until", 7, latest),
            ("carried", 7, 5),
            ("hold", 7, NOW + 1),
            ("zero", 7, NOW + MINUTE),
        ];
        let fields = [fields, record.as_slice()].concat().leak();
        let layout = Layout { quota, tag, fields };
        for (name, bound) in [
            ("generation", NOW + MINUTE),
            ("until", latest),
            ("carried", LARGEST_COUNT),
            ("hold", NOW + MINUTE),
            ("zero", latest),
        ] {
            keys.bound(&layout, &[(name, bound + 1)], &[(name, bound)]).await;
        }
        keys.set(&layout, &layout.state(&[("current", 3), ("previous", 0)]));
        assert_eq!(keys.remaining(&policy("p", quota)).await, 100 - 3 - 5);
        // They are carried on to another window, with the units of the last charge.
        let longer = policy("p", &quota.replace("100/min", "100/2min"));
        assert_eq!(keys.remaining(&longer).await, 100 - 3 - 5);
    }
}

#[tokio::test]
async fn token_buckets() {
    let keys = Keys::start().await;
    for (name, bound) in [
        ("time", LARGEST_TIME),
        ("window", LONGEST_WINDOW),
        ("credit", MINUTE - 1),
        // The bucket is full within two of the longest windows.
        ("debt", 2 * LONGEST_WINDOW / MINUTE),
    ] {
        keys.bound(&TOKEN_BUCKET, &[(name, bound + 1)], &[(name, bound)]).await;
    }
    keys.bound(&TOKEN_BUCKET, &[("limit", 0), ("debt", 0)], &[("debt", 0)]).await;
    keys.bound(&TOKEN_BUCKET, &[("length", 35)], &[]).await;
}

#[tokio::test]
async fn short_logs() {
    let keys = Keys::start().await;
    let largest = LARGEST_TIME % (1 << 48);
    let known = |time| [("known", time), ("first_bits", largest), ("second_bits", largest)];
    keys.bound(&SHORT_LOG, &known(LARGEST_TIME + 1), &known(LARGEST_TIME)).await;
    let window = |micros| [("window", micros)];
    keys.bound(&SHORT_LOG, &window(LONGEST_WINDOW + 1), &window(LONGEST_WINDOW)).await;
    keys.bound(&SHORT_LOG, &[("window", 0)], &[("window", 1)]).await;
    let last = |time: u64| [("second_bits", time % (1 << 48))];
    keys.bound(&SHORT_LOG, &last(NOW + MINUTE + 1), &last(NOW + MINUTE)).await;
    keys.bound(&SHORT_LOG, &last(NOW - 1), &last(NOW)).await;
    let first = |time: u64| [("first_bits", time % (1 << 48))];
    keys.bound(&SHORT_LOG, &first(NOW + 1), &first(NOW)).await;
    // A log without records, and records that are not there. Places may be empty.
    let one = ("count", 1);
    keys.bound(&SHORT_LOG, &[("count", 0)], &[one, ("known", NOW - 1)]).await;
    keys.bound(&SHORT_LOG, &[("count", 3)], &[("length", 434), ("count", 2)]).await;
    keys.bound(&SHORT_LOG, &[("length", 34)], &[("length", 34), one, ("known", NOW - 1)]).await;
    for length in [4, 14, 24, 36, 43] {
        keys.bound(&SHORT_LOG, &[("length", length), one], &[]).await;
    }
}

#[tokio::test]
async fn logs() {
    let keys = Keys::start().await;
    for (name, bound) in [
        ("known", LARGEST_TIME),
        ("window", LONGEST_WINDOW),
        ("old_life", MINUTE),
        ("old_end", 9),
        ("head_time", NOW),
        ("last_time", NOW + MINUTE),
    ] {
        keys.bound(&SLIDING_LOG, &[(name, bound + 1)], &[(name, bound)]).await;
    }
    let no_life = ("old_life", 0);
    keys.bound(&SLIDING_LOG, &[("window", 0), no_life], &[("window", 1), no_life]).await;
    keys.bound(&SLIDING_LOG, &[("head", 10)], &[("head", 9), ("head_time", NOW)]).await;
    keys.bound(&SLIDING_LOG, &[("head", 9)], &[("head", 9), ("head_time", NOW)]).await;
    keys.bound(&SLIDING_LOG, &[("length", 97)], &[("length", 98)]).await;
    keys.bound(&SLIDING_LOG, &[("length", 87)], &[]).await;
    // Two blocks, of which one is in the ring.
    let (two, ring) = (("head", 0), ("length", 238));
    keys.bound(&SLIDING_LOG, &[two, ("places", 0), ring], &[two, ("places", 1), ring]).await;
    keys.bound(&SLIDING_LOG, &[two, ("places", 1), ("length", 237)], &[two, ("places", 1), ring])
        .await;
    // Three blocks, of which the ring has been cut off: the search for what has left reads it.
    let cut = |places| {
        [two, ("tail", 18), ("places", places), ring, ("head_time", NOW - MINUTE), ("old_end", 0)]
    };
    keys.bound(&SLIDING_LOG, &cut(1), &cut(2)).await;
    let (most, more) = (("places", 147_457), ("places", 147_458));
    keys.bound(&SLIDING_LOG, &[two, more, ring], &[two, most, ring]).await;
    let records = |number: u64| [("tail", 8 + number), most, ring];
    keys.bound(&SLIDING_LOG, &records((1 << 20) + 2), &records((1 << 20) + 1)).await;
}

/// A log with the most records gets no more: further units join the newest record.
#[tokio::test]
async fn a_log_with_the_most_records() {
    let keys = Keys::start().await;
    let (first, most) = (8, 1 << 20);
    let full = [("tail", first + most), ("places", 147_457), ("length", 238), ("old_end", 0)];
    let tail_of = |state: &[u8]| {
        // Behind known, window, old_life, old_end, start and head.
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&state[35..41]);
        u64::from_le_bytes(bytes)
    };
    // Under a longer window, the units of the last charge have a life of their own.
    for quota in ["100/min", "100/2min"] {
        let policy = policy("p", quota);
        keys.set(&SLIDING_LOG, &SLIDING_LOG.state(&full));
        for _ in 0..2 {
            let decision = keys.limiter.check(policy.charge("alice", 1)).await;
            assert!(decision.expect("an answer").is_allowed(), "{quota}");
            assert_eq!(tail_of(&keys.get(&SLIDING_LOG)), first + most, "{quota}");
        }
        assert_eq!(keys.remaining(&policy).await, 100 - 4, "{quota}");
    }
}

/// A record is dropped with the first charge of a period in which it is not needed.
#[tokio::test]
async fn a_record_that_is_not_needed() {
    let keys = Keys::start().await;
    for layout in [FIXED_WINDOW, SLIDING_COUNTER] {
        let mut state = layout.state(&[("time", NOW - 3 * MINUTE)]);
        let counters = state.len();
        let (until, end) = (NOW - SECOND, NOW - MINUTE);
        for number in [NOW - 3 * MINUTE, until, 5, end, end] {
            state.extend(&number.to_le_bytes()[..7]);
        }
        keys.set(&layout, &state);
        let policy = policy("p", layout.quota);
        let decision = keys.limiter.check(policy.charge("alice", 1)).await;
        assert!(decision.expect("an answer").is_allowed());
        assert_eq!(keys.get(&layout).len(), counters);
    }
}
