//! The mistakes of a first day: what the program and the compiler answer.

use std::{
    cell::Cell,
    env,
    error::Error as StdError,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use plimsoll::{Error, Limiter, Policy, Quota, RateLimitLayer, error::ErrorKind};
use plimsoll_testing::seed::property;
use proptest::{collection::vec, prelude::*, sample::select};

#[test]
fn a_quota_is_a_text_too() {
    let policy = Policy::new("api", "100/min").unwrap();
    assert_eq!(policy.quota(), Quota::per_minute(100));
    let text = String::from("5/s");
    assert_eq!(Policy::new("api", &text).unwrap().quota(), Quota::per_second(5));
    assert_eq!(Policy::new("api", text).unwrap().quota(), Quota::per_second(5));
    assert_eq!(Policy::new("api", Quota::per_day(7)).unwrap().quota(), Quota::per_day(7));
    assert!(RateLimitLayer::per_ip(Limiter::in_memory(), "100/min").is_ok());

    let error = Policy::new("api", "100/minit").unwrap_err();
    assert!(
        error.kind() == ErrorKind::Invalid
            && error.to_string().contains("did you mean \"100/minute\"?"),
        "{error}"
    );
    let error = RateLimitLayer::per_ip(Limiter::in_memory(), "0/min").unwrap_err();
    assert!(error.to_string().starts_with("limit is 0, allowed is"), "{error}");
}

/// Each answer names the word that is wrong, and the nearest quota.
#[test]
fn a_wrong_word_is_named_with_the_nearest_right_text() {
    for (text, word, nearest) in [
        ("5/min token_bucket(5)", "token_bucket(5)", "5/min token-bucket(5)"),
        ("5/min TokenBucket(5)", "TokenBucket(5)", "5/min token-bucket(5)"),
        ("5/min slidinglog", "slidinglog", "5/min sliding-log"),
        ("5/mins", "mins", "5/min"),
        ("5/10Sec", "10Sec", "5/10sec"),
        ("5/minuet sliding-log", "minuet", "5/minute sliding-log"),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        let expected = format!("quota is {text:?}, in which {word:?} is not ");
        assert!(error.starts_with(&expected), "{error}");
        let expected = format!("(did you mean {nearest:?}?), allowed is LIMIT/WINDOW");
        assert!(error.contains(&expected), "{error}");
    }
    for (text, word) in [
        ("", ""),
        ("100", "100"),
        ("1k/min", "1k"),
        ("5 / min", "5"),
        ("1,000/h", "1,000"),
        ("5/min token-buckets(5", "token-buckets(5"),
        ("5/mins fixedwindow", "mins"),
        ("5/min lease(500ms)", "lease(500ms)"),
        ("5/min sliding-log leased(500)", "leased(500)"),
        ("-5/min", "-5"),
        ("0,000/min", "0,000"),
        ("5/fortnight", "fortnight"),
        ("5/min gcra", "gcra"),
        ("5/min sliding-log(5)", "sliding-log(5)"),
        ("5/min10", "min10"),
        ("1.5/s", "1.5"),
        ("1.000/s", "1.000"),
        ("1,5/s", "1,5"),
        ("10,00/s", "10,00"),
        ("1,000.5/s", "1,000.5"),
        ("5/h leased(1s) sliding-log", "sliding-log"),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.starts_with(&format!("quota is {text:?}, in which {word:?} is ")), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
    }
}

#[test]
fn the_parameter_that_is_missing_or_too_large_is_named() {
    for (text, why) in [
        (
            "5/min token-bucket",
            "\"token-bucket\" needs a number in parentheses that is in its range",
        ),
        (
            "5/min sliding-buckets(100000)",
            "\"sliding-buckets(100000)\" needs a number in parentheses",
        ),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn each_unit_has_its_long_names() {
    for (short, long) in
        [("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"), ("w", "week")]
    {
        let quota = |unit: &str| format!("5/{unit}").parse::<Quota>().expect(unit);
        assert_eq!((quota(long), quota(&format!("{long}s"))), (quota(short), quota(short)));
    }
}

/// A suggestion is a quota, another text, and never a number that was made up.
#[test]
fn each_suggestion_is_a_quota() {
    let word = select(vec![
        "5/min",
        "1.5/s",
        "1,000/h",
        "100",
        "5 / min",
        "1/wek",
        "5/10Sec",
        "60/minuts",
        "70/min TokenBucket(5)",
        "80/min slidinglog",
        "per",
        "/",
        "min",
        "fixed",
        "token_bucket(5)",
        "token-bucket",
        "sliding-buckets(100000)",
        "sliding-bucket(0)",
        "concurrent",
        "concurent",
        "lease(500)",
        "leased(9999999h)",
        "leased(500)",
        "expires(30)",
        "expire(1s)",
        "x",
    ]);
    let suggested = Cell::new(0);
    let cases = (vec(word, 1..3), "[a-z0-9(),./']{0,1}");
    property("suggested quotas", ProptestConfig::with_cases(3_000), cases, |(words, end)| {
        let text = words.join(" ") + &end;
        let Err(error) = text.parse::<Quota>() else { return Ok(()) };
        let error = error.to_string();
        let Some((_, rest)) = error.split_once("(did you mean \"") else { return Ok(()) };
        let nearest = rest.split_once("\"?), allowed is").expect("an end").0;
        prop_assert!(nearest != text && nearest.parse::<Quota>().is_ok(), "{}: {}", text, error);
        let digits = |text: &str| text.replace(|it: char| !it.is_ascii_digit(), "");
        prop_assert_eq!(digits(nearest), digits(&text), "{}", error);
        suggested.set(suggested.get() + 1);
        Ok(())
    });
    assert!(suggested.get() > 200, "{}", suggested.get());
}

/// `fn main() -> Result<(), Box<dyn Error>>` prints an error with `Debug`.
#[test]
fn an_error_of_main_is_a_sentence() {
    fn main() -> Result<(), Box<dyn StdError>> {
        Policy::new("My API", "100/min")?;
        Ok(())
    }
    let printed = format!("Error: {:?}", main().unwrap_err());
    let expected = "Error: policy name is \"My API\", allowed is 1 to 64 characters";
    assert!(printed.starts_with(expected) && !printed.contains(['{', '\n']), "{printed}");

    let refused = || io::Error::other("connection refused");
    let error = Error::new(ErrorKind::Unavailable, "the server is unreachable");
    assert_eq!(
        format!("{:?}", error.with_source(refused())),
        "the server is unreachable: connection refused"
    );
    let error = Error::new(ErrorKind::Unavailable, "no connection: connection refused");
    let error = error.with_source(refused());
    assert_eq!(format!("{error:?}"), "no connection: connection refused", "not twice");
}

/// Returns the newest library of this crate beside this test.
fn library(deps: &Path) -> PathBuf {
    let entries = fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path());
    let libraries = entries.filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("libplimsoll-") && name.ends_with(".rlib")
    });
    libraries.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
}

