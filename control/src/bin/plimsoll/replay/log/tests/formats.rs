//! A line of each format, and the two sample logs.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::replay::log::LogError;

/// The request of all lines: `GET /api/search?q=1`, with 12 bytes, of 203.0.113.9, at 2025-03-14 09:26:53 UTC.
const AT: u64 = 1_741_944_413_000_000;

fn expected(host: Option<&str>) -> Seen {
    Seen {
        at: AT,
        ip: Some("203.0.113.9".parse().unwrap()),
        method: Some("GET".into()),
        target: Some("/api/search?q=1".into()),
        host: host.map(Into::into),
        status: Some(200),
        bytes: Some(12),
    }
}

const LINES: &[(&str, &str, Option<&str>)] = &[
    (
        "common",
        r#"203.0.113.9 - - [14/Mar/2025:09:26:53 +0000] "GET /api/search?q=1 HTTP/1.1" 200 12"#,
        None,
    ),
    (
        "combined of nginx, with another field",
        r#"203.0.113.9 - alice [14/Mar/2025:10:26:53 +0100] "GET /api/search?q=1 HTTP/2.0" 200 12 "-" "curl/8" "198.51.100.1""#,
        None,
    ),
    (
        "combined of Apache, with a virtual host",
        r#"api.example:443 203.0.113.9 - al ice [14/Mar/2025:10:26:53 +0100] "GET /api/search?q=1 HTTP/2.0" 200 12 "-" "a \"b\"""#,
        Some("api.example"),
    ),
    (
        "JSON of nginx",
        r#"{"time_iso8601":"2025-03-14T09:26:53+00:00","remote_addr":"203.0.113.9","request":"GET /api/search?q=1 HTTP/1.1","status": "200","body_bytes_sent":"12","host":"api.example","http_x_api_key":"k"}"#,
        Some("api.example"),
    ),
    (
        "JSON of Caddy",
        r#"{"level":"info","ts":1741944413.0,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"198.51.100.1","client_ip":"203.0.113.9","method":"GET","host":"api.example:8443","uri":"/api/search?q=1","headers":{"X-Api-Key":["k","l"],"Accept":[]}},"size":12,"status":200}"#,
        Some("api.example"),
    ),
    (
        "default format of Envoy",
        r#"[2025-03-14T09:26:53.000Z] "GET /api/search?q=1 HTTP/1.1" 200 - 0 12 3 2 "198.51.100.1,203.0.113.9" "curl/8" "id" "api.example" "192.0.2.5:80""#,
        Some("api.example"),
    ),
    (
        "default format of Istio",
        r#"[2025-03-14T09:26:53.000Z] "GET /api/search?q=1 HTTP/1.1" 200 - via_upstream - "-" 0 12 3 2 "-" "curl/8" "id" "api.example" "192.0.2.5:80" outbound 192.0.2.1:1 192.0.2.2:2 203.0.113.9:3 - default"#,
        Some("api.example"),
    ),
    (
        "JSON of Envoy",
        r#"{"start_time":"2025-03-14T09:26:53.000Z","method":"GET","path":"/api/search?q=1","response_code":200,"bytes_sent":12,"bytes_received":0,"x_forwarded_for":null,"downstream_remote_address":"203.0.113.9:5000","authority":"api.example"}"#,
        Some("api.example"),
    ),
    (
        "ALB",
        r#"https 2025-03-14T09:26:59.000000Z app/web/50dc 203.0.113.9:2817 192.0.2.1:80 0.086 0.048 0.037 200 200 0 12 "GET https://api.example:443/api/search?q=1 HTTP/1.1" "curl/8" ECDHE TLSv1.2 arn:x "Root=1" "api.example" "arn:y" 1 2025-03-14T09:26:53.000000Z "forward" "-" "-" "192.0.2.1:80" "200" "-" "-" TID"#,
        Some("api.example"),
    ),
    (
        "CSV",
        "Time;Client-IP;Method;Path;Status;Bytes;host\r\n2025-03-14 09:26:53;203.0.113.9;GET;\"/api/search?q=1\";200;12;api.example\r\n",
        Some("api.example"),
    ),
    (
        "JSON lines of a program",
        r#"{"timestamp":"1741944413000","ip":"203.0.113.9","verb":"GET","url":"https:\/\/api.example\/api\/search?q=1","code":200,"bytes":12}"#,
        Some("api.example"),
    ),
];

