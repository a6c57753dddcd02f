//! The picture of a search: the denied share against the limit, as SVG.

use std::fmt::Write;

use super::model::{Point, Window};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 112.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// The least share that the vertical axis shows. A smaller share, also none, lies on the axis.
const LEAST: f64 = 0.0001;

/// The shares with a label.
const SHARES: [f64; 5] = [1.0, 0.1, 0.01, 0.001, 0.0001];

impl Window {
    /// Returns the picture of the search, both of whose axes are logarithmic. `id` makes its names unique on a page.
    pub(super) fn chart(&self, id: usize) -> String {
        let (Some(first), Some(last)) = (self.curve.first(), self.curve.last()) else {
            return String::new();
        };
        let least = first.limit as f64;
        let most = (last.limit as f64).max(least * 2.0);
        let x =
            |limit: f64| LEFT + (limit / least).ln() / (most / least).ln() * (WIDTH - LEFT - RIGHT);
        let y =
            |share: f64| TOP + share.max(LEAST).log10() / LEAST.log10() * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"chart-{id}\">\n\
             <title id=\"chart-{id}\">Share of denied requests and of denied keys by the limit over {}. The table below \
             has the numbers.</title>\n",
            self.window
        );
        let right = WIDTH - RIGHT;
        let base = HEIGHT - BOTTOM;
        for share in SHARES {
            let at = y(share);
            let sign = if share == LEAST { "≤ " } else { "" };
            let text = format!("{sign}{} %", share * 100.0);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ = writeln!(
                svg,
                "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for (share, text) in [(0.05, "5 %: too strict"), (0.001, "0.1 %: too loose")] {
            let at = y(share);
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ =
                writeln!(svg, "<text x=\"{}\" y=\"{:.1}\">{text}</text>", right + 4.0, at + 4.0);
        }
        for limit in ticks(least, most) {
            let at = x(limit);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{base}\" y2=\"{}\"/>",
                base + 5.0
            );
            let _ = writeln!(
                svg,
                "<text class=\"middle\" x=\"{at:.1}\" y=\"{}\">{limit}</text>",
                base + 18.0
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{base}H{right}\"/>");
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"middle\" x=\"{middle}\" y=\"{}\">limit over {}</text>",
            HEIGHT - 8.0,
            self.window
        );
        if let Some(point) = self.curve.iter().find(|it| self.is_recommended(it)) {
            let at = x(point.limit as f64);
            let _ = writeln!(
                svg,
                "<line class=\"chosen\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{base}\"/>"
            );
        }
        for (class, share) in [
            ("keys", (|it| it.denied_keys_share) as fn(&Point) -> f64),
            ("requests", |it| it.denied_share),
        ] {
            let points = self.curve.iter().map(|it| (x(it.limit as f64), y(share(it))));
            let points: Vec<_> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        }
        svg + "</svg>\n"
    }
}

/// Returns the numbers 1, 2 and 5 times a power of ten between two limits, or the powers alone if these are many.
fn ticks(least: f64, most: f64) -> impl Iterator<Item = f64> {
    let steps: &[f64] = if most / least > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all =
        (0..10).flat_map(move |power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(move |limit| (least..=most).contains(limit))
}
