//! Random requests, written in each format and read again, and random JSON against another parser.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use plimsoll_testing::seed::property;
use proptest::{collection::vec, option, prelude::*};
use serde_json::Value;

use super::*;

/// A request as a generator makes it, with a time in whole seconds for the formats that have no more.
fn request() -> impl Strategy<Value = Seen> {
    let ip = any::<bool>().prop_flat_map(|is_v4| {
        if is_v4 {
            any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
        } else {
            any::<[u16; 8]>().prop_map(IpAddr::from).boxed()
        }
    });
    let target = "/[a-zA-Z0-9/._~%?=&\"\\\\é-]{0,40}";
    (1_u64..4_000_000_000, ip, "[A-Z]{1,8}", target, option::of(100_u16..1_000), any::<u64>())
        .prop_map(|(second, ip, method, target, status, bytes)| Seen {
            at: second * 1_000_000,
            ip: Some(ip.to_canonical()),
            method: Some(method),
            target: Some(target),
            host: Some("api.example".into()),
            status,
            bytes: Some(bytes),
        })
}

fn rfc3339(at: u64) -> String {
    humantime::format_rfc3339_micros(UNIX_EPOCH + std::time::Duration::from_micros(at)).to_string()
}

/// Writes the time of the common log format, out of the parts of another form.
fn common_time(at: u64) -> String {
    let text = rfc3339(at);
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months[text[5..7].parse::<usize>().unwrap() - 1];
    format!("{}/{month}/{}:{} +0000", &text[8..10], &text[..4], &text[11..19])
}

fn status(seen: &Seen) -> String {
    seen.status.map_or("-".into(), |it| it.to_string())
}

/// Escapes as Apache does.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn write(format: &str, it: &Seen) -> String {
    let Seen {
        at,
        ip: Some(ip),
        method: Some(method),
        target: Some(target),
        bytes: Some(bytes),
        ..
    } = it
    else {
        unreachable!("all are generated")
    };
    let status = status(it);
    match format {
        "combined" => {
            let time = common_time(*at);
            let target = escaped(target);
            format!("api.example:80 {ip} - a b [{time}] \"{method} {target} HTTP/1.1\" {status} {bytes} \"-\" \"a\"")
        }
        "envoy" => {
            let time = rfc3339(*at);
            let target = escaped(target);
            let status = it.status.unwrap_or(0);
            format!("[{time}] \"{method} {target} HTTP/1.1\" {status} - 1 {bytes} 3 - \"{ip}\" \"-\" \"-\" \"api.example\" \"-\"")
        }
        "alb" => {
            let time = rfc3339(*at);
            let target = escaped(target);
            let ip = if ip.is_ipv4() { ip.to_string() } else { format!("[{ip}]") };
            format!("h2 2020-01-01T00:00:00Z lb {ip}:80 - 0 0 0 {status} - 1 {bytes} \"{method} https://api.example:443{target} HTTP/2\" \"-\" - - - \"-\" \"-\" \"-\" 0 {time}")
        }
        "json" => serde_json::json!({
            "@timestamp": rfc3339(*at), "remote_addr": ip, "request": format!("{method} {target} HTTP/1.1"),
            "status": it.status, "bytes": bytes, "host": "api.example",
        })
        .to_string(),
        "caddy" => serde_json::json!({
            "ts": *at as f64 / 1e6, "status": it.status, "size": bytes, "request": {
                "client_ip": ip, "method": method, "uri": target, "host": "api.example",
            },
        })
        .to_string(),
        _ => {
            let target = target.replace('"', "\"\"");
            let time = rfc3339(*at);
            format!("{time},{ip},{method},\"{target}\",{status},{bytes},api.example")
        }
    }
}

#[test]
fn requests_are_read_as_they_were_written() {
    property(
        "random requests",
        ProptestConfig::with_cases(60),
        vec(request(), 1..40),
        |requests| {
            let folder = Folder::new();
            for format in ["combined", "envoy", "alb", "json", "caddy", "csv"] {
                let header =
                    if format == "csv" { "time,ip,method,path,status,bytes,host\n" } else { "" };
                let lines: Vec<_> = requests.iter().map(|it| write(format, it)).collect();
                let path = folder.write(format, format!("{header}{}\n", lines.join("\n")));
                let reorder = std::time::Duration::from_secs(5_000_000_000);
                let (seen, logs) =
                    read(&[path], &ReadOptions { reorder, ..ReadOptions::default() });
                let mut expected = requests.clone();
                expected.sort_by_key(|it| it.at);
                if format == "envoy" {
                    expected.iter_mut().for_each(|it| it.status = it.status.or(Some(0)));
                }
                prop_assert_eq!(seen, expected, "{} {:?}", format, logs.skipped());
            }
            Ok(())
        },
    );
}

