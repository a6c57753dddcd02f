//! The admin page in a headless Chromium, over two processes that share one Redis. It is used by keyboard
//! alone. Pictures of it are written to `target/screenshots`.
//!
//! Needs Debian's packages `chromium` and `chromium-driver`. `scripts/axe` downloads axe-core.

mod browser;
mod hits;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use plimsoll_testing::{
    example::{self, Example},
    servers::Server,
};
use serde_json::Value;

use browser::{Browser, ENTER, ESCAPE, TAB};

/// The width and height of a phone and of a desk.
const SCREENS: [(&str, u32, u32); 2] = [("phone", 390, 844), ("desk", 1280, 900)];
const SCHEMES: [&str; 2] = ["light", "dark"];

/// The limits of the example.
const LIMITS: &str = include_str!("../../examples/admin/limits.toml");

const SCRIPT: &str = "<script>alert(1)</script>";

#[test]
fn an_operator_raises_a_limit_for_all_processes() {
    let mut redis = Server::start();
    let file = redis.dir.join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    let shop = [start(&redis, &file), start(&redis, &file)];
    let browser = Browser::start();
    browser.show_as(1280, 900, "light");
    browser.open(&format!("http://{}/admin", shop[0].address));

    sign_in(&browser);
    see_the_fleet(&browser, &redis, &file, &shop);
    see_offenders(&browser, &shop);
    act_on_an_offender(&browser, &shop);
    look_up(&browser, "mallory");
    block_and_unblock(&browser, &shop);
    raise_the_limit(&browser, &shop);
    change_what_another_operator_has_changed(&browser, &shop);
    hide_and_show(&browser, &shop);
    see_that_an_answer_is_cut_off(&browser);
    show_and_check(&browser);
    see_a_mistake_in_the_file(&browser, &file);
    assert_eq!(browser.complaints(), [] as [String; 0]);
    // Counts of a key are forgotten after some minutes, which a busy machine takes until here.
    // All of them, because the count of one denial is 0 after the end of a minute.
    assert!((0..20).filter(|_| ask(&shop[0], "at last") == 429).count() >= 10);
    redis.kill();
    see_why_there_is_no_data(&browser);
    sign_out(&browser);
}

fn start(redis: &Server, file: &Path) -> Example {
    let mut program = example::program("admin");
    program.env("REDIS_URL", redis.url()).env("ADMIN_TOKEN", "s3cret").env("CONFIG", file);
    example::start_program(&mut program)
}

fn ask(shop: &Example, key: &str) -> u16 {
    shop.send("GET", "/", &[("x-api-key", key)], "").status
}

fn sign_in(browser: &Browser) {
    browser.wait("!document.getElementById('sign-in').hidden");
    check_access(browser, "before signing in");
    browser.type_keys("wrong");
    browser.type_keys(ENTER);
    browser.wait_for_text("sign-in-error", "not known");
    assert_eq!(browser.run("return document.getElementById('content').hidden"), true);
    assert_eq!(browser.run("return document.activeElement.id"), "token");
    browser.type_keys("s3cret");
    browser.type_keys(ENTER);
    browser.wait("!document.getElementById('content').hidden");
    browser.wait_for_text("policy-list", "demo");
    assert_eq!(browser.run("return document.cookie"), "");
}

/// The table has all instances. The charts show requests to all of them, also to an instance that does not answer the page.
fn see_the_fleet(browser: &Browser, redis: &Server, file: &Path, shop: &[Example; 2]) {
    let rows = "document.querySelectorAll('#instance-list tbody tr').length";
    browser.wait(&format!("{rows} === 2"));
    browser.wait_for_text("instance-list", "this one");
    let third = start(redis, file);
    browser.wait(&format!("{rows} === 3"));
    drop(third);
    browser.wait(&format!("{rows} === 2"));
    let card = "document.querySelector('[data-policy=demo]')";
    browser.wait(&format!("{card}.textContent.includes(': of 2 instances')"));
    let is_denied = format!("/, [0-9.]+ denied, which is/.test({card}.textContent)");
    for _ in 0..20 {
        (0..50).for_each(|_| _ = ask(&shop[1], "elsewhere"));
        if browser.run(&format!("return {is_denied}")) == true {
            break;
        }
    }
    browser.wait(&is_denied);
    // The axes have units a second from 0 on, and times.
    let texts = format!("[...{card}.querySelectorAll('.chart text')].map((it) => it.textContent)");
    for part in [
        "includes('units a second')",
        "includes('0')",
        "some((it) => /^[0-9]{2}:[0-9]{2}$/.test(it))",
    ] {
        browser.wait(&format!("{texts}.{part}"));
    }
    // The line of the denials leaves the axis.
    browser.wait(&format!(
        "new Set({card}.querySelector('.chart .line.denied').getAttribute('d').match(/ [0-9.]+/g)).size > 1"
    ));
    let label = browser.run(&format!("return {card}.querySelector('.chart').ariaLabel"));
    assert!(label.as_str().unwrap().starts_with("Units a second under demo"), "{label}");
}

