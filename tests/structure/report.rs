//! The tables of `docs/report.md` keep within the published bounds, and have the values of the runs.

use std::{collections::BTreeMap, fs};

use plimsoll::Quota;
use plimsoll_testing::algorithms::most;

fn page() -> String {
    fs::read_to_string("docs/report.md").expect("the page")
}

/// Returns the rows of the table whose head begins with these cells, each as its cells.
fn rows<'p>(page: &'p str, head: &str) -> Vec<Vec<&'p str>> {
    let table = page.split_once(head).expect("the table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn number(cell: &str) -> u64 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{cell:?} is no number"))
}

#[test]
fn the_fullest_windows_are_within_the_bounds() {
    let page = page();
    let mut algorithms = 0;
    for row in rows(&page, "| algorithm | bound |") {
        let (bound, fullest) = (number(row[1]), &row[2..]);
        if let Some(algorithm) = row[0].strip_prefix('`') {
            let text = format!("100/min {}", algorithm.trim_end_matches('`'));
            let quota: Quota = text.parse().expect("a quota");
            assert_eq!(bound, most(&quota), "{text}");
            algorithms += 1;
        }
        assert_eq!(fullest.len(), 6, "six kinds of traffic: {row:?}");
        for cell in fullest {
            assert!(number(cell) <= bound, "{row:?}");
        }
    }
    // An algorithm that is newer than the run is not in the report yet.
    assert!(algorithms >= 5, "{algorithms} algorithms");
}

#[test]
fn the_fleets_are_within_the_bound() {
    let page = page();
    let rows = rows(&page, "| 4,000 processes |");
    assert!(rows.len() >= 7, "{rows:?}");
    for row in rows {
        let [.., fullest, bound] = row[..] else { panic!("{row:?}") };
        assert!(number(fullest) <= number(bound), "{row:?}");
    }
}

/// Returns the rows of a file of values, each by the names of its columns.
fn values(name: &str) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(format!("docs/report/{name}.csv")).expect("the values");
    let mut lines = text.lines().skip(1).map(fields);
    let names = lines.next().expect("the names of the columns");
    let row = |fields: Vec<String>| {
        assert_eq!(fields.len(), names.len(), "{name}: {fields:?}");
        names.iter().cloned().zip(fields).collect()
    };
    lines.map(row).collect()
}

/// Returns the fields of a line, without their quotes. A comma within quotes is part of a field.
fn fields(line: &str) -> Vec<String> {
    let mut is_quoted = false;
    let is_end = |it: char| {
        is_quoted ^= it == '"';
        it == ',' && !is_quoted
    };
    line.split(is_end).map(|field| field.trim_matches('"').to_owned()).collect()
}

fn amount(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Fails if a number of the page differs from the run by more than half of its last digit.
#[track_caller]
fn assert_shown(shown: &str, value: f64, of: &str) {
    let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let half = 0.5 / 10_f64.powi(decimals as i32);
    let differs = (amount(shown) - value).abs() > half * 1.001;
    assert!(!differs, "{of}: {shown} for {value}: run ./scripts/report --redraw");
}

/// The page and the values beside it agree, so that neither is written by hand.
#[test]
fn the_page_has_the_values_of_the_run() {
    let page = page();
    let values = values("accuracy");
    let of_page = rows(&page, "| algorithm | bound |");
    assert_eq!(of_page.len() * 6, values.len());
    for row in of_page {
        let name = match row[0].trim_matches('`') {
            "counter of textbooks" => "textbook counter",
            name => name,
        };
        let of_name: Vec<_> = values.iter().filter(|it| it["algorithm"] == name).collect();
        assert_eq!(row[1], of_name[0]["bound"], "{name}: run ./scripts/report --redraw");
        for (cell, value) in row[2..].iter().zip(of_name) {
            assert_eq!(*cell, value["fullest"], "{name}: run ./scripts/report --redraw");
        }
    }
}

#[test]
fn the_table_of_memory_has_the_values_of_the_run() {
    let page = page();
    let values = values("memory");
    let values: Vec<_> = values.iter().filter(|it| it["table"] == "usage").collect();
    let of_page = rows(&page, "| bytes, at a limit of |");
    assert_eq!(of_page.iter().map(|row| row.len() - 1).sum::<usize>(), values.len());
    for row in of_page {
        let name = row[0].trim_matches('`').trim_end_matches("(60)");
        let of_name: Vec<_> = values.iter().filter(|it| it["structure"] == name).collect();
        assert_eq!(of_name.len(), row.len() - 1, "{name}");
        for (cell, value) in row[1..].iter().zip(of_name) {
            assert_shown(cell, amount(&value["bytes"]), name);
        }
    }
}

#[test]
fn the_tables_of_capacity_have_the_values_of_the_run() {
    let page = page();
    let shares = values("shares");
    let of_page = rows(&page, "| checks of hot keys |");
    assert_eq!(2 * of_page.len(), shares.len());
    for (row, pair) in of_page.iter().zip(shares.chunks(2)) {
        for (cell, value) in row[1..].iter().zip(pair) {
            assert_shown(cell, amount(&value["calls"]) / amount(&value["seconds"]), row[0]);
        }
    }
    let points = values("points");
    let of_page = rows(&page, "| point | figure |");
    assert_eq!(of_page.len(), 3 * points.len());
    for (rows, point) in of_page.chunks(3).zip(&points) {
        let figures = [
            ("planned_commands", "commands", 1.0),
            ("planned_cores", "redis_cpu_share", 1.0),
            ("planned_memory", "memory", 1e-6),
        ];
        for (row, (planned, measured, factor)) in rows.iter().zip(figures) {
            let (planned, measured) = (amount(&point[planned]), amount(&point[measured]));
            assert_shown(row[2], factor * planned, row[1]);
            assert_shown(row[3], factor * measured, row[1]);
            assert_shown(row[4], planned / measured, row[1]);
        }
    }
    let fleets = values("fleet");
    let of_page = rows(&page, "| 4,000 processes |");
    assert_eq!(of_page.len(), fleets.len());
    for (row, fleet) in of_page.iter().zip(&fleets) {
        assert_eq!(row[0], fleet["name"]);
        for (at, name) in [(3, "calls"), (5, "fullest"), (6, "bound")] {
            assert_shown(row[at], amount(&fleet[name]), row[0]);
        }
    }
}

#[test]
fn the_table_of_outages_has_the_values_of_the_run() {
    let page = page();
    let values = values("outage");
    let phases: Vec<_> = values.iter().filter(|it| it["table"] == "phase").collect();
    let of_page = rows(&page, "| outage, limiter |");
    assert_eq!(3 * of_page.len(), phases.len());
    for (row, phases) in of_page.iter().zip(phases.chunks(3)) {
        assert_eq!(row[0], format!("{}: {}", phases[0]["fault"], phases[0]["limiter"]));
        if phases[0]["limiter"] == "no limiter" {
            continue;
        }
        for (cell, phase) in row[4..6].iter().zip(&phases[1..]) {
            let (admitted, limit) = cell.split_once(" of ").expect("admitted of the limit");
            assert_shown(admitted, amount(&phase["admitted"]), row[0]);
            assert_shown(limit, amount(&phase["limit"]), row[0]);
        }
        let errors = phases[1..].iter().map(|phase| amount(&phase["errors"])).sum();
        assert_shown(row[6], errors, row[0]);
    }
}
