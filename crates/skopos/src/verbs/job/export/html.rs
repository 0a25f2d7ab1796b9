//! A job as a page: one file that loads nothing, has no scripts, and shows every text of the job as text.

use std::fmt::Write as _;

use skopos_model::task::amount;

use crate::verbs::job::one::{Line, OneJob};
use crate::verbs::job::show::{metadata, unit};

/// Size of a plot, in pixels.
const PLOT: (f64, f64) = (600.0, 80.0);

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse}td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}\
    td{overflow-wrap:anywhere}svg{display:block;background:#f4f4f4}polyline{fill:none;stroke:#2266aa;stroke-width:1.5}\
    .serious{color:#a00000}.warning{color:#8a5a00}.dim{color:#666}";

/// Escapes a text for HTML, in elements and in attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the page of a job.
pub(super) fn page(job: &OneJob) -> String {
    let title = escape(&format!("Job {}", job.job));
    // The policy of the page refuses everything that it would load, whatever a browser makes of a text.
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>\n"
    );
    findings(job, &mut html);
    table(&mut html, "Metadata", metadata(job).into_iter());
    let used = job.resources().map(|(name, _, text)| (name.to_owned(), text));
    table(&mut html, "Resources", used);
    if !job.series.is_empty() {
        html += "<h2>Series</h2>\n";
    }
    job.series.iter().for_each(|line| plot(line, &mut html));
    if job.series_left_out > 0 {
        let _ = writeln!(html, "<p>{} more series are not shown.</p>", job.series_left_out);
    }
    html += "</body></html>\n";
    html
}

fn findings(job: &OneJob, html: &mut String) {
    *html += "<h2>Findings</h2>\n";
    let found = job.findings.iter().filter(|finding| finding.is_found());
    let mut count = 0;
    for finding in found {
        count += 1;
        let text = |text: &Option<String>| escape(text.as_deref().unwrap_or_default());
        let severity = text(&finding.severity);
        let _ = writeln!(
            html,
            "<p><strong class=\"{severity}\">{severity}: {}</strong>: {}<br>{}<br>{}</p>",
            escape(&finding.finding),
            text(&finding.what),
            escape(&finding.shown_evidence()),
            text(&finding.advice)
        );
    }
    if count == 0 {
        *html += "<p>Nothing was found.</p>\n";
    }
    let unknown = job.findings.iter().filter(|finding| finding.verdict == "unknown");
    for finding in unknown {
        let (name, reason) = (&finding.finding, finding.reason.as_deref().unwrap_or_default());
        let (name, reason) = (escape(name), escape(reason));
        let _ = writeln!(html, "<p class=\"dim\">not judged: {name}: {reason}</p>");
    }
}

fn table(html: &mut String, title: &str, rows: impl Iterator<Item = (String, String)>) {
    let _ = writeln!(html, "<h2>{title}</h2>\n<table>");
    for (name, value) in rows {
        let _ = writeln!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&value));
    }
    *html += "</table>\n";
}

fn plot(line: &Line, html: &mut String) {
    let Some((low, high)) = line.points.bounds() else { return };
    let rate = if line.is_rate { " in a second" } else { "" };
    let shown = |value: f64| escape(&amount(value, unit(&line.metric)));
    let (node, metric) = (escape(&line.node), escape(&line.metric));
    let _ = writeln!(html, "<p>{node} {metric}{rate}: {} to {}</p>", shown(low), shown(high));
    let values = line.points.values();
    let last = values.len().saturating_sub(1).max(1) as f64;
    let point = |(at, value): (usize, &Option<f64>)| {
        let share = ((*value)? / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        let share = if share.is_finite() { share } else { 0.0 };
        let (x, y) = (PLOT.0 * at as f64 / last, PLOT.1 - 4.0 - (PLOT.1 - 8.0) * share);
        Some(format!("{x:.1},{y:.1}"))
    };
    let points: Vec<String> = values.iter().enumerate().filter_map(point).collect();
    let (width, height) = PLOT;
    let _ = writeln!(
        html,
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"><polyline points=\"{}\"/></svg>",
        points.join(" ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_element_or_attribute() {
        let hostile = "<script>alert('x')</script>\"&\u{1b}";
        let safe = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}";
        assert_eq!(escape(hostile), safe);
    }
}
