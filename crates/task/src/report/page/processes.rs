//! The processes as a tree, with their times as bars on the scale of the task.

use std::collections::HashMap;

use skopos_model::task::{Process, Summary, amount};

use super::html::Html;

/// The deepest indentation, so that there is room for the command line.
const MAX_INDENT: usize = 12;

/// The least width of a bar, in percent, so that it is visible.
const LEAST_BAR: f64 = 0.6;

pub(super) fn section(html: &mut Html, summary: &Summary) {
    html.raw("<section>\n<h2>Processes</h2>\n");
    if summary.processes.is_empty() {
        html.raw("<p>No process was recorded.</p>\n</section>\n");
        return;
    }
    if summary.processes_left_out > 0 {
        html.raw("<p>The processes with the greatest usage; ").count(summary.processes_left_out);
        html.raw(" more are left out.</p>\n");
    }
    html.raw(
        "<p class=\"soft\">Bytes read and written include those of children that the process ",
    );
    html.raw("waited for: the kernel adds them.</p>\n");
    html.table(&["Command", "Id", "When", "Ended", "Processor", "Memory", "Read", "Written"]);
    let end = end(summary);
    for (process, depth) in tree(&summary.processes) {
        row(html, process, depth, end);
    }
    html.end_table().raw("</section>\n");
}

/// The end of the scale: that of the task, or of a process that outlived it.
fn end(summary: &Summary) -> f64 {
    let wall = summary.resources.get("wall_seconds").and_then(|r| r.value).unwrap_or(0.0);
    let ends = summary.processes.iter().map(|p| p.end_seconds.unwrap_or(p.start_seconds));
    ends.fold(wall, f64::max).max(1e-6)
}

/// Orders processes so that each follows its parent, with its depth. If an id was used twice, the
/// parent is the last process with that id before.
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
    // The report may come from another tool: a time that is not a number counts as the start.
    let share = |seconds: f64| if seconds.is_finite() { 100.0 * seconds / end } else { 0.0 };
    let left = share(process.start_seconds).clamp(0.0, 100.0 - LEAST_BAR);
    // Not `clamp`: at the right edge, rounding may leave less than the least width.
    let wide = share(until - process.start_seconds).min(100.0 - left).max(LEAST_BAR);
    html.raw("<td class=\"time\"><svg viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" ");
    html.raw("role=\"img\"><title>from ").text(&amount(process.start_seconds, "seconds"));
    match process.end_seconds {
        Some(end) => html.raw(" to ").text(&amount(end, "seconds")),
        None => html.raw(" on; its exit was not recorded"),
    };
    html.raw("</title><rect class=\"lane\" width=\"100\" height=\"6\"/>");
    html.raw("<rect class=\"bar\" height=\"6\" x=\"").number(left).raw("\" width=\"");
    html.number(wide).raw("\"/></svg></td>");
}

fn ended(process: &Process) -> String {
    match (process.status, process.signal, process.end_seconds) {
        (_, Some(signal), _) => format!("signal {signal}"),
        (Some(status), ..) => status.to_string(),
        (_, _, Some(_)) => "unknown".to_owned(),
        _ => "still running".to_owned(),
    }
}