fn see_offenders(browser: &Browser, [shop, _]: &[Example; 2]) {
    // On a busy machine, denials of the other clients would hide these.
    raise_the_limits_of_the_clients(shop, true);
    let mut denied = 0;
    for key in [SCRIPT, "mallory", "mallory"] {
        denied += (0..10).filter(|_| ask(shop, key) == 429).count();
    }
    assert!(denied >= 10, "{denied} denials");
    browser.wait_for_text("offender-list", "mallory");
    browser.wait_for_text("offender-list", SCRIPT);
    raise_the_limits_of_the_clients(shop, false);
    for order in ["spent", "denied"] {
        browser.run(&format!(
            "const by = document.getElementById('offenders-by'); by.value = '{order}';
             by.dispatchEvent(new Event('change'));"
        ));
        browser.wait_for_text("offender-list", "mallory");
    }
    // The key is a text and has made no element.
    assert_eq!(browser.run("return document.querySelectorAll('script').length"), 1);
}

/// Blocks, raises and resets a key from the list of all policies, and undoes the changes in the audit log.
fn act_on_an_offender(browser: &Browser, shop: &[Example; 2]) {
    assert_eq!(browser.run("return document.getElementById('offenders-policy').value"), "");
    for (action, field, prefilled, answer) in [
        ("Block", "until", "1h", "mallory under demo: blocked until"),
        ("Raise", "quota", "10/10s", "mallory under demo: 10/10s until"),
    ] {
        press(browser, &format!("[data-id='{action}-demo-mallory']"));
        let value = browser.run(&format!("return document.getElementById('{field}').value"));
        assert_eq!(value, prefilled, "{action}");
        assert_eq!(browser.run("return document.getElementById('until').value"), "1h");
        browser.tab_to("#reason");
        browser.type_keys("at night");
        browser.type_keys(ENTER);
        browser.wait_for_text("message", answer);
        if action == "Block" {
            wait_for(&shop[1], 429, "the block does not act on the other process");
        }
        browser.wait(
            "document.querySelector('#audit-list tbody tr').textContent.includes('at night')",
        );
        check_access(browser, "with actions in the lists");
        press(browser, "#audit-list tbody tr:first-child [data-id^=undo]");
        assert_eq!(browser.run("return document.getElementById('reason').value"), "undo: at night");
        browser.tab_to("#reason");
        browser.type_keys(ENTER);
        browser.wait_for_text("message", "mallory under demo: the override has ended");
    }
    wait_for(&shop[1], 200, "the changes are not undone");
    press(browser, "[data-id='Reset-demo-mallory']");
    browser.type_keys("at night");
    browser.type_keys(ENTER);
    browser.wait_for_text("message", "5 of 5 left");
    (0..10).for_each(|_| _ = ask(&shop[0], "mallory"));
}

/// Presses a button that opens the dialog.
fn press(browser: &Browser, button: &str) {
    browser.tab_to(button);
    browser.type_keys(ENTER);
    browser.wait("document.getElementById('change').open");
}

fn look_up(browser: &Browser, key: &str) {
    browser.tab_to("#key");
    browser.type_keys(key);
    browser.type_keys(ENTER);
    browser.wait_for_text("standings", key);
    browser.wait("document.querySelector('[data-id=key-quota-demo]')");
    browser.wait_for_text("standings", "denied for");
}

fn raise_the_limit(browser: &Browser, shop: &[Example; 2]) {
    browser.tab_to("[data-id=key-quota-demo]");
    browser.type_keys(ENTER);
    browser.wait("document.getElementById('change').open");
    // Escape closes the dialog, and the focus returns to the button.
    browser.type_keys(ESCAPE);
    browser.wait("!document.getElementById('change').open");
    browser.wait("document.activeElement.dataset.id === 'key-quota-demo'");

    browser.type_keys(ENTER);
    browser.wait("document.activeElement.id === 'quota'");
    browser.replace_text("5000/10");
    browser.tab_to("#reason");
    browser.type_keys("their launch");
    browser.type_keys(ENTER);
    browser.wait_for_text("change-error", "Allowed");
    // Chromium writes each answer that is an error to the console. This was the first one.
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("status of 422"), "{complaints:?}");
    browser.tab_to("#quota");
    browser.replace_text("5000/10s");
    check_access(browser, "in the dialog");
    browser.type_keys(ENTER);
    browser.wait_for_text("message", "mallory under demo: 5000/10s");

    // The other process has it within 1.5 s. The machine of the test may be busy.
    wait_for(&shop[1], 200, "the other process has not raised the limit");
    wait_for(&shop[0], 200, "this process has not raised the limit");
    browser.wait_for_text("override-list", "their launch");
    browser.wait_for_text("audit-list", "their launch");
    browser.wait_for_text("audit-list", "operator");
}

