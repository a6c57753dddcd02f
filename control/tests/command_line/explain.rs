//! `explain`: which rules apply to a request, and why the others do not.

use std::net::{IpAddr, SocketAddr};

use http::Request;
use plimsoll_control::Claims;
use tower::{Layer, Service as _, ServiceExt, service_fn};

use super::*;

const RULES: &str = r#"
exempt = ["/health"]
exempt_preflights = true

[policies]
free = "20/min"
gold = "1000/min token-bucket(200)"
search = "5/10s sliding-counter"
search-10 = "10/10s"
logins = "5/min"
users = "7/min"
audit = "100/h"

[[rules]]
policy = "free"
tier = { claim = "plan" }
tiers = { gold = "gold" }
key = { first_of = [{ header = "x-api-key" }, "peer_ip"] }
costs = { "POST /orders" = 10, DELETE = 3 }

[[rules]]
policy = "search"
key = "client_ip"
only = ["GET /api/search"]
trials = ["search-10"]

[[rules]]
policy = "logins"
key = { name_in_header = "x-account" }
only = ["POST /login"]
on_failure = "deny"

[[rules]]
policy = "users"
key = { path_param = "id" }
only = ["/users/{id}"]

[[rules]]
policy = "audit"
key = { header = "x-audit" }
shadow = true
"#;

