//! Cases of the published tests of envoyproxy/ratelimit, and the table that names the test of each of them.

use std::{fs, path::Path};

use Says::{Free, Ok, Over};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, rate_limit::Unit::Hour,
};
use plimsoll_server::envoy::EnvoyOptions;

use crate::{
    metrics::{assert_has, measured},
    support::{Says, Service, descriptor},
};

/// The page about the published tests.
const PAGE: &str = include_str!("../../docs/published-tests.md");

#[test]
fn each_published_case_has_a_test_that_exists_or_a_reason() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| case |"));
    let mut count = 0;
    for row in rows {
        let (_, here) = row.trim_end_matches(" |").rsplit_once(" | ").expect("two columns");
        count += 1;
        if let Some(reason) = here.strip_prefix("differs on purpose: ") {
            assert!(reason.len() > 10, "{row}");
            continue;
        }
        let (file, test) = here.trim_matches('`').split_once("::").expect("a file and a test");
        let file = match file.strip_prefix("src/") {
            Some(file) => package.join(format!("src/{file}.rs")),
            None => package.join(format!("tests/{file}.rs")),
        };
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{row}: {error}"));
        let lines: Vec<_> = text.lines().map(str::trim_start).collect();
        let is_test = |pair: &[&str]| {
            pair[0].contains("test")
                && pair[0].starts_with("#[")
                && pair[1].contains(&format!("fn {test}("))
        };
        assert!(lines.windows(2).any(is_test), "{row}");
    }
    assert!(count > 60, "{count}");
}

/// A limit of 9 an hour for the last of some descriptors. Each is a key, or a key and a value, with fields behind
/// a comma.
fn limit_of(path: &[&str]) -> String {
    let mut text = String::from("domain: shop\ndescriptors:\n");
    for (depth, level) in path.iter().enumerate() {
        let indent = "  ".repeat(2 * depth + 1);
        let mut fields = level.split(',');
        let name = fields.next().expect("a name");
        let (key, value) =
            name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value)));
        text.push_str(&format!("{indent}- key: {key}\n"));
        value.iter().for_each(|value| text.push_str(&format!("{indent}  value: \"{value}\"\n")));
        fields.for_each(|field| text.push_str(&format!("{indent}  {field}: true\n")));
        if depth + 1 == path.len() {
            text.push_str(&format!(
                "{indent}  rate_limit: {{ unit: hour, requests_per_unit: 9 }}\n"
            ));
        } else {
            text.push_str(&format!("{indent}  descriptors:\n"));
        }
    }
    text
}

#[test]
fn each_limit_has_its_name_in_metrics() {
    for (path, descriptor, names) in [
        (&["a"][..], "a=1", "a"),
        (&["a", "b"], "a=1 b=2", "a b"),
        // Statsd separates the parts of a name by these signs.
        (&["a:b|c"], "a:b|c=1", "a_b_c"),
        (&["a=1", "b=2"], "a=1 b=2", "a_1 b_2"),
        // `detailed_metric` and `value_to_metric` show no value of a request.
        (&["a,detailed_metric", "b"], "a=1 b=2", "a b"),
        (&["a", "b,value_to_metric", "c"], "a=1 b=2 c=3", "a b"),
        // A pattern, at the end and in the middle.
        (&["a=x*"], "a=x1", "a_x*"),
        (&["a=x*,share_threshold"], "a=x1", "a_x*"),
        (&["a=x*z*"], "a=x1z2", "a_x*z*"),
        (&["a=1", "b=y/*,share_threshold"], "a=1 b=y/2", "a_1 b_y/*"),
        (&["a=x/*,share_threshold", "a=y/*,share_threshold"], "a=x/1 a=y/2", "a_x/* a_y/*"),
        (&["a=x/*,share_threshold", "b=y/*", "c"], "a=x/1 b=y/2 c=3", "a_x/* b_y/*"),
        (&["a=t*p,share_threshold", "b=r*2,share_threshold"], "a=t1p b=rA2", "a_t*p b_r*2"),
    ] {
        let limits = limit_of(path);
        let text = measured(&limits, async |service| {
            assert_eq!(service.says("shop", descriptor).await, Ok(9, Hour, 8), "{limits}");
        });
        let labels =
            names.split(' ').zip(1..).map(|(name, number)| format!("key{number}=\"{name}\""));
        let labels = labels.collect::<Vec<_>>().join(",");
        assert_has(
            &text,
            &format!("ratelimit_service_rate_limit_total_hits{{domain=\"shop\",{labels}}} 1"),
        );
    }
}