#[test]
fn each_format_is_found_and_read() {
    for (name, line, host) in LINES {
        let folder = Folder::new();
        let (seen, logs) = read(&[folder.write("log", line)], &ReadOptions::default());
        assert_eq!(seen, [expected(*host)], "{name}: {:?}", logs.skipped());
    }
}

#[test]
fn headers_and_fields_are_found_by_the_names_of_each_format() {
    for (at, header, value) in [
        (1, "User-Agent", "curl/8"),
        (2, "user-agent", "a \"b\""),
        (3, "X-Api-Key", "k"),
        (4, "x-api-key", "k"),
    ] {
        with_line(LINES[at].1, &ReadOptions::default(), |entry| {
            assert_eq!(entry.header(header), Some(value), "{}", LINES[at].0);
            assert_eq!(entry.header("x-other"), None);
        });
    }
    for (at, field, value) in [
        (1, "remote_user", "alice"),
        (2, "remote_user", "al ice"),
        (1, "extra1", "198.51.100.1"),
        (3, "HTTP-X-API-KEY", "k"),
        (4, "request.headers.x-api-key", "k"),
        (6, "route_name", "default"),
        (9, "path", "/api/search?q=1"),
    ] {
        with_line(LINES[at].1, &ReadOptions::default(), |entry| {
            assert_eq!(entry.field(field), Some(value), "{}", LINES[at].0);
        });
    }
}

#[test]
fn options_name_the_fields_and_the_zone() {
    let options = ReadOptions {
        time_field: Some("when".into()),
        ip_field: Some("peer".into()),
        path_field: Some("ip".into()),
        time_zone: "+02:00".parse().unwrap(),
        ..ReadOptions::default()
    };
    let line = r#"{"time":5,"when":"2025-03-14 11:26:53","peer":"203.0.113.9","ip":"/x"}"#;
    with_line(line, &options, |entry| {
        assert_eq!((entry.at(), entry.path()), (AT, Some("/x")));
        assert_eq!(entry.ip(), Some("203.0.113.9".parse().unwrap()));
    });
    // The name of a field of a text format may be given, too.
    let options = ReadOptions { ip_field: Some("extra1".into()), ..ReadOptions::default() };
    with_line(LINES[1].1, &options, |entry| {
        assert_eq!(entry.ip(), Some("198.51.100.1".parse().unwrap()));
    });
    let error = "+25:00".parse::<crate::replay::log::TimeZone>().unwrap_err();
    assert_eq!(error, "\"+25:00\" is no time zone; allowed is UTC, or an offset such as +02:00");
    let error = "yaml".parse::<crate::replay::log::Format>().unwrap_err();
    assert!(error.starts_with("\"yaml\" is no format; allowed is json, "), "{error}");
}