/// Returns what `explain` says about a request, as JSON.
fn explained(file: &str, arguments: &[&str]) -> Value {
    let arguments = [&["explain", "--json", "--file", file], arguments].concat();
    let output = plimsoll(&arguments).output().expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the policy, the key, the cost and the kind of each charge.
fn charges(explained: &Value) -> Vec<(String, String, u64, String)> {
    let rules = explained["rules"].as_array().expect("rules").iter();
    let charges = rules.flat_map(|rule| rule["charges"].as_array().expect("charges"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let charges = charges.map(|it| {
        let cost = it["cost"].as_u64().expect("a number");
        (text(&it["policy"]), text(&it["key"]), cost, text(&it["kind"]))
    });
    charges.collect()
}

/// Writes the rules to a file in a new folder.
fn file() -> (PathBuf, String) {
    let folder = directory();
    let file = folder.join("limits.toml");
    fs::write(&file, RULES).expect("written");
    (folder, file.display().to_string())
}

#[test]
fn each_rule_says_why_it_applies_or_not() {
    let (folder, file) = file();
    let search = ["GET", "/api/search?q=1", "-H", "x-api-key: secret-7", "--from", "203.0.113.9"];
    let answer = explained(&file, &search);
    let applies: Vec<_> =
        answer["rules"].as_array().expect("rules").iter().map(|it| it["applies"] == true).collect();
    assert_eq!(applies, [true, true, false, false, true]);
    let notes = |number: usize| answer["rules"][number]["notes"].to_string();
    assert!(
        notes(0).contains("no claim(plan)") && notes(0).contains("the key is header(x-api-key)")
    );
    assert!(notes(2).contains("it applies only to POST /login"), "{answer}");
    assert!(notes(3).contains("only to /users/{id}") && notes(4).contains("no header(x-audit)"));
    let of_search = &answer["rules"][1]["charges"][0];
    assert_eq!(
        (&of_search["quota"], &of_search["algorithm"]),
        (&"5/10s sliding-counter".into(), &"sliding-counter".into())
    );
    let trial = &answer["rules"][1]["charges"][1];
    assert_eq!((&trial["policy"], &trial["kind"]), (&"search-10".into(), &"trial".into()));
    // Keys are digests unless they are asked for.
    assert!(!answer.to_string().contains("secret-7"), "{answer}");
    let shown = explained(&file, &[&search[..], &["--show-keys"]].concat());
    assert_eq!(shown["rules"][0]["charges"][0]["key"], "secret-7");
    assert_eq!(shown["rules"][1]["charges"][0]["key"], "203.0.113.9");

    let output = plimsoll(&[&["explain", "--file", &file], &search[..]].concat()).output();
    let text = String::from_utf8(output.expect("started").stdout).expect("UTF-8");
    for line in [
        "GET /api/search?q=1\n",
        "\nrule 2: search by client_ip, only GET /api/search, trials search-10\n  applies\n",
        "\n  search-10: 10/10s (sliding-log), 1 unit of the key #",
        "; trial: it denies no request\n",
        "\nrule 3: logins by name_in_header(x-account), only POST /login, on failure deny\n  does not apply: it applies",
    ] {
        assert!(text.contains(line), "{line:?}\n{text}");
    }
    assert!(!text.contains("secret-7"), "{text}");
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn tiers_costs_parameters_and_exemptions() {
    let (folder, file) = file();
    let from = ["--from", "203.0.113.9"];
    let of = |arguments: &[&str]| explained(&file, &[arguments, &from, &["--show-keys"]].concat());
    let order = of(&["POST", "/orders", "--claim", "plan=gold"]);
    assert_eq!(charges(&order)[0], ("gold".into(), "203.0.113.9".into(), 10, "live".into()));
    let other = of(&["DELETE", "/orders", "--claim", "plan=bronze"]);
    assert_eq!(charges(&other)[0], ("free".into(), "203.0.113.9".into(), 3, "live".into()));
    assert!(other["rules"][0]["notes"].to_string().contains("bronze"), "{other}");
    let user = of(&["GET", "/users/alice"]);
    assert_eq!(user["route"], "/users/{id}");
    assert!(charges(&user).contains(&("users".into(), "alice".into(), 1, "live".into())));
    // Another route of the service has the path.
    let me = of(&["GET", "/users/me", "--route", "/users/me"]);
    assert!(!charges(&me).iter().any(|it| it.0 == "users"), "{me}");
    let message = fails(&["explain", "GET", "/x", "--file", &file, "--route", "/users/{id}"]);
    assert!(message.contains("does not match the path /x"), "{message}");
    let health = of(&["GET", "/health"]);
    assert_eq!(health["exempt"], "the route /health is exempt");
    // Another spelling is not exempt, because it may reach another route.
    assert!(of(&["GET", "/x/../health"])["exempt"].is_null());
    let preflight = ["-H", "origin: https://a.example", "-H", "access-control-request-method: PUT"];
    let preflight = of(&[&["OPTIONS", "/orders"], &preflight[..]].concat());
    assert_eq!(preflight["exempt"], "CORS preflights are exempt");
    let without_peer = explained(&file, &["GET", "/api/search", "-H", "x-api-key: k"]);
    assert!(without_peer["rules"][1]["notes"].to_string().contains("status 500"), "{without_peer}");
    for (wrong, allowed) in [
        (["GET", "/", "-H", "x-api-key"], "x-api-key: 42"),
        (["GET", "/", "--claim", "plan"], "account=42"),
        (["GET", "/", "--route", "users"], "the route is"),
    ] {
        let output = plimsoll(&[&["explain"], &wrong[..]].concat()).output().expect("started");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(allowed), "{message}");
    }
    fs::remove_dir_all(folder).expect("removed");
}

/// The layer of a service charges what `explain` says.
#[tokio::test]
async fn the_layer_of_a_service_agrees() {
    let (folder, file) = file();
    let config = Config::from_path(&file).expect("valid");
    let charged = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = std::sync::Arc::clone(&charged);
    let layer = config.layer_with(&Limiter::in_memory(), move |layer| {
        let list = std::sync::Arc::clone(&list);
        layer.on_decision(move |decision, _| {
            let charges = decision.outcomes().map(|outcome| {
                let charge = outcome.charge();
                let key = charge.key().display_revealed().to_string();
                (charge.policy().name().to_owned(), key, charge.cost())
            });
            list.lock().expect("no panic").extend(charges);
        })
    });
    let app = service_fn(async |_: Request<String>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let mut service = layer.expect("rules").layer(app);
    let mut requests = 0;
    for method in ["GET", "POST", "DELETE", "HEAD", "OPTIONS"] {
        for path in ["/api/search", "/login", "/orders", "/health", "/health/", "/x/../login", "/"]
        {
            for header in
                ["x-api-key: a", "x-account: Dave", "x-audit: z", "origin: https://a.example"]
            {
                for plan in ["gold", "none"] {
                    let claim = format!("plan={plan}");
                    let arguments = [
                        method,
                        path,
                        "-H",
                        header,
                        "--from",
                        "2001:db8::7",
                        "--claim",
                        &claim,
                        "--show-keys",
                    ];
                    let said = explained(&file, &arguments);
                    let mut said =
                        if said["exempt"].is_null() { charges(&said) } else { Vec::new() };
                    let (name, value) = header.split_once(": ").expect("a header");
                    let mut request =
                        Request::builder().method(method).uri(path).header(name, value);
                    let extensions = request.extensions_mut().expect("a request");
                    let address: IpAddr = "2001:db8::7".parse().expect("an address");
                    extensions.insert(SocketAddr::new(address, 7));
                    extensions.insert(Claims::from_iter([("plan", plan)]));
                    let request = request.body(String::new()).expect("a request");
                    service.ready().await.expect("ready").call(request).await.expect("served");
                    let mut charged: Vec<_> = charged.lock().expect("no panic").drain(..).collect();
                    charged.sort();
                    said.sort();
                    let said: Vec<_> = said
                        .into_iter()
                        .map(|(policy, key, cost, _)| (policy, key, cost))
                        .collect();
                    assert_eq!(said, charged, "{arguments:?}");
                    requests += 1;
                }
            }
        }
    }
    assert_eq!(requests, 280);
    fs::remove_dir_all(folder).expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_adds_where_the_key_stands() {
    let service = Service::start().await;
    assert_eq!(service.spend("42", 3).await, 3);
    let file = service.folder.join("limits.toml").display().to_string();
    let arguments = ["explain", "GET", "/", "-H", "x-api-key: 42", "--file", &file];
    let answer = service.answers(&arguments).await;
    let standing = &answer["rules"][0]["charges"][0]["standing"];
    assert_eq!((&standing["remaining"], &standing["limit"]), (&2.into(), &5.into()));
    let text = service.prints(&arguments).await;
    assert!(text.contains("\nnow:\n") && text.contains("2 of 5"), "{text}");
    // Without an address, no service is asked.
    let output = plimsoll(&arguments).output().expect("started");
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("now:"));
}

#[test]
fn a_path_begins_with_a_slash() {
    // Without it, the text would be a host.
    for (path, code) in [("api/search", 2), ("api", 2), ("", 2), ("/api", 1)] {
        let arguments = ["explain", "GET", path, "--file", "/none/limits.toml"];
        let output = plimsoll(&arguments).output().expect("started");
        assert_eq!(output.status.code(), Some(code), "{path:?}");
    }
}
