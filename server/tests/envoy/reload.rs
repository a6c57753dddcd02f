//! Changes of the files.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit::{
    Minute, Second,
};
use plimsoll::Limiter;
use plimsoll_control::{Offenders, Registry};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::{log::Log, servers::directory};

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
    let service = Service::of(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap());
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

/// The limits of two domains, in a folder of their own.
fn two_domains() -> PathBuf {
    let folder = directory().join("limits");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("shop.yaml"), limit(1)).unwrap();
    fs::write(folder.join("other.yaml"), limit(1).replace("shop", "other")).unwrap();
    folder
}

fn kept(service: &Service) -> Vec<String> {
    service.envoy.config().kept_domains().map(str::to_owned).collect()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.into()).collect()
}

/// Ways in which files lose domains, and the domains that no file has then.
type Loss = (fn(&Path), &'static [&'static str]);

#[test]
fn a_domain_that_no_file_has_any_more_stays_in_force_and_is_reported_once() {
    let losses: [Loss; 8] = [
        (|folder| fs::remove_file(folder.join("shop.yaml")).unwrap(), &["shop"]),
        (
            |folder| fs::rename(folder.join("shop.yaml"), folder.join(".shop.yaml")).unwrap(),
            &["shop"],
        ),
        (
            |folder| {
                fs::create_dir(folder.join(".old")).unwrap();
                fs::rename(folder.join("shop.yaml"), folder.join(".old/shop.yaml")).unwrap();
            },
            &["shop"],
        ),
        (
            |folder| {
                let renamed = limit(1).replace("shop", "stores");
                fs::write(folder.join("shop.yaml"), renamed).unwrap();
            },
            &["shop"],
        ),
        // A file that is half written.
        (
            |folder| fs::write(folder.join("shop.yaml"), "domain: shop\ndescriptors:\n").unwrap(),
            &["shop"],
        ),
        (|folder| fs::rename(folder, folder.with_extension("old")).unwrap(), &["other", "shop"]),
        (
            |folder| {
                fs::remove_dir_all(folder).unwrap();
                fs::create_dir(folder).unwrap();
            },
            &["other", "shop"],
        ),
        // A file that replaces the folder.
        (
            |folder| {
                fs::remove_dir_all(folder).unwrap();
                fs::write(folder, limit(1)).unwrap();
            },
            &["other"],
        ),
    ];
    for (number, (lose, expected)) in losses.into_iter().enumerate() {
        let folder = two_domains();
        let log = Log::default();
        let load = || Service::of(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap());
        let text = measured_with(load, async |service| {
            for domain in ["shop", "other"] {
                assert_eq!(service.says(domain, "user=a").await, Says::Ok(1, Minute, 0));
            }
            lose(&folder);
            // The second reload has nothing to report.
            let reload = || [(); 2].map(|()| service.envoy.reload().unwrap());
            let changed = tracing::subscriber::with_default(log.clone(), reload);
            assert_eq!((changed, kept(service)), ([true, false], owned(expected)), "{number}");
            for domain in ["shop", "other"] {
                assert_eq!(service.says(domain, "user=a").await, Says::Over(1, Minute));
            }
        });
        assert_has(&text, &format!("plimsoll_server_envoy_kept_domains {}", expected.len()));
        let events = log.take();
        let warnings: Vec<_> = events.iter().filter(|event| event.starts_with("WARN")).collect();
        assert_eq!(warnings.len(), 1, "{number}: {events:?}");
        assert!(warnings[0].contains(&expected.join(", ")), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_kept_domain_ends_as_its_file_says_when_it_is_back() {
    let folder = two_domains();
    let shop = folder.join("shop.yaml");
    let service = Service::of(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap());
    service.says("shop", "user=a").await;
    fs::remove_file(&shop).unwrap();
    // The other changes of the same reload act.
    fs::write(folder.join("other.yaml"), limit(5).replace("shop", "other")).unwrap();
    fs::write(folder.join("new.yaml"), limit(6).replace("shop", "new")).unwrap();
    assert!(service.envoy.reload().unwrap());
    assert_eq!(kept(&service), ["shop"]);
    assert_eq!(service.says("other", "user=a").await, Says::Ok(5, Minute, 4));
    assert_eq!(service.says("new", "user=a").await, Says::Ok(6, Minute, 5));
    assert_eq!(service.says("shop", "user=a").await, Says::Over(1, Minute));
    // The limit is kept over further changes. When a file has the domain again, its limit applies, and spent units
    // stay spent.
    fs::write(folder.join("new.yaml"), limit(7).replace("shop", "new")).unwrap();
    assert!(service.envoy.reload().unwrap());
    assert_eq!(kept(&service), ["shop"]);
    fs::write(&shop, limit(3)).unwrap();
    assert!(service.envoy.reload().unwrap());
    assert_eq!(kept(&service), [] as [&str; 0]);
    assert_eq!(service.says("shop", "user=a").await, Says::Ok(3, Minute, 1));
    // An empty list of descriptors is empty on purpose.
    fs::write(&shop, "domain: shop\ndescriptors: []\n").unwrap();
    assert!(service.envoy.reload().unwrap());
    assert_eq!((service.says("shop", "user=a").await, kept(&service).len()), (Says::Free, 0));
}

#[tokio::test]
async fn files_remove_domains_if_the_options_say_so() {
    let folder = two_domains();
    let options = EnvoyOptions { remove_domains: true, ..EnvoyOptions::default() };
    let service = Service::of(EnvoyConfig::load([&folder], options).unwrap());
    fs::remove_file(folder.join("shop.yaml")).unwrap();
    assert!(service.envoy.reload().unwrap());
    assert_eq!(service.says("shop", "user=a").await, Says::Free);
    assert_eq!(kept(&service), [] as [&str; 0]);
    // A folder without a file is a mistake, as it is at the start.
    fs::remove_file(folder.join("other.yaml")).unwrap();
    let error = service.envoy.reload().unwrap_err().to_string();
    assert!(error.contains("the folder has no file with limits"), "{error}");
    fs::remove_dir(&folder).unwrap();
    let error = service.envoy.reload().unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    assert_eq!(service.says("other", "user=a").await, Says::Ok(1, Minute, 0));
}

#[test]
fn a_domain_is_kept_under_the_quota_of_its_file_and_not_of_an_override() {
    let folder = two_domains();
    let registry = Registry::default();
    let config = EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap();
    let offenders = Offenders::new(10);
    let envoy = Envoy::new(config, Limiter::in_memory(), registry.clone(), offenders).unwrap();
    let find = |domain: &str| {
        let policies = registry.policies();
        let mut of_domain = policies.iter().filter(|it| it.policy().name().contains(domain));
        of_domain.next().cloned()
    };
    let shop = find("envoy.shop").unwrap();
    shop.policy().set_quota("50/min".parse().unwrap()); // as an override does
    fs::remove_file(folder.join("shop.yaml")).unwrap();
    assert!(envoy.reload().unwrap());
    // Operators still see it, and can override it.
    let kept = find("envoy.shop").unwrap();
    assert!(kept.policy().is_clone_of(shop.policy()));
    assert_eq!(kept.configured().0.to_string(), "1/min sliding-buckets(30)");
}

#[test]
fn a_new_file_has_a_new_domain_until_it_is_removed() {
    let folder = directory();
    fs::write(folder.join("basic.yaml"), limit(10)).unwrap();
    let options = EnvoyOptions { remove_domains: true, ..EnvoyOptions::default() };
    let service = || Service::of(EnvoyConfig::load([&folder], options).unwrap());
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
    let service = Service::of(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap());
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
    let config = EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap();
    let offenders = Offenders::new(10);
    let envoy = Envoy::new(config, Limiter::in_memory(), registry.clone(), offenders).unwrap();
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
    fs::write(folder.join("a.yaml"), "domain: shop\ndescriptors: []\n").unwrap();
    assert!(envoy.reload().unwrap());
    assert_eq!(quotas(), ["7/min sliding-buckets(30)"]);
    fs::remove_dir_all(folder).unwrap();
}