/// Another operator changes the override while the dialog is open.
fn change_what_another_operator_has_changed(browser: &Browser, [shop, _]: &[Example; 2]) {
    browser.tab_to("[data-id=key-quota-demo]");
    browser.type_keys(ENTER);
    browser.wait("document.activeElement.id === 'quota'");
    let body = r#"{"policy": "demo", "key": "mallory", "quota": "6000/10s", "reason": "another operator"}"#;
    let headers = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
    assert_eq!(shop.send("PUT", "/admin/api/overrides", &headers, body).status, 200);
    browser.replace_text("7000/10s");
    browser.tab_to("#reason");
    browser.type_keys("too late");
    browser.type_keys(ENTER);
    browser.wait_for_text("change-error", "Another operator was faster");
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("status of 409"), "{complaints:?}");
    browser.type_keys(ESCAPE);
    browser.wait("!document.getElementById('change').open");
    browser.wait_for_text("standings", "6000/10s");
}

/// A page that is hidden asks for nothing, and then shows what has happened meanwhile.
fn hide_and_show(browser: &Browser, shop: &[Example; 2]) {
    let set_hidden = |is_hidden: bool| {
        browser.run(&format!(
            "Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'));"
        ));
    };
    browser.run(
        "window.asked = 0; const send = window.fetch;
         window.fetch = (url, request) => { window.asked += 1; return send(url, request); };",
    );
    browser.wait("asked > 0");
    set_hidden(true);
    // Requests in flight have ended, and the next refresh would have begun.
    thread::sleep(Duration::from_secs(3));
    browser.run("window.asked = 0");
    raise_the_limits_of_the_clients(&shop[0], true);
    assert!((0..10).any(|_| ask(&shop[0], "while hidden") == 429));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(browser.run("return window.asked"), 0);
    set_hidden(false);
    browser.wait_for_text("offender-list", "while hidden");
    raise_the_limits_of_the_clients(&shop[0], false);
}

/// An answer that does not end is no empty list.
fn see_that_an_answer_is_cut_off(browser: &Browser) {
    browser.run(
        "window.whole = window.fetch;
         window.fetch = (url, request) => url.endsWith('overrides')
             ? Promise.resolve(new Response('[', { status: 200 })) : window.whole(url, request);",
    );
    browser.wait_for_text("connection", "no answer");
    let overrides = browser.run("return document.getElementById('override-list').textContent");
    assert!(overrides.as_str().unwrap().contains("another operator"), "{overrides}");
    browser.run("window.fetch = window.whole");
    browser.wait_for_text("connection", "live");
}

