//! Changes of the files.

use std::{fs, path::Path, time::Duration};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit::{
    Minute, Second,
};
use plimsoll::Limiter;
use plimsoll_control::{Offenders, Registry, admin::Activity};
use plimsoll_server::envoy::{Envoy, EnvoyConfig};
use plimsoll_testing::servers::directory;

use crate::{
    metrics::{assert_has, measured_with},
    support::{Says, Service},
};

fn limit(requests: u32) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: minute, requests_per_unit: {requests} }}\n"
    )
}

async fn until_limit_is(service: &Service, key: &str, expected: u32) {
    for _ in 0..400 {
        if let Says::Ok(limit, ..) | Says::Over(limit, _) = service.says("shop", key).await
            && limit == expected
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the limit never became {expected}");
}

#[tokio::test]
async fn a_changed_folder_is_in_force_within_a_second_and_keeps_what_was_spent() {
    let folder = directory();
    fs::write(folder.join("a.yaml"), limit(10)).unwrap();
    let service = Service::of(EnvoyConfig::load([&folder]).unwrap());
    let watch = service.envoy.watch();
    for left in [9, 8, 7] {
        assert_eq!(service.says("shop", "user=a").await, Says::Ok(10, Minute, left));
    }
    fs::write(folder.join("a.yaml"), limit(5)).unwrap();
    until_limit_is(&service, "user=b", 5).await;
    assert_eq!(service.says("shop", "user=a").await, Says::Ok(5, Minute, 1));
    // A mistake changes nothing.
    fs::write(folder.join("a.yaml"), "domain: shop\ndescriptors:\n  - kye: user\n").unwrap();
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(service.says("shop", "user=a").await, Says::Ok(5, Minute, 0));
    let error = service.envoy.reload().unwrap_err();
    assert!(error.to_string().contains("did you mean `key`?"), "{error}");
    // A new file, and one that goes.
    fs::write(folder.join("b.yaml"), limit(7)).unwrap();
    fs::remove_file(folder.join("a.yaml")).unwrap();
    until_limit_is(&service, "user=b", 7).await;
    // The watch ends with its owner.
    drop(watch);
    tokio::time::sleep(Duration::from_millis(300)).await;
    fs::write(folder.join("b.yaml"), limit(8)).unwrap();
    tokio::time::sleep(Duration::from_millis(900)).await;
    until_limit_is(&service, "user=b", 7).await;
    assert!(service.envoy.reload().unwrap());
    assert!(!service.envoy.reload().unwrap());
    until_limit_is(&service, "user=b", 8).await;
    fs::remove_dir_all(folder).unwrap();
}

const RELOAD: &str = "
domain: reload
descriptors:
  - key: key1
    rate_limit: { unit: second, requests_per_unit: 50 }
  - key: block
    rate_limit: { unit: second, requests_per_unit: 0 }
";

#[test]
fn a_new_file_has_a_new_domain_until_it_is_removed() {
    let folder = directory();
    fs::write(folder.join("basic.yaml"), limit(10)).unwrap();
    let service = || Service::of(EnvoyConfig::load([&folder]).unwrap());
    let text = measured_with(service, async |service| {
        let _watch = service.envoy.watch();
        let until = async |expected: Says| {
            for _ in 0..400 {
                if service.says("reload", "block=foo").await == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            panic!("the limit never became {expected:?}");
        };
        until(Says::Free).await;
        fs::write(folder.join("reload.yaml"), RELOAD).unwrap();
        until(Says::Over(0, Second)).await;
        assert_eq!(service.says("reload", "key1=foo").await, Says::Ok(50, Second, 49));
        fs::remove_file(folder.join("reload.yaml")).unwrap();
        until(Says::Free).await;
        assert_eq!(service.says("shop", "user=a").await, Says::Ok(10, Minute, 9));
    });
    assert_has(&text, "ratelimit_service_config_load_success 3");
    assert_has(&text, "ratelimit_service_config_load_error 0");
    fs::remove_dir_all(folder).unwrap();
}

/// A ConfigMap is a link to a link to a folder, and a new version swaps the inner link.
#[cfg(unix)]
#[tokio::test]
async fn a_link_that_is_swapped_is_followed() {
    let folder = directory();
    let version = |name: &str, requests| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("limits.yaml"), limit(requests)).unwrap();
    };
    let link = |from: &Path, to: &str| std::os::unix::fs::symlink(to, from).unwrap();
    version("..1", 10);
    version("..2", 20);
    link(&folder.join("..data"), "..1");
    link(&folder.join("limits.yaml"), "..data/limits.yaml");
    let service = Service::of(EnvoyConfig::load([&folder]).unwrap());
    let _watch = service.envoy.watch();
    until_limit_is(&service, "user=a", 10).await;
    link(&folder.join("..new"), "..2");
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    until_limit_is(&service, "user=a", 20).await;
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn operators_see_the_limits_in_force() {
    let folder = directory();
    fs::write(folder.join("a.yaml"), limit(10)).unwrap();
    let registry = Registry::default();
    let config = EnvoyConfig::load([&folder]).unwrap();
    let activity = Activity::new(Offenders::new(10));
    let envoy =
        Envoy::new_registered(config, Limiter::in_memory(), registry.clone(), activity).unwrap();
    let quotas = || {
        let policies = registry.policies();
        policies.iter().map(|it| it.policy().quota().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(quotas(), ["10/min sliding-buckets(30)"]);
    let policy = registry.policies()[0].policy().clone();
    fs::write(folder.join("a.yaml"), limit(5)).unwrap();
    fs::write(folder.join("b.yaml"), limit(7).replace("shop", "other")).unwrap();
    assert!(envoy.reload().unwrap());
    // A limit that stays keeps its policy.
    assert_eq!(policy.quota().limit(), 5);
    assert_eq!(quotas().len(), 2);
    fs::remove_file(folder.join("a.yaml")).unwrap();
    assert!(envoy.reload().unwrap());
    assert_eq!(quotas(), ["7/min sliding-buckets(30)"]);
    fs::remove_dir_all(folder).unwrap();
}
