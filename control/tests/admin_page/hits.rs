//! The hit rates in the cards of the policies, and the trial of another limit.

use super::*;

/// Adds units of a policy to the hour so many hours ago.
fn add(redis: &Server, ago: u64, policy: &str, admitted: u64, denied: u64) {
    let seconds: Vec<String> = redis.ask("TIME");
    let hour = seconds[0].parse::<u64>().unwrap() / 3_600 - ago;
    let _: i64 = redis.ask(&format!(
        "HSET plim:{{overrides}}:hour:{hour} admitted:{policy} {admitted} denied:{policy} {denied}"
    ));
}

#[test]
fn an_operator_sees_which_limit_is_wrong_and_how_to_try_another_one() {
    let redis = Server::start();
    let file = redis.dir.join("limits.toml");
    // The simulated clients are denied nothing.
    fs::write(&file, LIMITS.replace("60/min", "60000/min")).unwrap();
    add(&redis, 3, "demo", 90, 10);
    let shop = start(&redis, &file);
    let browser = Browser::start();
    browser.show_as(1280, 900, "light");
    browser.open(&format!("http://{}/admin", shop.address));
    browser.wait("!document.getElementById('sign-in').hidden");
    browser.type_keys("s3cret");
    browser.type_keys(ENTER);
    browser.wait_for_text("hit-rates", "above 5 % a limit is too strict");
    let card = |policy: &str| {
        format!("document.querySelector('[data-policy={policy}] .hits').textContent")
    };
    browser.wait(&format!("{}.includes('In the last day: 10 % of 100 units')", card("demo")));
    browser.wait(&format!("{}.includes('too strict')", card("demo")));
    browser.wait(&format!("{}.includes('Counted since')", card("demo")));

    for (screen, width, height) in SCREENS {
        for scheme in SCHEMES {
            browser.show_as(width, height, scheme);
            browser.tab_to("[data-id=trial-demo]");
            browser.type_keys(ENTER);
            browser.wait("document.getElementById('trial').open");
            check_access(&browser, &format!("with a trial on the {screen}, {scheme}"));
            let wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
            assert_eq!(browser.run(wider), false, "the page is wider than the {screen}");
            browser.type_keys(ESCAPE);
            browser.wait("!document.getElementById('trial')");
            browser.wait("document.activeElement.dataset.id === 'trial-demo'");
        }
    }
    browser.type_keys(ENTER);
    browser.wait("document.activeElement.id === 'trial-quota'");
    // Twice the limit that is too strict.
    assert_eq!(browser.run("return document.getElementById('trial-quota').value"), "10/10s");
    browser.replace_text("20/10s");
    let lines = browser.run("return document.querySelector('#trial pre').textContent");
    let lines = lines.as_str().unwrap();
    assert!(lines.contains("\ndemo-trial = \"20/10s\"\n"), "{lines}");
    // The lines are of the file: with them, the trial runs.
    let (policy, rule) = lines.split_once("\n\n").unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let rule = rule.lines().last().unwrap();
    let at = text.find("policy = \"demo\"").unwrap();
    let text = format!("{}{rule}\n{}", &text[..at], &text[at..]);
    let text = text.replace("[policies]\n", &format!("[policies]\n{policy}\n"));
    fs::write(&file, text).unwrap();
    browser.type_keys(ESCAPE);
    browser.wait("document.getElementById('policy-list').textContent.includes('demo-trial')");
    (0..7).for_each(|_| _ = ask(&shop, "tester"));
    browser.wait_for_text("trial-list", "demo-trial");
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

/// The sums of Redis are of a time before the process has started.
#[test]
fn a_limit_that_never_denies_is_named() {
    let redis = Server::start();
    let file = redis.dir.join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    add(&redis, 168, "demo", 5_000, 0);
    add(&redis, 2, "demo", 5_000, 0);
    let shop = start(&redis, &file);
    let browser = Browser::start();
    browser.open(&format!("http://{}/admin", shop.address));
    browser.wait("!document.getElementById('sign-in').hidden");
    browser.type_keys("s3cret");
    browser.type_keys(ENTER);
    let card = "document.querySelector('[data-policy=demo] .hits')?.textContent";
    browser.wait(&format!("{card}?.includes('never denied anything in 7 days')"));
    browser.wait(&format!("{card}.includes('protects from nothing')"));
    browser.wait(&format!("{card}.includes('In the last day: 0 % of 5,000 units')"));
    browser.tab_to("[data-id=trial-demo]");
    browser.type_keys(ENTER);
    browser.wait("document.getElementById('trial').open");
    assert_eq!(browser.run("return document.getElementById('trial-quota').value"), "3/10s");
}
