//! Lines that are broken, hostile or rare, each with what is read of it.

use super::*;
use crate::replay::log::Format;

/// The result of a line: the reason for which it is skipped, or the address, target and status of the request.
type Expected = Result<(&'static str, &'static str, u16), &'static str>;

const NONE: &str = "-";

/// The end of a combined line, behind the address, the identity and the user.
const TAIL: &str = r#"[14/Mar/2025:09:26:53 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8""#;

fn combined() -> Vec<(Vec<u8>, Expected)> {
    let line = |text: &str| text.replace("TAIL", TAIL).into_bytes();
    let request =
        |text: &str| line(&format!("192.0.2.1 - - {TAIL}").replace("GET /a HTTP/1.1", text));
    let agent = |agent: &[u8]| {
        let mut line = line("192.0.2.1 - - TAIL");
        line.truncate(line.len() - 7);
        [&line, agent, b"\""].concat()
    };
    let seen = Ok(("192.0.2.1", "/a", 200));
    vec![
        (line("192.0.2.1 - - TAIL"), seen),
        (line("192.0.2.1 - - TAIL\r"), seen),
        (line("2001:db8::1 - - TAIL"), Ok(("2001:db8::1", "/a", 200))),
        (line("[2001:db8::1]:443 - - TAIL"), Ok(("2001:db8::1", "/a", 200))),
        (line("fe80::1%eth0 - - TAIL"), Ok(("fe80::1", "/a", 200))),
        (line("::ffff:192.0.2.1 - - TAIL"), seen),
        (line("client.example - - TAIL"), Ok((NONE, "/a", 200))),
        (line("- - - TAIL"), Ok((NONE, "/a", 200))),
        (line("192.0.2.1 - a [b] c TAIL"), seen),
        (line("192.0.2.1 - \"quoted TAIL"), seen),
        (line("api.example:80 192.0.2.1 - a b TAIL"), seen),
        (line("192.0.2.1 - TAIL"), Err("too few words before the time")),
        (line("192.0.2.1 - - 14/Mar/2025:09:26:53"), Err("no time in brackets")),
        (
            line("192.0.2.1 - - [32/Mar/2025:09:26:53 +0000] \"GET / HTTP/1.1\" 200 1"),
            Err("no time in brackets"),
        ),
        (line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000"), Err("no time in brackets")),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1\" 200"),
            Err("the line ends too early"),
        ),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1"),
            Err("a quote is not closed"),
        ),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] GET /a 200 12"),
            Err("the request is not in quotes"),
        ),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1\" OK 12"),
            Err("the status is no number"),
        ),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1\" 70000 12"),
            Err("the status is no number"),
        ),
        (
            line("192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1\" - -"),
            Ok(("192.0.2.1", "/a", 0)),
        ),
        (
            line(
                "192.0.2.1 - - [14/Mar/2025:09:26:53 +0000] \"GET /a HTTP/1.1\" 200 99999999999999999999",
            ),
            seen,
        ),
        (request("-"), Ok(("192.0.2.1", NONE, 200))),
        (request(""), Ok(("192.0.2.1", NONE, 200))),
        (request(r"\x16\x03\x01\x00\xF7 \x00"), Ok(("192.0.2.1", NONE, 200))),
        (request("GET /a"), seen),
        (request("GET /a b HTTP/1.1"), Ok(("192.0.2.1", "/a b", 200))),
        (request("GET http://api.example/a HTTP/1.1"), seen),
        (request(r#"GET /\"q\\ HTTP/1.1"#), Ok(("192.0.2.1", "/\"q\\", 200))),
        (request(r"GET /caf\xC3\xA9 HTTP/1.1"), Ok(("192.0.2.1", "/café", 200))),
        (agent(br#"a \"b\" \\"#), seen),
        (agent(br#"a "b"c d"#), seen),
        (agent(b"caf\xe9 \xff\xfe"), seen),
        (agent(b"nul \x00 bell \x07 tab \t"), seen),
        (agent(&vec![b'x'; 100_000]), seen),
        (agent(&vec![b'x'; 300_000]), Err("the line is longer than 256 KiB")),
        (b"\x00\x01\x02\xff\xfe\xfd".repeat(50), Err("no time in brackets")),
        (b"[".repeat(5_000), Err("no time in brackets")),
        (
            agent(br#"" "a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r"#),
            seen,
        ),
    ]
}

fn json() -> Vec<(Vec<u8>, Expected)> {
    let line = |text: &str| text.replace('\'', "\"").into_bytes();
    let seen = Ok(("192.0.2.1", "/a", 200));
    let good = "{'ts':1741944413,'ip':'192.0.2.1','path':'/a','status':200}";
    let with = |text: &str| line(&good.replace("'path'", &format!("{text},'path'")));
    vec![
        (line(good), seen),
        (line(&format!("  {good}  ")), seen),
        (line(&good[..43]), Err("the JSON ends too early")),
        (line(&format!("{good}{good}")), Err("a text follows the JSON object")),
        (line("[1,2]"), Err("no JSON object")),
        (line("{}"), Err("no time")),
        (line("{'ts':'yesterday','ip':'192.0.2.1'}"), Err("the time is none that is known")),
        (line("{'ts':-5,'ip':'192.0.2.1'}"), Err("the time is none that is known")),
        (line("{'ts':1e999,'ip':'192.0.2.1'}"), Err("the time is none that is known")),
        (line("{'ts':1741944413}"), Err("no part of a request")),
        (with("'x':nan"), Err("a value is no JSON")),
        (with("'x':"), Err("a value is no JSON")),
        (with("x:1"), Err("a field has no name")),
        (with("'x' 1"), Err("a name has no value")),
        (with("'x':1 'y':2"), Err("no comma between values")),
        (with(r"'x':'\ud800'"), Err("a text has an escape that is no JSON")),
        (with(r"'x':'\ud83d\ude00 \u00e9'"), seen),
        (line(&good.replace("200", "'5xx'")), Ok(("192.0.2.1", "/a", 0))),
        (with("'ip':null,'x':[],'y':{},'z':[{'a':[1]}],'t':true"), seen),
        (
            with(&format!("'x':{}1{}", "[".repeat(200), "]".repeat(200))),
            Err("the JSON is nested too deep"),
        ),
        (
            with(&format!("'x':{}1{}", "{'a':".repeat(10_000), "}".repeat(10_000))),
            Err("the JSON is nested too deep"),
        ),
        (with(&(0..5_000).map(|n| format!("'k{n}':{n}")).collect::<Vec<_>>().join(",")), seen),
        (with(&format!("'{}':1", "n".repeat(60_000))), seen),
        (with(&format!("'{}':{{'a':{{'b':1,'c':2}}}}", "n".repeat(60_000))), seen),
    ]
}

fn csv() -> Vec<(Vec<u8>, Expected)> {
    let line = |text: &str| text.as_bytes().to_vec();
    let seen = Ok(("192.0.2.1", "/a", 200));
    vec![
        (line("1741944413,192.0.2.1,/a,200"), seen),
        (line("1741944413,192.0.2.1,\"/a\",\"200\"\r"), seen),
        (line("1741944413,192.0.2.1,\"/a\"\"b\"\",c\",200"), Ok(("192.0.2.1", "/a\"b\",c", 200))),
        (line("1741944413,,/a,"), Ok((NONE, "/a", 0))),
        (line("1741944413,192.0.2.1,/a"), Err("fewer fields than columns")),
        (line("1741944413,192.0.2.1,/a,200,x"), Err("more fields than columns")),
        (line("1741944413,192.0.2.1,\"/a,200"), Err("a quote is not closed")),
        (line("1741944413,192.0.2.1,\"/a\"x,200"), Err("a text follows a quote")),
        (line("time,ip,path,status"), Err("the time is none that is known")),
        (line(",192.0.2.1,/a,200"), Err("no time")),
    ]
}

/// Reads a line between two good ones, and compares what is read of it.
fn check(format: Format, header: &str, good: &[u8], cases: Vec<(Vec<u8>, Expected)>) -> usize {
    let folder = Folder::new();
    let count = cases.len();
    for (line, expected) in cases {
        let lines = [header.as_bytes(), good, b"\n", &line, b"\n\n", good].concat();
        let path = folder.write("log", lines);
        let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
        let (seen, logs) = read(&[path], &options);
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        let skipped = logs.skipped();
        match expected {
            Ok((ip, target, status)) => {
                assert_eq!((seen.len(), skipped.lines), (3, 0), "{shown}: {skipped:?}");
                let it = &seen[1];
                assert_eq!(
                    it.ip.map(|it| it.to_string()),
                    (ip != NONE).then(|| ip.into()),
                    "{shown}"
                );
                assert_eq!(it.target.as_deref(), (target != NONE).then_some(target), "{shown}");
                assert_eq!(it.status.unwrap_or(0), status, "{shown}");
            }
            Err(reason) => {
                assert_eq!((seen.len(), skipped.lines), (2, 1), "{shown}");
                let first = &skipped.first[0];
                assert_eq!(
                    (first.reason, first.line),
                    (reason, 2 + header.lines().count() as u64),
                    "{shown}"
                );
                assert!(first.text.chars().count() <= 1_200, "{shown}");
                assert!(!first.text.contains(|it: char| it.is_control()), "{shown}");
            }
        }
        assert_eq!(seen[0].target, seen.last().unwrap().target, "a line behind {shown}");
    }
    count
}

#[test]
fn hostile_lines_are_read_or_skipped_and_harm_no_other() {
    let good = format!("198.51.100.1 - - {TAIL}").replace("/a", "/good");
    let texts = check(Format::Combined, "", good.as_bytes(), combined());
    let good = br#"{"ts":1741944413,"ip":"198.51.100.1","path":"/good","status":200}"#;
    let objects = check(Format::Json, "", good, json());
    let rows =
        check(Format::Csv, "time,ip,path,status\n", b"1741944413,198.51.100.1,/good,200", csv());
    assert!(texts + objects + rows >= 34);
}

#[test]
fn hostile_files_are_read_or_refused() {
    let folder = Folder::new();
    let good = format!("198.51.100.1 - - {TAIL}\n");
    let open = |content: &[u8], options: &ReadOptions| {
        let mut logs = Logs::open(&[folder.write("log", content)], options).ok()?;
        let mut count = 0;
        while logs.next().unwrap().is_some() {
            count += 1;
        }
        Some((count, logs.skipped().lines))
    };
    let default = ReadOptions::default();
    let given = ReadOptions { format: Some(Format::Combined), ..ReadOptions::default() };
    assert_eq!(open(b"", &default), Some((0, 0)));
    assert_eq!(open(b"\n\r\n \n", &default), Some((0, 0)));
    assert_eq!(open(b"\xef\xbb\xbf", &default), Some((0, 0)));
    assert_eq!(open(format!("\u{feff}{good}").as_bytes(), &default), Some((1, 0)));
    assert_eq!(open(good.trim_end().as_bytes(), &default), Some((1, 0)));
    assert_eq!(open(good.replace('\n', "\r\n").repeat(3).as_bytes(), &default), Some((3, 0)));
    assert_eq!(open(b"\xff\xfe1\x009\x002\x00", &default), None);
    assert_eq!(open(&vec![0; 1_000_000], &default), None);
    assert_eq!(open(&vec![0; 1_000_000], &given), Some((0, 1)));
    let huge = [&vec![b'x'; 1_000_000], &b"\n"[..], good.as_bytes()].concat();
    assert_eq!(open(&huge, &given), Some((1, 1)));
    // A few other lines in front, such as messages of the start, do not hide the format.
    let start = format!("starting up\nready\n{}", good.repeat(3));
    assert_eq!(open(start.as_bytes(), &default), Some((3, 2)));
    let header = b"time,ip\n";
    assert_eq!(open(header, &default), None);
}
