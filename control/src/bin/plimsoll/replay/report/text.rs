//! The report for a terminal.

use std::fmt::Write;

use comfy_table::CellAlignment;

use super::model::{Candidate, Report, Window, mark, seconds};
use crate::output::{plain_table, printable};

/// The most rows of the curve.
const MAX_ROWS: usize = 16;
/// The width of a full bar.
const BAR: f64 = 20.0;

impl Report {
    /// Returns the report as tables. Texts of the logs cannot write to the terminal.
    pub(in crate::replay) fn text(&self) -> String {
        let mut text = self.summary();
        for window in &self.windows {
            text += &window.text();
        }
        if !self.candidates.is_empty() {
            text += &self.comparison();
        }
        for candidate in self.candidates.iter().filter(|it| it.has_details()) {
            text += &candidate.details();
        }
        let lines: Vec<_> = text.lines().map(printable).collect();
        lines.join("\n")
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.title());
        for line in self.facts() {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    /// Returns the first line: how many requests of how many keys.
    pub(super) fn title(&self) -> String {
        let partial = if self.partial { "PARTIAL, interrupted: " } else { "" };
        let by = match (&self.limits, &self.key) {
            (Some(file), _) => format!("by the rules of {file}"),
            (None, key) => format!("by {}", key.as_deref().unwrap_or_default()),
        };
        let requests = grouped(self.requests);
        let keys = grouped(self.keys);
        format!("{partial}{requests} requests of {keys} keys, {by}")
    }

    /// Returns the facts about the logs, a line each.
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = vec![format!("logs: {}", self.logs.join(", "))];
        if let (Some(from), Some(to)) = (&self.from, &self.to) {
            facts.push(format!("from {from} to {to}"));
        }
        if let Some(cost) = self.cost.as_ref().filter(|cost| *cost != "1") {
            facts.push(format!("the cost of a request is {cost}"));
        }
        if let Some(filter) = &self.filter {
            let left_out = grouped(self.filtered);
            facts.push(format!("only {filter}: {left_out} requests are left out"));
        }
        if let Some(denied) = self.denied {
            let share = percent(denied as f64 / self.requests.max(1) as f64);
            facts.push(format!("the rules deny {} requests, {share}", grouped(denied)));
        }
        if self.skipped_lines > 0 {
            let lines = grouped(self.skipped_lines);
            facts.push(format!("{lines} lines could not be read. The first of them:"));
            facts.extend(self.skipped.iter().map(|line| format!("  {line}")));
        }
        facts.extend(self.notes.iter().cloned());
        facts
    }

    fn comparison(&self) -> String {
        let has_policies = self.candidates.iter().any(|it| it.policy.is_some());
        let mut head = vec!["limit", "algorithm", "denied", "", "keys", "", "longest", ""];
        if has_policies {
            head.insert(0, "policy");
        }
        let rows = self.candidates.iter().map(|it| {
            let mut row = vec![
                it.limit.clone(),
                it.algorithm.clone(),
                grouped(it.denied),
                percent(it.denied_share),
                grouped(it.denied_keys),
                percent(it.denied_keys_share),
                seconds(it.longest_shut_out_seconds),
                self.remark(it),
            ];
            if has_policies {
                row.insert(0, it.name());
            }
            row
        });
        format!("\n{}", table(&head, rows.collect()))
    }

    /// Returns the remark on a candidate: that it is recommended, or its mark.
    pub(super) fn remark(&self, candidate: &Candidate) -> String {
        let is = |window: &Window| window.recommended.as_deref() == Some(&candidate.limit);
        // The search was under the algorithm of the first row, whose clients retry.
        let is_recommended = candidate.retrying.is_some() && self.windows.iter().any(is);
        let mark = candidate.mark.unwrap_or_default();
        if is_recommended { "recommended" } else { mark }.to_owned()
    }
}

