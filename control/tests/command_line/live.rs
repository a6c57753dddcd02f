//! The view of `top` on a terminal, which `script` of Debian's package bsdutils is.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::{CONFIG, Service};

/// Starts `top` on a terminal, waits until it shows a text, and presses a key. Returns all that it has written.
fn on_a_terminal(service: &Service, shows: &str, key: &[u8]) -> String {
    let top = format!("{} {} top", env!("CARGO_BIN_EXE_plimsoll"), service.target.join(" "));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &format!("stty cols 100 rows 40; {top}")])
        .arg("/dev/null")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is installed");
    let mut output = terminal.stdout.take().expect("it is piped");
    let written = Arc::new(Mutex::new(Vec::new()));
    let reader = thread::spawn({
        let written = Arc::clone(&written);
        move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                written.lock().expect("no panic").extend_from_slice(&bytes[..read]);
            }
        }
    });
    let text = || String::from_utf8_lossy(&written.lock().expect("no panic")).into_owned();
    for _ in 0..600 {
        if text().contains(shows) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(text().contains(shows), "{shows}: {}", text());
    let mut keys = terminal.stdin.take().expect("it is piped");
    keys.write_all(key).expect("written");
    keys.flush().expect("written");
    let status = terminal.wait().expect("it ends");
    reader.join().expect("no panic");
    assert!(status.success(), "{status}: {}", text());
    text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_watches_until_a_key_ends_it() {
    let service = Arc::new(Service::with(CONFIG).await);
    for key in [&b"q"[..], b"\x03"] {
        let watched = Arc::clone(&service);
        let shown = tokio::task::spawn_blocking(move || on_a_terminal(&watched, "5/10min", key));
        let shown = shown.await.expect("no panic");
        // It has shown a screen of its own, and the one before is there again.
        let (before, after) = shown.split_once("\u{1b}[?1049h").expect("another screen");
        let (_, after) = after.split_once("\u{1b}[?1049l").expect("the screen before");
        assert!(!before.contains("5/10min") && !after.contains("5/10min"), "{shown:?}");
        assert!(after.contains("\u{1b}[?25h"), "the cursor is hidden: {shown:?}");
    }
}

/// Without an answer, the view says so and since when, and keeps what it has shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_answer_is_named() {
    let mut service = Service::with(CONFIG).await;
    service.target[1] = "http://127.0.0.1:1/admin/".to_owned();
    let service = Arc::new(service);
    let watched = Arc::clone(&service);
    let shown =
        tokio::task::spawn_blocking(move || on_a_terminal(&watched, "NO ANSWER for 1 s", b"q"));
    assert!(shown.await.expect("no panic").contains("127.0.0.1:1/admin"));
}
