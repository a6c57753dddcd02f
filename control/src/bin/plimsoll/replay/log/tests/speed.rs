//! The time of a line, measured by hand in release: `cargo test --release .. time_of_a_line -- --ignored --nocapture`.

use std::{fmt::Write, time::Duration};

use super::*;

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn time_of_a_line() {
    const LINES: u32 = 1_000_000;
    let folder = Folder::new();
    let mut combined = String::new();
    let mut caddy = String::new();
    let object = fs::read_to_string(sample("caddy.json")).unwrap();
    let object = object.lines().nth(1).unwrap();
    let rest = &object[object.find(",\"logger\"").unwrap()..];
    for n in 0..LINES {
        let second = n / 2_000;
        writeln!(
            combined,
            "203.0.{}.{} - - [14/Mar/2025:10:{:02}:{:02} +0100] \"GET /api/items/{n}?q=shoes HTTP/1.1\" 200 {n} \"-\" \
             \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\"",
            n % 8,
            n % 250,
            second / 60,
            second % 60,
        )
        .unwrap();
        writeln!(
            caddy,
            "{{\"level\":\"info\",\"ts\":{}.{:06}{rest}",
            1_741_946_400 + second,
            n % 2_000 * 500
        )
        .unwrap();
    }
    for (name, text) in [("combined", combined), ("caddy", caddy)] {
        let bytes = text.len() / LINES as usize;
        let path = folder.write(name, text);
        for reorder in [Duration::ZERO, Duration::from_secs(10)] {
            let options = ReadOptions { reorder, ..ReadOptions::default() };
            let began = std::time::Instant::now();
            let mut logs = Logs::open(std::slice::from_ref(&path), &options).unwrap();
            let mut ips = 0;
            while let Some(entry) = logs.next().unwrap() {
                ips += u32::from(entry.ip().is_some());
            }
            assert_eq!(ips, LINES);
            let each = began.elapsed() / LINES;
            println!("{name}: {each:?} a line of {bytes} bytes, with a window of {reorder:?}");
        }
    }
}