#[test]
fn sample_logs_are_read_whole() {
    let (seen, logs) = read(&[sample("nginx-combined.log")], &ReadOptions::default());
    let abuser = "203.0.113.9".parse().ok();
    assert_eq!((seen.len(), logs.skipped().lines), (400, 0));
    assert_eq!(seen.iter().filter(|it| it.ip == abuser).count(), 100);
    assert!(logs.disorder().whole_seconds);
    let (seen, logs) = read(&[sample("caddy.json")], &ReadOptions::default());
    assert_eq!((seen.len(), logs.skipped().lines), (200, 1));
    assert_eq!(logs.skipped().first[0].reason, "no part of a request");
    assert_eq!(seen.iter().filter(|it| it.ip == abuser).count(), 74);
    assert!(seen.is_sorted_by_key(|it| it.at) && !logs.disorder().whole_seconds);
    assert_eq!(logs.position().0, logs.position().1.unwrap());
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

/// Returns a zstd frame with a checksum.
fn zstd(text: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    compress_to_vec(text, CompressionLevel::Fastest)
}

#[test]
fn compressed_files_are_known_by_their_first_bytes() {
    let text = fs::read(sample("nginx-combined.log")).unwrap();
    let (half, rest) = text.split_at(text.len() / 2);
    let folder = Folder::new();
    let (plain, _) = read(&[sample("nginx-combined.log")], &ReadOptions::default());
    let skip = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec();
    for (name, content) in [
        ("a.gz", gzip(&text)),
        ("members.gz", [gzip(half), gzip(rest)].concat()),
        ("b.zst", zstd(&text)),
        ("frames.zst", [skip.clone(), zstd(half), skip, zstd(rest)].concat()),
        ("gzip-without-a-name", gzip(&text)),
    ] {
        let (seen, logs) = read(&[folder.write(name, content)], &ReadOptions::default());
        assert!(seen == plain, "{name}");
        assert_eq!((logs.skipped().lines, logs.skipped().cut_files.len()), (0, 0), "{name}");
        assert_eq!(logs.position().0, logs.position().1.unwrap(), "{name}");
    }
}

#[test]
fn a_cut_or_damaged_file_is_read_up_to_there_and_named() {
    let text = fs::read(sample("nginx-combined.log")).unwrap();
    let folder = Folder::new();
    let whole = [gzip(&text), gzip(&text[..2_000])].concat();
    // A frame has blocks of 128 KiB, and the sample has less.
    let frames = [zstd(&text), zstd(&text)].concat();
    for (name, mut content) in [
        ("cut.gz", gzip(&text)),
        ("small.gz", gzip(&text[..2_000])),
        ("members.gz", whole),
        ("cut.zst", frames),
    ] {
        content.truncate(content.len() - 200);
        let (seen, logs) = read(&[folder.write(name, content)], &ReadOptions::default());
        assert!(!seen.is_empty() && seen.len() < 420, "{name}: {}", seen.len());
        let (file, reason) = &logs.skipped().cut_files[0];
        assert!(file.ends_with(name) && !reason.is_empty(), "{name}: {reason}");
    }
    let mut content = zstd(&text);
    *content.last_mut().unwrap() ^= 1;
    let (_, logs) = read(&[folder.write("sum.zst", content)], &ReadOptions::default());
    assert_eq!(logs.skipped().cut_files[0].1, "the checksum of a zstd frame is wrong");
}

/// A pipe cannot be opened twice, so its first lines are kept.
#[cfg(unix)]
#[test]
fn a_pipe_is_read_whole_also_if_it_is_compressed() {
    let folder = Folder::new();
    let text = fs::read(sample("caddy.json")).unwrap();
    for (name, content) in [("plain", text.clone()), ("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let pipe = folder.0.join(name);
        let made = process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, content)
        });
        let (seen, logs) = read(&[pipe, sample("nginx-combined.log")], &ReadOptions::default());
        writer.join().unwrap().unwrap();
        assert_eq!((seen.len(), logs.skipped().lines), (600, 1), "{name}");
        assert_eq!(logs.position().1, None, "{name}");
    }
}

#[test]
fn a_log_that_cannot_be_read_says_why() {
    let folder = Folder::new();
    let open = |paths: &[PathBuf]| match Logs::open(paths, &ReadOptions::default()) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let prose = folder.write("prose", "a text\nof two lines\n");
    let error = open(std::slice::from_ref(&prose));
    assert!(error.contains("has no format that is known; its first line is \"a text\""), "{error}");
    let twice = sample("nginx-combined.log");
    assert!(open(&[twice.clone(), twice]).ends_with("is given twice"));
    assert!(open(&[folder.0.join("none")]).contains("cannot be read: No such file"));
    assert!(open(std::slice::from_ref(&folder.0)).contains("is a directory"));
    let xz = folder.write("log.xz", b"\xfd7zXZ\x00...");
    assert!(open(&[xz]).contains("use `xz -dc FILE | plimsoll replay -`"));
    let shifts = vec!["other.log=+1s".parse().unwrap()];
    let options = ReadOptions { shifts, ..ReadOptions::default() };
    let error = Logs::open(&[sample("caddy.json")], &options).unwrap_err();
    assert!(matches!(error, LogError::Options { .. }));
}
