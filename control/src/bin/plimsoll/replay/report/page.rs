//! The report as one HTML page without scripts and without resources from elsewhere.

use std::fmt::Write;

use super::{
    model::{Candidate, Report, Window, mark, seconds},
    text::{grouped, percent},
};

const STYLE: &str = include_str!("page.css");

impl Report {
    /// Returns the page. Texts of the logs are escaped.
    pub(in crate::replay) fn page(&self) -> String {
        let title = escaped(&self.title());
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>Replay: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        if self.partial {
            page += "<p class=\"partial\">The replay was interrupted. The numbers cover the part that was read.</p>\n";
        }
        page += "<ul>\n";
        for fact in self.facts() {
            let _ = writeln!(page, "<li>{}</li>", escaped(fact.trim()));
        }
        page += "</ul>\n";
        for (id, window) in self.windows.iter().enumerate() {
            page += &window.section(id);
        }
        if !self.candidates.is_empty() {
            page += &self.comparison_section();
        }
        for candidate in self.candidates.iter().filter(|it| it.has_details()) {
            page += &candidate.section();
        }
        page + "</main>\n</body>\n</html>\n"
    }

    fn comparison_section(&self) -> String {
        let rows = self.candidates.iter().map(|it| {
            let remark = self.remark(it);
            let cells = [
                it.quota(),
                grouped(it.denied),
                percent(it.denied_share),
                grouped(it.denied_keys),
                percent(it.denied_keys_share),
                seconds(it.longest_shut_out_seconds),
                remark.clone(),
            ];
            (cells, remark == "recommended")
        });
        let head =
            ["limit", "denied", "of requests", "keys", "of keys", "longest shut out", "remark"];
        let caption = "Denied requests, keys that were ever denied, and the longest time for which a key was shut out.";
        format!("<h2>Side by side</h2>\n{}", table(caption, head, rows))
    }
}

impl Window {
    fn section(&self, id: usize) -> String {
        let mut section = format!(
            "<h2>A window of {}</h2>\n<p>{}</p>\n",
            escaped(&self.window),
            escaped(&self.peaks())
        );
        let Some(advice) = self.advice() else { return section };
        for line in advice.lines() {
            let _ = writeln!(section, "<p>{}</p>", escaped(line));
        }
        section += &self.chart(id);
        section += "<p class=\"legend\"><span class=\"requests\">solid: denied requests</span>\
                    <span class=\"keys\">dashed: denied keys</span><span class=\"chosen\">upright: recommended</span></p>\n";
        let rows = self.curve.iter().map(|point| {
            let is_recommended = self.is_recommended(point);
            let remark =
                if is_recommended { Some("recommended") } else { mark(point.denied_share) };
            let cells = [
                self.limit(point.limit),
                grouped(point.denied),
                percent(point.denied_share),
                grouped(point.denied_keys),
                percent(point.denied_keys_share),
                remark.unwrap_or_default().to_owned(),
            ];
            (cells, is_recommended)
        });
        let caption = "Each searched limit, under a sliding log.";
        let head = ["limit", "denied", "of requests", "keys", "of keys", "remark"];
        let rows = table(caption, head, rows);
        section + &format!("<details open><summary>The numbers</summary>\n{rows}</details>\n")
    }
}

impl Candidate {
    fn section(&self) -> String {
        let mut section = format!("<h2>{}</h2>\n<ul>\n", escaped(&self.quota()));
        for line in self.sentences() {
            let _ = writeln!(section, "<li>{}</li>", escaped(&line));
        }
        section += "</ul>\n";
        if self.top.is_empty() {
            return section;
        }
        let rows = self.top.iter().map(|key| {
            let longest = seconds(key.longest_shut_out_seconds);
            ([key.key.clone(), grouped(key.denied), longest], false)
        });
        section
            + &table("The keys with the most denials.", ["key", "denied", "longest shut out"], rows)
    }
}

/// Returns a table that scrolls by itself where the page is narrow. A row that is chosen is bold.
fn table<const N: usize>(
    caption: &str,
    head: [&str; N],
    rows: impl Iterator<Item = ([String; N], bool)>,
) -> String {
    let mut table = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>\n\
         <caption>{caption}</caption>\n<thead><tr>"
    );
    for name in head {
        let _ = write!(table, "<th scope=\"col\">{name}</th>");
    }
    table += "</tr></thead>\n<tbody>\n";
    for (cells, is_chosen) in rows {
        table += if is_chosen { "<tr class=\"chosen-row\">" } else { "<tr>" };
        for cell in &cells {
            let _ = write!(table, "<td>{}</td>", escaped(cell));
        }
        table += "</tr>\n";
    }
    table + "</tbody>\n</table></div>\n"
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}