/// Raises the limits of the simulated clients, or ends that.
fn raise_the_limits_of_the_clients(shop: &Example, is_raised: bool) {
    let method = if is_raised { "PUT" } else { "DELETE" };
    for (policy, quota) in [("search", "60000/min"), ("orders", "6000/min token-bucket(1000)")] {
        let quota = if is_raised { format!(r#""quota": "{quota}", "#) } else { String::new() };
        let body = format!(r#"{{{quota}"policy": "{policy}", "reason": "a quiet stream"}}"#);
        let headers = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
        assert_eq!(shop.send(method, "/admin/api/overrides", &headers, &body).status, 200);
    }
}

fn block_and_unblock(browser: &Browser, shop: &[Example; 2]) {
    for (button, answer, status) in [
        ("key-block-demo", "mallory under demo: blocked", 429),
        ("key-unblock-demo", "not blocked", 200),
    ] {
        browser.tab_to(&format!("[data-id={button}]"));
        browser.type_keys(ENTER);
        browser.wait("document.activeElement.id === 'reason'");
        browser.type_keys("a test");
        browser.type_keys(ENTER);
        browser.wait_for_text("message", answer);
        wait_for(&shop[1], status, &format!("{button} does not act on the other process"));
    }
}

/// Sends requests until one has this status: the first within 1.5 s, or later on a busy machine.
fn wait_for(shop: &Example, status: u16, otherwise: &str) {
    let found = (0..150).any(|_| {
        thread::sleep(Duration::from_millis(100));
        ask(shop, "mallory") == status
    });
    assert!(found, "{otherwise}");
}

/// Takes pictures, and lets axe-core look for what keeps people from using the page.
fn show_and_check(browser: &Browser) {
    for (screen, width, height) in SCREENS {
        for scheme in SCHEMES {
            browser.show_as(width, height, scheme);
            browser
                .run("window.scrollTo(0, 0); document.getElementById('message').textContent = ''");
            let wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
            assert_eq!(browser.run(wider), false, "the page is wider than the {screen}");
            check_access(browser, &format!("on the {screen}, {scheme}"));
            check_charts(browser, &format!("on the {screen}, {scheme}"));
            let file = repository().join(format!("target/screenshots/admin-{screen}-{scheme}.png"));
            fs::create_dir_all(file.parent().expect("a folder")).unwrap();
            fs::write(file, STANDARD.decode(browser.picture()).unwrap()).unwrap();
        }
    }
    browser.show_as(1280, 900, "light");
}

fn see_a_mistake_in_the_file(browser: &Browser, file: &Path) {
    fs::write(file, LIMITS.replace("5/10s", "5 in 10s")).unwrap();
    browser.wait_for_text("status", "refused");
    browser.wait_for_text("status", "5 in 10s");
    check_access(browser, "with a mistake in the file");
    let with_deadline = "resilience.deadline = '77ms'\n".to_owned() + LIMITS;
    fs::write(file, with_deadline.replace("5/10s", "6/10s")).unwrap();
    browser.wait_for_text("status", "after a restart only");
    browser.wait_for_text("status", "version 2 in force");
    browser.wait_for_text("policy-list", "6/10s");
}

/// Redis does not answer. The page shows what this process knows, and why the rest is missing.
fn see_why_there_is_no_data(browser: &Browser) {
    browser.wait_for_text("status", "open");
    browser.wait_for_text("audit-list", "No data because the store cannot answer");
    browser.wait_for_text("offender-list", "at last");
    browser.wait_for_text("override-list", "another operator");
    browser.wait_for_text("connection", "live");
    check_access(browser, "without Redis");
}

fn sign_out(browser: &Browser) {
    browser.tab_to("#sign-out");
    browser.type_keys(ENTER);
    browser.wait("!document.getElementById('sign-in').hidden");
    assert_eq!(browser.run("return sessionStorage.length"), 0);
    browser.type_keys(TAB);
}

/// Fails if axe-core finds a violation of WCAG 2.2 AA or of its own best practices.
fn check_access(browser: &Browser, place: &str) {
    let path = repository().join("target/axe/axe.min.js");
    if !path.exists() {
        let script = repository().join("scripts/axe");
        let downloaded = Command::new(script).status().expect("bash is installed");
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

/// Fails if texts or lines of a chart differ too little from its ground, which axe-core does not see, or if texts are small
/// or outside.
fn check_charts(browser: &Browser, place: &str) {
    let wrong = browser.run(
        "const light = (color) => {
             const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((it) => it / 255)
                 .map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
             return 0.2126 * r + 0.7152 * g + 0.0722 * b;
         };
         const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
         const wrong = [];
         for (const chart of document.querySelectorAll('.chart')) {
             const ground = light(getComputedStyle(chart.closest('li')).backgroundColor);
             const box = chart.getBoundingClientRect();
             const scale = box.width / chart.viewBox.baseVal.width;
             for (const text of chart.querySelectorAll('text')) {
                 const { fill, fontSize } = getComputedStyle(text);
                 const { left, right, top, bottom } = text.getBoundingClientRect();
                 if (contrast(light(fill), ground) < 4.5) wrong.push(`${text.textContent}: ${fill}`);
                 if (parseFloat(fontSize) * scale < 11) wrong.push(`${text.textContent}: ${fontSize} * ${scale}`);
                 if (left < box.left || right > box.right || top < box.top - 1 || bottom > box.bottom + 1) wrong.push(`${text.textContent}: outside`);
             }
             for (const line of chart.querySelectorAll('.line, .axis')) {
                 const { stroke } = getComputedStyle(line);
                 if (contrast(light(stroke), ground) < 3) wrong.push(`${line.className.baseVal}: ${stroke}`);
             }
         }
         return document.querySelector('.chart') ? wrong : ['no chart'];",
    );
    assert_eq!(wrong, Value::Array(Vec::new()), "{place}: {wrong:#}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}