/// Compiles a function body, and returns the errors of the compiler.
fn compile(body: &str) -> String {
    let program = env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    let mut rustc = Command::new("rustc")
        .args(["--edition=2024", "--crate-name=first_day", "--crate-type=lib", "--emit=metadata"])
        .args(["--out-dir", env!("CARGO_TARGET_TMPDIR"), "-L"])
        .arg(format!("dependency={}", deps.display()))
        .arg("--extern")
        .arg(format!("plimsoll={}", library(deps).display()))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let source = format!(
        "use plimsoll::{{Key, Policy, Rule, by}};\n\
         pub fn rule(policy: Policy) -> Rule {{ {body} }}\n\
         pub async fn load(_: &str) -> Option<Key> {{ None }}\n"
    );
    rustc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    String::from_utf8(rustc.wait_with_output().unwrap().stderr).unwrap()
}

#[test]
fn an_asynchronous_extractor_is_answered_with_lookup() {
    let right = compile("Rule::new(policy, |parts| parts.headers.get(\"x-key\").map(Key::from))");
    assert!(!right.contains("error"), "{right}");
    for wrong in [
        "Rule::new(policy, async |_| load(\"key\").await)",
        "Rule::new(policy, |_| async { load(\"key\").await })",
        "Rule::new(policy, |_| load(\"key\"))",
        "Rule::tiered(move |_| policy.clone(), |_| async { Key::from(\"key\") })",
        "Rule::new(policy, by::extension(|_: &u8| async { Key::from(\"key\") }))",
        "Rule::new(policy, by::Or::or(by::peer_ip(), |_: &_| async { Key::from(\"key\") }))",
        "Rule::new(policy, async |parts| load(parts.uri.path()).await)",
        "Rule::new(policy, |parts| async move { load(parts.uri.path()).await })",
    ] {
        let answer = compile(wrong);
        assert!(answer.contains("plimsoll-lookup"), "{wrong}\n{answer}");
    }
}
