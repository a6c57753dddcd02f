//! The text of a quota parses back to the same quota.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::{Policy, Quota};

fuzz_target!(|text: &str| {
    if let Ok(quota) = text.parse::<Quota>() {
        assert_eq!(quota.to_string().parse::<Quota>().expect("its own text"), quota);
        assert!(quota.limit() > 0 && !quota.window().is_zero());
    }
    if let Ok(policy) = Policy::new(text, Quota::per_minute(1)) {
        assert!(policy.name() == text && text.len() <= 64);
    }
});
