//! Commands as people type them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_shortest_forms_work() {
    let service = Service::start().await;
    assert_eq!(service.spend("acme", 7).await, 5);
    let peek = service.prints(&["peek", "acme"]).await;
    assert!(peek.contains("demo") && peek.contains("0 of 5"), "{peek}");
    let raised = service.prints(&["override", "demo", "50/10min", "--for", "1h"]).await;
    assert!(raised.starts_with("demo: 50/10min until 20"), "{raised}");
    let list = service.prints(&["override", "demo"]).await;
    assert!(list.contains("50/10min") && list.contains("(none given)"), "{list}");
    assert!(service.prints(&["override", "customers"]).await.contains("no override"));
    let ended = service.prints(&["override", "demo", "end"]).await;
    assert_eq!(ended.trim(), "demo: the override has ended, 5/10min is in force");

    // `acme` is a key of one of the two policies, and 192.0.2.1 of both.
    let blocked = service.prints(&["block", "acme"]).await;
    assert!(blocked.starts_with("acme under demo: blocked until 20"), "{blocked}");
    assert_eq!(blocked.lines().count(), 1);
    let list = service.answers(&["override"]).await;
    let hour = |it: &Value| {
        // A version is the time of the change in microseconds.
        (it["until"].as_u64().unwrap() - it["version"].as_u64().unwrap() / 1_000).div_ceil(60_000)
    };
    assert_eq!((hour(&list[0]), &list[0]["reason"]), (60, &"(none given)".into()));
    let blocked = service.prints(&["block", "192.0.2.1"]).await;
    let policies: Vec<_> = blocked.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(policies, ["customers:", "demo:"]);
    let lifted = service.prints(&["unblock", "192.0.2.1"]).await;
    assert_eq!(lifted.matches("not blocked any more").count(), 2, "{lifted}");
    service.prints(&["unblock", "acme"]).await;
    let reset = service.prints(&["reset", "acme"]).await;
    assert_eq!(reset.trim(), "acme under demo: 5 of 5 left, before 0 of 5 left");
    assert!(service.prints(&["override"]).await.contains("no override"));
    let top = service.prints(&["top"]).await;
    assert!(top.contains("demo") && top.contains(" 2 "), "{top}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_typed_wrong_names_what_is_allowed() {
    let service = Service::start().await;
    for (typed, says) in [
        (&["override", "demo", "fast"][..], "allowed is a quota such as 500/min, or off, or end"),
        (&["override", "--for", "1h"], "required"),
        (&["override", "demo", "end", "--for", "1h"], "an override ends now"),
        (&["override", "dmo", "50/10min"], "allowed is customers, demo"),
        (&["peek"], "<KEY>"),
        (&["block", "#1f2e3d4c"], "digest"),
    ] {
        let message = service.fails(typed).await;
        assert!(message.contains(says), "{typed:?}: {message}");
    }
    let text = CONFIG.replace("{ header = \"x-api-key\" }", "\"client_ip\"");
    let service = Service::with(&text).await;
    let message = service.fails(&["block", "acme"]).await;
    assert!(message.contains("no policy has such keys"), "{message}");
}
