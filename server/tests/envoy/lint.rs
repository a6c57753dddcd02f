//! The differences that `lint` finds.

use plimsoll::Algorithm;
use plimsoll_server::envoy::{Decide, EnvoyConfig, EnvoyOptions, Finding, lint};

const LIMITS: &str = "domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 100 }
  - key: banned
    rate_limit: { unit: minute }
  - key: vip
    detailed_metric: true
    shadow_mode: true
    quota_mode: true
    rate_limit: { replaces: [{ name: nobody }], quota: 5/s token-bucket(2) }
  - key: open
    rate_limit: { unlimited: true }
  - key: pool
    rate_limit: { unit: hour, requests_per_unit: 100 }
    metadata: { pool: a }
";

fn findings(options: EnvoyOptions) -> Vec<Finding> {
    lint(&EnvoyConfig::from_text("limits.yaml", LIMITS, options).unwrap())
}

#[test]
fn each_limit_has_its_findings_with_their_places_and_reasons() {
    let findings = findings(EnvoyOptions::default());
    let of = |rule: &str| {
        findings
            .iter()
            .filter(|it| it.limits[0].ends_with(&format!(": {rule}")))
            .collect::<Vec<_>>()
    };
    let user = of("shop.user");
    assert_eq!((user.len(), &*user[0].limits[0]), (3, "limits.yaml:3: shop.user"));
    assert!(user[0].change.starts_with("at most 100 in any minute"), "{}", user[0]);
    assert!(user[0].reason.contains("admits up to 200"), "{}", user[0]);
    let banned = of("shop.banned");
    assert!(banned.len() == 1 && banned[0].reason.contains("a ban"), "{banned:?}");
    let vip = of("shop.vip");
    let has = |text: &str| vip.iter().any(|it| it.change.contains(text));
    assert!(has("no limit has this name") && has("counted by token-bucket(2)"));
    assert!(has("no effect beside `shadow_mode`"));
    // A text of a quota has its algorithm, which no switch changes.
    let algorithm = |findings: &[&Finding]| {
        let finding = findings.iter().find(|it| it.reason.contains("a fixed window admits"));
        finding.unwrap().reason.rsplit("; ").next().unwrap().to_owned()
    };
    assert_eq!(algorithm(&user), "the switch is `algorithm`");
    assert_eq!(algorithm(&vip), "its `quota` has the algorithm");
    assert!(of("shop.pool").iter().any(|it| it.change.contains("dynamic metadata")));
    assert!(of("shop.open").is_empty());
    assert!(findings[0].to_string().contains("--> limits.yaml:3: shop.user"), "{}", findings[0]);
    // Findings are about differences in behavior, so the switches take them away.
    let as_theirs = EnvoyOptions {
        decide: Decide::Each,
        algorithm: Algorithm::FixedWindow,
        ..EnvoyOptions::default()
    };
    let user = self::findings(as_theirs);
    assert_eq!(user.iter().filter(|it| it.limits[0].ends_with(": shop.user")).count(), 1);
    let options = EnvoyOptions { dynamic_metadata: true, ..EnvoyOptions::default() };
    let findings = self::findings(options);
    assert!(!findings.iter().any(|it| it.change.contains("dynamic metadata")));
}

#[test]
fn equal_findings_are_one() {
    let limits = |domain: &str, count: usize| {
        let limit = "rate_limit: { unit: minute, requests_per_unit: 5 }";
        let rules = (0..count).map(|number| format!("  - key: k{number}\n    {limit}\n"));
        format!("domain: {domain}\ndescriptors:\n{}", rules.collect::<String>())
    };
    let [one, other] = [limits("one", 9), limits("other", 2)];
    let texts = [("one.yaml", &*one), ("other.yaml", &*other)];
    let findings = lint(&EnvoyConfig::from_texts(texts, EnvoyOptions::default()).unwrap());
    // The algorithm, another limit that denies, and hits that are denied.
    assert_eq!(findings.len(), 3, "{findings:?}");
    let limits = &findings[0].limits;
    assert_eq!((limits.len(), &*limits[0]), (11, "one.yaml:3: one.k0"));
    assert_eq!((&*limits[1], &*limits[10]), ("one.yaml:5: one.k1", "other.yaml:5: other.k1"));
    let shown = findings[0].to_string();
    assert!(shown.contains("\n  --> one.yaml:5: one.k1\n  --> one.yaml:7: one.k2"), "{shown}");
    assert!(shown.contains("\n  --> and 5 more\n   = reason: "), "{shown}");
}
