//! `cost::content_length` reads lines of `Content-Length` as RFC 9110, section 8.6, writes them.
//!
//! The first byte chooses the version and whether there is a `Transfer-Encoding`.
#![no_main]

use http::{HeaderValue, Request, Version};
use libfuzzer_sys::fuzz_target;
use plimsoll::cost;

const UNSTATED: u64 = 77;

fuzz_target!(|bytes: &[u8]| {
    let [choice, lines @ ..] = bytes else { return };
    let (http2, encoded) = (choice & 1 == 1, choice & 2 == 2);
    let version = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    let (mut parts, ()) = Request::builder().version(version).body(()).unwrap().into_parts();
    if encoded {
        parts.headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
    }
    let lines = lines.split(|byte| *byte == b'\n').skip(1);
    let lines: Vec<_> = lines.filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();
    for line in &lines {
        parts.headers.append("content-length", line.clone());
    }
    let expected = match &lines[..] {
        _ if encoded => UNSTATED,
        [] => {
            if http2 {
                UNSTATED
            } else {
                0
            }
        }
        [line] => {
            let digits = line.as_bytes();
            let number = digits.iter().try_fold(0_u64, |number, byte| {
                let digit = u64::from(*byte).checked_sub(48).filter(|digit| *digit < 10)?;
                number.checked_mul(10)?.checked_add(digit)
            });
            number.filter(|_| !digits.is_empty()).map_or(UNSTATED, |length| length.div_ceil(1_024))
        }
        _ => UNSTATED,
    };
    assert_eq!(cost::content_length(1_024, UNSTATED)(&parts), expected);
});
