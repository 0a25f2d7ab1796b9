//! Monitors that ran inside the task.

use skopos_model::task::{Nested, Summary, amount};

use super::html::Html;

pub(super) fn section(html: &mut Html, summary: &Summary) {
    if summary.nested.is_empty() {
        return;
    }
    html.raw("<section>\n<h2>Monitors inside the task</h2>\n");
    html.raw("<p class=\"soft\">The numbers above include their measurements.</p>\n");
    html.table(&["Class", "Command", "Id", "Level", "Ended", "Time", "Processor", "Memory"]);
    for one in &summary.nested {
        row(html, one);
    }
    html.end_table();
    if summary.nested_left_out > 0 {
        html.raw("<p>").count(summary.nested_left_out).raw(" more are left out.</p>\n");
    }
    html.raw("</section>\n");
}

fn row(html: &mut Html, one: &Nested) {
    html.raw("<tr><td>").text(&one.class).raw("</td><td><code>").text(&one.command);
    html.raw("</code></td><td class=\"v n\">").count(one.pid).raw("</td><td class=\"v\">");
    html.count(one.level).raw("</td><td>").text(&ended(one)).raw("</td>");
    for (name, unit) in
        [("wall_seconds", "seconds"), ("cpu_seconds", "seconds"), ("resident_bytes_max", "bytes")]
    {
        let value = one.resources.get(name).and_then(|r| r.value).map(|v| amount(v, unit));
        html.raw("<td class=\"v\">").text(value.as_deref().unwrap_or("?")).raw("</td>");
    }
    html.raw("</tr>\n");
}

fn ended(one: &Nested) -> String {
    match (one.status, one.signal) {
        (Some(status), _) => status.to_string(),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "not reported".to_owned(),
    }
}
