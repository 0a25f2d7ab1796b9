//! The processes as a tree, their times as bars over that of the task.

use std::collections::HashMap;

use skopos_model::task::{Process, Summary, amount};

use super::html::Html;

/// Deeper ones are not indented further, so that there is room for the command line.
const MAX_INDENT: usize = 12;

/// A bar is never thinner than this share of the time, or it would not be seen.
const LEAST_BAR: f64 = 0.6;

pub(super) fn section(html: &mut Html, summary: &Summary) {
    html.raw("<section>\n<h2>Its processes</h2>\n");
    if summary.processes.is_empty() {
        html.raw("<p>None was seen.</p>\n</section>\n");
        return;
    }
    if summary.processes_left_out > 0 {
        html.raw("<p>Those that used most; ").count(summary.processes_left_out);
        html.raw(" more are left out.</p>\n");
    }
    html.raw(
        "<p class=\"soft\">What a process read and wrote has in it what children did that it ",
    );
    html.raw("waited for: the kernel adds it there.</p>\n");
    html.raw("<div class=\"scroll\"><table>\n<thead><tr>");
    for name in ["Command", "Id", "When", "Ended", "Processor", "Memory", "Read", "Written"] {
        html.raw("<th scope=\"col\">").raw(name).raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
    let end = end(summary);
    for (process, depth) in tree(&summary.processes) {
        row(html, process, depth, end);
    }
    html.raw("</tbody>\n</table></div>\n</section>\n");
}

/// The end of the bars' scale: that of the task, or of the process that outlived it.
fn end(summary: &Summary) -> f64 {
    let wall = summary.resources.get("wall_seconds").and_then(|r| r.value).unwrap_or(0.0);
    let ends = summary.processes.iter().map(|p| p.end_seconds.unwrap_or(p.start_seconds));
    ends.fold(wall, f64::max).max(1e-6)
}

/// Each process after its parent, with how many stand above it. An id may have been used twice: the
/// parent is the last of that id in the list before.
fn tree(processes: &[Process]) -> Vec<(&Process, usize)> {
    let mut last: HashMap<i32, usize> = HashMap::new();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    let mut roots = Vec::new();
    for (at, process) in processes.iter().enumerate() {
        match last.get(&process.parent).filter(|_| process.parent != process.pid) {
            Some(parent) => children[*parent].push(at),
            None => roots.push(at),
        }
        last.insert(process.pid, at);
    }
    let mut order = Vec::with_capacity(processes.len());
    let mut waiting: Vec<(usize, usize)> = roots.into_iter().rev().map(|at| (at, 0)).collect();
    while let Some((at, depth)) = waiting.pop() {
        order.push((&processes[at], depth));
        waiting.extend(children[at].iter().rev().map(|child| (*child, depth + 1)));
    }
    order
}

fn row(html: &mut Html, process: &Process, depth: usize, end: f64) {
    html.raw("<tr><td style=\"padding-left:").number(1.1 * depth.min(MAX_INDENT) as f64);
    html.raw("rem\">");
    if depth > 0 {
        html.raw("<span class=\"soft\" aria-hidden=\"true\">└ </span>");
    }
    html.raw("<code>").text(&process.command).raw("</code></td><td class=\"v n\">");
    html.count(process.pid).raw("</td>");
    bar(html, process, end);
    html.raw("<td>").text(&ended(process)).raw("</td>");
    let bytes = |value: Option<u64>| value.map(|v| amount(v as f64, "bytes"));
    let cells = [
        process.cpu_seconds.map(|cpu| amount(cpu, "seconds")),
        bytes(process.resident_bytes_max),
        bytes(process.read_bytes),
        bytes(process.written_bytes),
    ];
    for cell in cells {
        html.raw("<td class=\"v\">").text(cell.as_deref().unwrap_or("?")).raw("</td>");
    }
    html.raw("</tr>\n");
}

fn bar(html: &mut Html, process: &Process, end: f64) {
    let until = process.end_seconds.unwrap_or(end).max(process.start_seconds);
    // A report may have been written by anybody: a time that is no number is taken for the start.
    let share = |seconds: f64| if seconds.is_finite() { 100.0 * seconds / end } else { 0.0 };
    let left = share(process.start_seconds).clamp(0.0, 100.0 - LEAST_BAR);
    // Not `clamp`: at the right edge there is a rounding less than the least bar left.
    let wide = share(until - process.start_seconds).min(100.0 - left).max(LEAST_BAR);
    html.raw("<td class=\"time\"><svg viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" ");
    html.raw("role=\"img\"><title>from ").text(&amount(process.start_seconds, "seconds"));
    match process.end_seconds {
        Some(end) => html.raw(" to ").text(&amount(end, "seconds")),
        None => html.raw(" on; its end was not seen"),
    };
    html.raw("</title><rect class=\"lane\" width=\"100\" height=\"6\"/>");
    html.raw("<rect class=\"bar\" height=\"6\" x=\"").number(left).raw("\" width=\"");
    html.number(wide).raw("\"/></svg></td>");
}

fn ended(process: &Process) -> String {
    match (process.status, process.signal, process.end_seconds) {
        (_, Some(signal), _) => format!("signal {signal}"),
        (Some(status), ..) => status.to_string(),
        (_, _, Some(_)) => "unseen".to_owned(),
        _ => "runs on".to_owned(),
    }
}
