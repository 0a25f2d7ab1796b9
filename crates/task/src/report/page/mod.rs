//! The report as a page: one file that opens from disk, needs no network and runs no script.
//!
//! The page has these parts, in this order: the end of the task, findings with advice, the
//! resources with their accuracy ([`numbers`]), the usage over time ([`plot`]), the processes
//! ([`processes`]), and the mechanisms. [`html`] keeps the task's own text from becoming markup.

mod html;
mod nested;
mod numbers;
mod plot;
mod processes;
mod ranks;

use skopos_model::Timestamp;
use skopos_model::task::{ExitType, Summary, amount};

use self::html::Html;
use super::series::Row;

/// Styles for light and dark screens, and for paper.
const STYLE: &str = include_str!("style.css");

/// Returns the complete page.
pub fn page(summary: &Summary, series: &[Row]) -> String {
    let mut html = Html::default();
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    // The page loads nothing: even if text of a task ever escaped the escaping, it could neither
    // run nor contact another machine.
    html.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
    html.raw("style-src 'unsafe-inline'\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    html.text(&summary.task.class).raw(": ").text(&ended(summary)).raw("</title>\n<style>\n");
    html.raw(STYLE).raw("</style>\n</head>\n<body>\n<main>\n");
    header(&mut html, summary);
    findings(&mut html, summary);
    numbers::section(&mut html, summary);
    plot::section(&mut html, summary, series);
    ranks::section(&mut html, summary);
    nested::section(&mut html, summary);
    if summary.job.is_none() {
        processes::section(&mut html, summary);
    }
    mechanisms(&mut html, summary);
    overhead(&mut html, summary);
    place(&mut html, summary);
    html.raw("</main>\n</body>\n</html>\n");
    html.into_string()
}

/// Describes the end of the task.
fn ended(summary: &Summary) -> String {
    let ended = &summary.ended;
    match (ended.exit_type, ended.status, ended.signal) {
        (ExitType::Limit, ..) => format!("ended for a limit: {}", ended.limits.join(", ")),
        (ExitType::Running, ..) => "still running when the monitor detached".to_owned(),
        (_, _, Some(signal)) => format!("died of signal {}", super::signals::signal_name(signal)),
        (_, Some(status), _) => format!("returned {status}"),
        _ => "ended with an unknown status".to_owned(),
    }
}

fn header(html: &mut Html, summary: &Summary) {
    html.raw("<header>\n<h1>").text(&summary.task.class).raw("</h1>\n");
    html.raw("<p class=\"ended\">The task <strong>").text(&predicate(summary)).raw("</strong>");
    let wall = summary.resources.get("wall_seconds").and_then(|r| r.value);
    if let Some(wall) = wall {
        html.raw(" after ").text(&amount(wall, "seconds"));
    }
    html.raw(".");
    if let Some(guilty) = &summary.ended.guilty {
        html.raw(" Most of it was used by <code>").text(guilty).raw("</code>.");
    }
    html.raw("</p>\n<p><code>").text(&command(&summary.task.command)).raw("</code></p>\n");
    html.raw("</header>\n");
}

/// Describes the end in a sentence that begins with "The task".
fn predicate(summary: &Summary) -> String {
    match summary.ended.exit_type {
        ExitType::Limit => format!("was {}", ended(summary)),
        ExitType::Running => "was still running when the monitor detached".to_owned(),
        _ => ended(summary),
    }
}

/// Formats a command for a shell: words with special characters are quoted.
fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn findings(html: &mut Html, summary: &Summary) {
    html.raw("<section>\n<h2>Findings</h2>\n");
    for finding in &summary.findings {
        html.raw("<div class=\"card\"><p><strong>").text(&finding.what).raw("</strong></p>");
        html.raw("<p>").text(&finding.advice).raw("</p></div>\n");
    }
    for note in &summary.disturbed {
        html.raw("<div class=\"card warn\"><p><strong>Measurement disturbed: </strong>");
        html.text(note).raw("</p></div>\n");
    }
    if summary.findings.is_empty() {
        html.raw("<p>There are no findings.</p>\n");
    }
    html.raw("</section>\n");
}

fn mechanisms(html: &mut Html, summary: &Summary) {
    html.raw("<section>\n<h2>Mechanisms</h2>\n<p>Level ");
    html.count(summary.level).raw(", by ").text(&summary.task.monitor).raw(".</p>\n");
    html.table(&["Mechanism", "Used", "Purpose or reason"]);
    for mechanism in &summary.mechanisms {
        html.raw("<tr><th scope=\"row\"><code>").text(&mechanism.name).raw("</code></th><td>");
        html.raw(if mechanism.used { "yes" } else { "no" }).raw("</td><td>");
        html.text(&mechanism.why).raw("</td></tr>\n");
    }
    html.end_table().raw("</section>\n");
}

fn overhead(html: &mut Html, summary: &Summary) {
    let own = summary.overhead;
    html.raw("<section>\n<h2>Overhead of the monitor</h2>\n");
    if summary.level == 0 {
        html.raw("<p>The tool that measured the task does not report it.</p>\n</section>\n");
        return;
    }
    html.raw("<dl>\n<dt>Processor time</dt><dd>");
    html.text(&amount(own.cpu_seconds, "seconds"));
    let wall = summary.resources.get("wall_seconds").and_then(|r| r.value).filter(|w| *w > 0.0);
    if let Some(wall) = wall {
        html.raw(" (").number(100.0 * own.cpu_seconds / wall).raw(" % of a core)");
    }
    html.raw("</dd>\n<dt>Memory</dt><dd>");
    html.text(&amount(own.resident_bytes_max as f64, "bytes")).raw("</dd>\n");
    html.raw("<dt>Stops of the task</dt><dd>").count(own.stops).raw("</dd>\n</dl>\n</section>\n");
}

fn place(html: &mut Html, summary: &Summary) {
    let row = |html: &mut Html, name: &'static str, value: &str| {
        html.raw("<dt>").raw(name).raw("</dt><dd>").text(value).raw("</dd>\n");
    };
    html.raw("<section>\n<h2>Host</h2>\n<dl>\n");
    row(html, "Node", &summary.host.node);
    row(html, "Kernel", &summary.host.kernel);
    row(html, "Cores", &summary.host.cores.to_string());
    row(html, "Memory", &amount(summary.host.memory_bytes as f64, "bytes"));
    row(html, "Folder", &summary.task.folder);
    row(html, "Started", &utc(summary.start_seconds));
    row(html, "Ended", &utc(summary.end_seconds));
    if let Some(attached) = summary.task.attached {
        row(html, "Attached to", &attached.to_string());
    }
    if let Some(rank) = &summary.task.rank {
        let of = format!("{} of {} in job {}", rank.rank, rank.size, rank.job);
        row(html, "Rank", &format!("{of} ({})", rank.launcher));
    }
    html.raw(
        "</dl>\n<p class=\"soft\">Beside this page: <code>summary.json</code> contains all its ",
    );
    html.raw("numbers, <code>series.csv</code> the usage over time.</p>\n</section>\n");
}

/// Formats seconds of UNIX time as `2026-01-31 23:59:59 UTC`; returns the number itself if it is
/// out of range.
fn utc(seconds: f64) -> String {
    /// A second before the last time of a [`Timestamp`], in the year 2262.
    const LAST: f64 = (i64::MAX / 1_000_000_000 - 1) as f64;
    if !(0.0..=LAST).contains(&seconds) {
        return format!("{seconds} s");
    }
    let time = Timestamp::from_nanos(seconds as i64 * 1_000_000_000).to_string();
    let whole = time.split('.').next().unwrap_or_default();
    format!("{} UTC", whole.replace('T', " "))
}

#[cfg(test)]
mod tests;
