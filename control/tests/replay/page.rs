//! The HTML report in a headless Chromium.
//!
//! Needs Debian's packages `chromium` and `chromium-driver`. `scripts/axe` downloads axe-core.

use std::{fs, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Log, START, browser::Browser};

const SCRIPT: &str = "<script>alert(1)</script>";

#[test]
fn the_page_is_readable_for_all() {
    // Keys of 1 to 400 requests in a minute.
    let lines = (1..=400).flat_map(|key| {
        (0..key).map(move |number| {
            let key = if key == 400 { SCRIPT.to_owned() } else { format!("user-{key}") };
            (START + number * 140_000, key, "/", 1)
        })
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    let log = Log::new(lines);
    let page = log.folder.join("report.html");
    let arguments = ["--key", "field:ip", "--show-keys", "--html", page.to_str().unwrap()];
    let report = log.replay(&arguments);
    assert_eq!(report["keys"], 400);
    let text = fs::read_to_string(&page).unwrap();
    assert!(!text.contains("<script") && !text.contains("http:") && !text.contains("https:"));
    let browser = Browser::start();
    browser.open(&format!("file://{}", page.display()));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (screen, width, height) in [("phone", 390, 844), ("desk", 1280, 900)] {
        for scheme in ["light", "dark"] {
            browser.show_as(width, height, scheme);
            let wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
            assert_eq!(browser.run(wider), false, "the page is wider than the {screen}");
            check_access(&browser, repository, &format!("on the {screen}, {scheme}"));
            let file = repository.join(format!("target/screenshots/replay-{screen}-{scheme}.png"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, STANDARD.decode(browser.picture()).unwrap()).unwrap();
        }
    }
    let points = "return document.querySelectorAll('svg polyline').length";
    assert_eq!(browser.run(points), 2);
    let text = browser.run("return document.body.innerText").as_str().unwrap().to_owned();
    let recommended = report["recommended"].as_str().unwrap();
    assert!(text.contains(&format!("recommended: {recommended}")), "{text}");
    // The key is a text and has made no element.
    assert!(text.contains(SCRIPT), "{text}");
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

/// Fails if axe-core finds a violation of WCAG 2.2 AA or of its own best practices.
fn check_access(browser: &Browser, repository: &Path, place: &str) {
    let path = repository.join("target/axe/axe.min.js");
    if !path.exists() {
        let downloaded = Command::new(repository.join("scripts/axe")).status().unwrap();
        assert!(downloaded.success(), "axe-core cannot be downloaded");
    }
    let axe = fs::read_to_string(path).unwrap();
    browser.run(&format!("if (!window.axe) {{ {axe} }}"));
    let found = browser.run_until_called(
        "const done = arguments[0];
         axe.run(document).then(({ violations }) => done(violations.map(({ id, help, nodes }) =>
             [id, help, nodes.map(({ html }) => html)])), (error) => done([String(error)]));",
    );
    assert_eq!(found, Value::Array(Vec::new()), "{place}: {found:#}");
}
