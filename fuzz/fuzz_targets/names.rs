//! `Key::from_name` makes one key of all spellings that its docs name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::Key;

fuzz_target!(|name: &str| {
    let key = Key::from_name(name);
    for spelling in [
        name.to_ascii_uppercase(),
        name.to_ascii_lowercase(),
        name.to_uppercase(),
        name.to_lowercase(),
        format!(" {name}\r\n"),
        format!("\0\u{3000}{name}\t"),
        name.trim().to_owned(),
    ] {
        assert_eq!(Key::from_name(&spelling), key, "{spelling:?}");
    }
    // A text without cases and blanks at its ends has the same key as a name and as a text.
    if !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        assert_eq!(key, Key::from(name));
    }
});