impl Window {
    fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.peaks());
        if let Some(advice) = self.advice() {
            let _ = writeln!(text, "{advice}");
        }
        if self.curve.is_empty() {
            return text;
        }
        let step = self.curve.len().div_ceil(MAX_ROWS);
        let last = self.curve.len() - 1;
        let shown = self.curve.iter().enumerate().filter(|(index, point)| {
            index % step == 0 || *index == last || self.is_recommended(point)
        });
        let rows = shown.map(|(_, point)| {
            let bar = "█".repeat((point.denied_share * BAR).ceil() as usize);
            let remark = if self.is_recommended(point) {
                Some("recommended")
            } else {
                mark(point.denied_share)
            };
            vec![
                self.limit(point.limit),
                grouped(point.denied),
                percent(point.denied_share),
                grouped(point.denied_keys),
                percent(point.denied_keys_share),
                bar,
                remark.unwrap_or_default().to_owned(),
            ]
        });
        text + &table(&["limit", "denied", "", "keys", "", "", ""], rows.collect())
    }

    /// Returns the peaks as a sentence.
    pub(super) fn peaks(&self) -> String {
        let [p50, p90, p99, p99_9] = [self.p50, self.p90, self.p99, self.p99_9].map(grouped);
        let most = grouped(self.most);
        let whole = grouped(self.whole);
        format!(
            "busiest window of {} of a key: p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9}, most {most}; of all keys \
             together {whole}",
            self.window
        )
    }

    /// Returns the recommendation as sentences, after a search.
    pub(super) fn advice(&self) -> Option<String> {
        if self.curve.is_empty() {
            return None;
        }
        let recommended = match &self.recommended {
            Some(limit) => format!(
                "recommended: {limit}, the smallest searched limit that denies less than 0.1 % of the requests and \
                 less than 1 % of the keys"
            ),
            None => "no searched limit denies less than 0.1 % of the requests and less than 1 % of the keys".into(),
        };
        let fits = &self.fits_99_percent_of_keys;
        let limit = fits.split('/').next().and_then(|limit| limit.parse().ok());
        let point = self.curve.iter().find(|point| Some(point.limit) == limit);
        let share = point.map(|point| {
            let share = percent(point.denied_share);
            let keys = grouped(point.denied_keys);
            format!(", and would deny {share} of the requests, and {keys} of the keys")
        });
        let share = share.unwrap_or_default();
        Some(format!(
            "{recommended}\nsmallest limit above which less than 1 % of the keys ever go: {fits}{share}"
        ))
    }
}

impl Candidate {
    fn details(&self) -> String {
        let mut text = format!("\n{}\n", self.quota());
        for line in self.sentences() {
            let _ = writeln!(text, "  {line}");
        }
        let rows = self.top.iter().map(|key| {
            vec![key.key.clone(), grouped(key.denied), seconds(key.longest_shut_out_seconds)]
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            text += &table(&["key", "denied", "longest shut out"], rows);
        }
        text
    }

    /// Returns whether more is known than its row: the policies of rules, and the first algorithm of a limit.
    pub(super) fn has_details(&self) -> bool {
        self.policy.is_some() || self.retrying.is_some()
    }

    /// Returns policy, limit and algorithm.
    pub(super) fn quota(&self) -> String {
        let Self { limit, algorithm, .. } = self;
        let name = self.name();
        if name.is_empty() {
            format!("{limit} {algorithm}")
        } else {
            format!("{name}: {limit} {algorithm}")
        }
    }

    /// Returns the policy, with its kind if that is not live.
    pub(super) fn name(&self) -> String {
        let policy = self.policy.as_deref().unwrap_or_default();
        match self.kind {
            Some(kind @ ("shadow" | "trial")) => format!("{policy} ({kind})"),
            _ => policy.to_owned(),
        }
    }

    /// Returns what is known beside the denials, a line each.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(retrying) = &self.retrying {
            let [at_once, late, given_up] =
                [retrying.at_once, retrying.late, retrying.given_up].map(grouped);
            let longest = seconds(retrying.longest_wait_seconds);
            lines.push(format!(
                "clients that honour Retry-After: {at_once} requests pass at once, {late} after a wait of up to \
                 {longest}, {given_up} are given up"
            ));
        }
        if let Some(plan) = &self.redis {
            lines.push(format!(
                "Redis in the busiest window: {} KiB, {} commands a second, {:.1} % of a core (one instance, 0.5 ms \
                 round trip)",
                grouped(plan.memory_bytes.div_ceil(1024)),
                grouped(plan.commands_per_second),
                plan.busy_cores * 100.0
            ));
        }
        lines
    }
}

fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = plain_table();
    table.set_header(head).add_rows(rows);
    let numbers = ["denied", "keys", "longest", "longest shut out"];
    for (index, name) in head.iter().enumerate() {
        let is_share = name.is_empty() && index > 0 && numbers[..2].contains(&head[index - 1]);
        if let Some(column) = table.column_mut(index)
            && (is_share || numbers.contains(name))
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

/// Returns a number with a comma between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a share in percent, with three digits behind the point below 1 %.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        small if small < 0.001 => "<0.001 %".to_owned(),
        small if small < 1.0 => format!("{small:.3} %"),
        _ => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let shares = [0.0, 1e-9, 0.0005, 0.051, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "<0.001 %", "0.050 %", "5.1 %", "100.0 %"]);
    }
}
