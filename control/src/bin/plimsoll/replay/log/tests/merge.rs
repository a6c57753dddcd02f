//! Several logs as one, and lines out of order.

use std::time::Duration;

use super::*;
use crate::replay::log::Shift;

/// Returns a line of JSON with milliseconds.
fn line(millis: u64, name: &str) -> String {
    format!("{{\"ts\":{millis},\"path\":\"/{name}\"}}\n")
}

const DAY: u64 = 1_741_910_400_000;

fn paths_of(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|it| it.target.as_deref().unwrap()).collect()
}

#[test]
fn files_are_merged_by_time_and_a_clock_is_corrected() {
    let folder = Folder::new();
    // The clock of the second instance is 1.2 seconds late.
    let a: String = (0..50).map(|n| line(DAY + n * 1_000, &format!("a{n}"))).collect();
    let b: String =
        (0..50).map(|n| line(DAY + n * 1_000 + 500 - 1_200, &format!("b{n}"))).collect();
    let paths = [folder.write("a.log", a), folder.write("b.log", b)];
    let (seen, logs) = read(&paths, &ReadOptions::default());
    assert!(seen.is_sorted_by_key(|it| it.at));
    assert_eq!(paths_of(&seen)[..4], ["/b0", "/a0", "/b1", "/a1"]);
    let disorder = logs.disorder();
    assert_eq!(
        (disorder.overlapping_files, disorder.backward_lines, disorder.late_lines),
        (2, 0, 0)
    );
    let shift: Shift = format!("{}=+1s200ms", paths[1].display()).parse().unwrap();
    let options = ReadOptions { shifts: vec![shift], ..ReadOptions::default() };
    let (seen, _) = read(&paths, &options);
    let expected: Vec<_> = (0..50).flat_map(|n| [format!("/a{n}"), format!("/b{n}")]).collect();
    assert_eq!(paths_of(&seen), expected);
    assert_eq!((seen[1].at, seen.len()), ((DAY + 500) * 1_000, 100));
    for text in ["a.log", "a.log=1s", "a.log=+x", "a.log=-"] {
        assert!(text.parse::<Shift>().unwrap_err().contains("allowed is FILE=+TIME"), "{text}");
    }
}

#[test]
fn rotated_files_are_open_one_after_the_other() {
    let folder = Folder::new();
    let file = |number: u64| {
        let lines =
            (0..40).map(|n| line(DAY + (number * 40 + n) * 1_000, &format!("{}", number * 40 + n)));
        folder.write(&format!("log.{number}"), lines.collect::<String>())
    };
    let paths = [file(2), file(0), file(1)];
    let (seen, logs) = read(&paths, &ReadOptions::default());
    assert_eq!(paths_of(&seen), (0..120).map(|n| format!("/{n}")).collect::<Vec<_>>());
    assert_eq!(logs.disorder().overlapping_files, 1);
}

#[test]
fn time_backwards_is_sorted_within_the_window_and_counted() {
    let folder = Folder::new();
    let times = [0, 5_000, 3_000, 9_000, 100, 30_000, 12_000, 45_000, 46_000];
    let lines: String = times.iter().map(|at| line(DAY + at, &at.to_string())).collect();
    let path = folder.write("log", lines);
    let (seen, logs) = read(std::slice::from_ref(&path), &ReadOptions::default());
    // The window is 10 seconds: 12,000 comes when 30,000 has released all before 20,000, but it is after them.
    let sorted = ["/0", "/100", "/3000", "/5000", "/9000", "/12000", "/30000", "/45000", "/46000"];
    assert_eq!(paths_of(&seen), sorted);
    let disorder = logs.disorder();
    assert_eq!((disorder.backward_lines, disorder.late_lines), (3, 0));
    assert_eq!(disorder.largest_step, Duration::from_secs(18));

    let reorder = Duration::from_secs(1);
    let (seen, logs) = read(&[path], &ReadOptions { reorder, ..ReadOptions::default() });
    assert_eq!(seen.len(), times.len());
    assert!(seen.is_sorted_by_key(|it| it.at));
    // 100 comes after 5,000 and moves to it, for 9,000 is not released yet. 3,000 is sorted: 5,000 waits for 6,000.
    assert_eq!(
        paths_of(&seen),
        ["/0", "/3000", "/5000", "/100", "/9000", "/12000", "/30000", "/45000", "/46000"]
    );
    let disorder = logs.disorder();
    assert_eq!((disorder.late_lines, disorder.largest_move), (1, Duration::from_millis(4_900)));
    assert_eq!(seen[3].at, (DAY + 5_000) * 1_000);
}

#[test]
fn requests_of_the_same_second_stay_in_the_order_of_their_lines() {
    let folder = Folder::new();
    let lines: String = (0..500).map(|n| line(DAY + n / 100 * 1_000, &n.to_string())).collect();
    let (seen, logs) = read(&[folder.write("log", lines)], &ReadOptions::default());
    assert_eq!(paths_of(&seen), (0..500).map(|n| format!("/{n}")).collect::<Vec<_>>());
    assert!(logs.disorder().whole_seconds);
}

#[test]
fn the_window_is_bounded_also_where_all_lines_have_one_time() {
    let folder = Folder::new();
    let lines: String = (0..100_000).map(|_| line(DAY, "x")).collect();
    let mut logs = Logs::open(&[folder.write("log", lines)], &ReadOptions::default()).unwrap();
    logs.next().unwrap().unwrap();
    let (read, size) = logs.position();
    assert!(read < size.unwrap(), "the whole file was read: {read}");
    let mut count = 1;
    while logs.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 100_000);
}
