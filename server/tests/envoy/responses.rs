//! The headers, waits and dynamic metadata of responses.

use std::{collections::BTreeMap, time::Duration};

use envoy_types::pb::{
    envoy::service::ratelimit::v3::RateLimitResponse,
    google::protobuf::{Value, value::Kind},
};
use plimsoll_server::envoy::{Decide, EnvoyOptions};

use crate::support::{Service, descriptor, request};

const LIMITS: &str = r#"
domain: shop
descriptors:
  - key: user
    rate_limit: { quota: 2/min sliding-log }
  - key: tenant
    rate_limit: { name: "per \"tenant\"", quota: 5/h sliding-log }
  - key: shadow
    rate_limit: { unit: hour, requests_per_unit: 1 }
    shadow_mode: true
  - key: banned
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: pool
    value: a
    rate_limit: { unit: minute, requests_per_unit: 1 }
    metadata: { route: { name: a, weight: 1 }, first: a, list: [1, x, true, null] }
  - key: pool
    value: b
    rate_limit: { unit: minute, requests_per_unit: 1 }
    metadata: { route: { name: b, zone: z }, first: b }
"#;

async fn ask(service: &Service, descriptors: &[&str]) -> RateLimitResponse {
    let descriptors = descriptors.iter().map(|it| descriptor(it));
    service.ask(request("shop", descriptors)).await.unwrap()
}

fn headers(response: &RateLimitResponse) -> BTreeMap<&str, &str> {
    response.response_headers_to_add.iter().map(|it| (&*it.key, &*it.value)).collect()
}

fn resets(response: &RateLimitResponse) -> Vec<Option<i64>> {
    let reset = |reset: envoy_types::pb::google::protobuf::Duration| reset.seconds;
    response.statuses.iter().map(|status| status.duration_until_reset.map(reset)).collect()
}

#[tokio::test]
async fn headers_name_each_limit_and_denials_say_when_to_come_back() {
    let headers_on = EnvoyOptions { ratelimit_headers: true, ..EnvoyOptions::default() };
    let service = Service::with(LIMITS, headers_on);
    let response = ask(&service, &["user=a", "tenant=t", "shadow=x", "unknown=y"]).await;
    let expected = [
        ("ratelimit-policy", r#""user";q=2;w=60, "per _tenant_";q=5;w=3600"#),
        ("ratelimit", r#""user";r=1;t=60, "per _tenant_";r=4;t=3600"#),
    ];
    assert_eq!(headers(&response), expected.into());
    assert_eq!(resets(&response), [Some(60), Some(3600), Some(3640), None]);
    service.clock.advance(Duration::from_millis(10_500));
    ask(&service, &["user=a", "tenant=t"]).await;
    let response = ask(&service, &["user=a", "tenant=t"]).await;
    let expected = [
        ("ratelimit-policy", r#""user";q=2;w=60, "per _tenant_";q=5;w=3600"#),
        ("ratelimit", r#""user";r=0;t=49, "per _tenant_";r=3;t=50"#),
        ("retry-after", "50"),
    ];
    assert_eq!(headers(&response), expected.into());
    assert_eq!(resets(&response)[0], Some(50));
    // The wait is right.
    service.clock.advance(Duration::from_secs(50));
    assert!(!headers(&ask(&service, &["user=a"]).await).contains_key("retry-after"));
    let response = ask(&service, &["banned=x"]).await;
    assert_eq!((headers(&response), resets(&response)), ([].into(), vec![Some(86_400)]));
    assert!(headers(&ask(&service, &["unknown=x"]).await).is_empty());
}

#[tokio::test]
async fn by_default_no_header_reaches_a_client() {
    for service in [
        Service::new(LIMITS),
        Service::with(LIMITS, EnvoyOptions { decide: Decide::Each, ..EnvoyOptions::default() }),
    ] {
        for _ in 0..3 {
            let response = ask(&service, &["user=a", "tenant=t", "banned=x"]).await;
            assert_eq!(headers(&response), [].into());
            // Envoy sends these as they are.
            assert!(response.request_headers_to_add.is_empty() && response.raw_body.is_empty());
            assert!(response.dynamic_metadata.is_none());
        }
    }
}

fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Kind> {
    path.iter().try_fold(value.kind.as_ref(), |kind, name| match kind {
        Some(Kind::StructValue(fields)) => Some(fields.fields.get(*name)?.kind.as_ref()),
        _ => None,
    })?
}

#[tokio::test]
async fn the_limits_that_pass_show_their_metadata() {
    let service = Service::new(LIMITS);
    let metadata = async |descriptors: &[&str]| {
        let metadata = ask(&service, descriptors).await.dynamic_metadata;
        metadata.map(|fields| Value { kind: Some(Kind::StructValue(fields)) })
    };
    let text = |text: &str| Some(Kind::StringValue(text.into()));
    assert!(metadata(&["user=a"]).await.is_none());
    // The first one is taken, and tables are merged.
    let both = metadata(&["pool=a", "pool=b"]).await.unwrap();
    assert_eq!(at(&both, &["domain"]).cloned(), text("shop"));
    assert_eq!(at(&both, &["metadata", "first"]).cloned(), text("a"));
    assert_eq!(at(&both, &["metadata", "route", "name"]).cloned(), text("a"));
    assert_eq!(at(&both, &["metadata", "route", "zone"]).cloned(), text("z"));
    assert_eq!(at(&both, &["metadata", "route", "weight"]), Some(&Kind::NumberValue(1.0)));
    // A limit that does not pass shows nothing.
    assert!(metadata(&["pool=a"]).await.is_none());
    let service =
        Service::with(LIMITS, EnvoyOptions { dynamic_metadata: true, ..EnvoyOptions::default() });
    let response = ask(&service, &["user=a"]).await;
    let fields = response.dynamic_metadata.unwrap().fields;
    let Some(Kind::ListValue(list)) = &fields["descriptors"].kind else { panic!("{fields:?}") };
    let Some(Kind::StructValue(first)) = &list.values[0].kind else { panic!("{list:?}") };
    let Some(Kind::ListValue(entries)) = &first.fields["entries"].kind else { panic!("{first:?}") };
    assert_eq!(entries.values[0].kind, text("user=a"));
}
