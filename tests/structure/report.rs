//! The tables of `docs/report.md` keep within the published bounds.

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
    assert_eq!(algorithms, plimsoll::Algorithm::EACH.len());
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

/// The values beside the page are those of the page, so that neither is written by hand.
#[test]
fn the_page_has_the_values_of_the_run() {
    let text = fs::read_to_string("docs/report/accuracy.csv").expect("the values");
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().skip(2) {
        let cells: Vec<&str> = line.split(',').collect();
        let fullest =
            values.entry(cells[1].to_owned()).or_insert_with(|| vec![cells[3].to_owned()]);
        fullest.push(cells[6].to_owned());
    }
    let page = page();
    let of_page = rows(&page, "| algorithm | bound |");
    assert_eq!(of_page.len(), values.len());
    for row in of_page {
        let name = match row[0].trim_matches('`') {
            "counter of textbooks" => "textbook counter",
            name => name,
        };
        assert_eq!(values[name], row[1..], "{name}: run ./scripts/report --redraw");
    }
}