/// The stream of several files is the sorted list of their requests, however they are dealt.
#[test]
fn files_are_merged_into_the_order_of_time() {
    let cases = (vec((0_u64..3_000, 0_usize..4), 1..300), 0_u64..5);
    property("random merges", ProptestConfig::with_cases(60), cases, |(jitters, window)| {
        let folder = Folder::new();
        let steps = jitters.iter().enumerate();
        let times: Vec<_> =
            steps.map(|(step, (jitter, file))| (step as u64 * 20 + jitter, *file)).collect();
        let mut files = vec![String::new(); 4];
        for (number, (at, file)) in times.iter().enumerate() {
            files[*file].push_str(&format!(
                "{{\"ts\":{},\"path\":\"/{number}\"}}\n",
                1_700_000_000_000 + at
            ));
        }
        let paths: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(number, text)| folder.write(&number.to_string(), text))
            .collect();
        let reorder = std::time::Duration::from_secs(window);
        let (seen, logs) = read(&paths, &ReadOptions { reorder, ..ReadOptions::default() });
        prop_assert!(seen.is_sorted_by_key(|it| it.at));
        prop_assert_eq!(seen.len(), times.len());
        let mut moved = 0;
        for it in &seen {
            let number: usize = it.target.as_ref().unwrap()[1..].parse().unwrap();
            let written = (1_700_000_000_000 + times[number].0) * 1_000;
            prop_assert!(it.at >= written);
            moved += u64::from(it.at != written);
        }
        prop_assert_eq!(moved, logs.disorder().late_lines);
        // Whatever steps back by less than the window is sorted.
        let step = logs.disorder().largest_step;
        prop_assert!(step > reorder || moved == 0, "{:?}", logs.disorder());
        Ok(())
    });
}

#[test]
fn any_json_object_has_the_fields_that_another_parser_finds() {
    let fields = proptest::collection::btree_map("[a-z\"\\\\é.]{1,6}", json_value(), 0..8);
    let cases = (fields, vec(any::<u8>(), 0..6));
    property("random JSON", ProptestConfig::with_cases(200), cases, |(fields, bytes)| {
        let mut object: serde_json::Map<String, Value> = fields.into_iter().collect();
        object.insert("ts".into(), 1_741_944_413.into());
        let mut expected = BTreeMap::new();
        flatten("", &Value::Object(object.clone()), &mut expected);
        let line = Value::Object(object).to_string();
        with_line(&line, &ReadOptions::default(), |entry| {
            let mut seen = BTreeMap::new();
            for (name, value) in entry.fields() {
                seen.entry(name.to_owned()).or_insert_with(Vec::new).push(value.to_owned());
            }
            assert_eq!(seen, expected, "{line}");
        });
        // No change of its bytes makes the reader panic.
        let mut line = line.into_bytes();
        for byte in bytes {
            let at = usize::from(byte) * 7 % line.len();
            line[at] = byte;
        }
        let folder = Folder::new();
        let path = folder
            .write("log", [&line[..], b"\n{\"ts\":1741944413,\"ip\":\"192.0.2.1\"}"].concat());
        read(
            &[path],
            &ReadOptions { format: Some("json".parse().unwrap()), ..ReadOptions::default() },
        );
        Ok(())
    });
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\n\t]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                .prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

/// Lists the fields of a value, as the reader names them.
fn flatten(name: &str, value: &Value, out: &mut BTreeMap<String, Vec<String>>) {
    let text = match value {
        Value::Object(fields) => {
            for (inner, value) in fields {
                let name = if name.is_empty() { inner.clone() } else { format!("{name}.{inner}") };
                flatten(&name, value, out);
            }
            return;
        }
        Value::Array(values) => {
            return values.first().into_iter().for_each(|first| flatten(name, first, out));
        }
        Value::Null => return,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if !text.is_empty() && text != "-" {
        out.entry(name.to_owned()).or_default().push(text);
    }
}