#[tokio::test]
async fn patterns_with_stars_in_the_middle_share_one_budget() {
    let service = Service::new(&limit_of(&["path=/api*v1,share_threshold"]));
    for (value, left) in [("/api/v1", 8), ("/api-beta-v1", 7), ("/apiv1", 6)] {
        assert_eq!(service.says("shop", &format!("path={value}")).await, Ok(9, Hour, left));
    }
    assert_eq!(service.says("shop", "path=/api/v2").await, Free);
    let service = Service::new(&limit_of(&["route=svc*ep*rpc,share_threshold"]));
    for (value, left) in [("svcAepBrpc", 8), ("svcXXXepYYYrpc", 7), ("svceprpc", 6)] {
        assert_eq!(service.says("shop", &format!("route={value}")).await, Ok(9, Hour, left));
    }
    assert_eq!(service.says("shop", "route=svcABCrpc").await, Free);
    let nested = ["tenant=t*prod,share_threshold", "resource=res*v2,share_threshold"];
    let service = Service::new(&limit_of(&nested));
    assert_eq!(service.says("shop", "tenant=t1prod resource=resAv2").await, Ok(9, Hour, 8));
    assert_eq!(service.says("shop", "tenant=t99prod resource=resBBv2").await, Ok(9, Hour, 7));
}

const MODES: &str = "
domain: shop
descriptors:
  - key: plain
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: large
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: other
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
    descriptors:
      - key: deep
        rate_limit: { unit: hour, requests_per_unit: 1 }
      - key: deep
        value: shadow
        shadow_mode: true
        rate_limit: { unit: hour, requests_per_unit: 1 }
";

#[tokio::test]
async fn shadows_are_found_at_each_level() {
    let service = Service::new(MODES);
    for (descriptor, second) in [
        ("shadow=a", Ok(1, Hour, 0)),
        // A shadow is one of its own level alone.
        ("shadow=a deep=x", Over(1, Hour)),
        ("shadow=a deep=shadow", Ok(1, Hour, 0)),
        ("plain=a", Over(1, Hour)),
    ] {
        assert_eq!(service.says("shop", descriptor).await, Ok(1, Hour, 0), "{descriptor}");
        assert_eq!(service.says("shop", descriptor).await, second, "{descriptor}");
    }
}

/// Uses up some limits, and then asks for a decision on descriptors.
async fn after(options: EnvoyOptions, used: &[&str], asked: &[&str]) -> (Code, Vec<bool>) {
    let service = Service::with(MODES, options);
    for used in used {
        service.decide("shop", &[used]).await;
    }
    let (code, says) = service.answer("shop", asked.iter().map(|it| descriptor(it))).await;
    (code, says.into_iter().map(|it| matches!(it, Over(..))).collect())
}

#[tokio::test]
async fn modes_are_mixed_in_one_request() {
    for (used, asked, code, over) in [
        // One shadow of two limits is used up; then the plain one is.
        (&["shadow=a"][..], ["shadow=a", "plain=a"], Code::Ok, [false, false]),
        (&["shadow=a", "plain=a"], ["shadow=a", "plain=a"], Code::OverLimit, [false, true]),
        // A limit in quota mode beside a plain one. If all quotas are used up, the request is denied.
        (&["quota=a"], ["large=a", "quota=a"], Code::OverLimit, [false, true]),
        (&["plain=a"], ["plain=a", "quota=a"], Code::OverLimit, [true, false]),
        (&["plain=a", "quota=a"], ["plain=a", "quota=a"], Code::OverLimit, [true, true]),
        (&[], ["plain=a", "quota=a"], Code::Ok, [false, false]),
        // Two in quota mode: one that is left admits the request.
        (&["quota=a", "other=a"], ["quota=a", "other=a"], Code::OverLimit, [true, true]),
        (&["quota=a"], ["quota=a", "other=a"], Code::Ok, [true, false]),
    ] {
        let decided = after(EnvoyOptions::default(), used, &asked).await;
        assert_eq!(decided, (code, over.to_vec()), "{used:?} {asked:?}");
    }
}

#[tokio::test]
async fn a_service_that_is_a_shadow_admits_all_modes() {
    let used = ["plain=a", "quota=a", "other=a"];
    for asked in [["plain=a", "quota=a"], ["quota=a", "other=a"], ["plain=a", "large=a"]] {
        let (code, over) = after(EnvoyOptions::default(), &used, &asked).await;
        assert_eq!(code, Code::OverLimit, "{asked:?}");
        let shadow =
            after(EnvoyOptions { shadow_mode: true, ..EnvoyOptions::default() }, &used, &asked)
                .await;
        // The statuses still say what each limit decides.
        assert_eq!(shadow, (Code::Ok, over), "{asked:?}");
    }
}
