//! The ranks of a parallel job, and those without a report.

use skopos_model::task::{ExitType, Job, RankUse, Summary, amount};

use super::html::Html;

pub(super) fn section(html: &mut Html, summary: &Summary) {
    let Some(job) = &summary.job else { return };
    html.raw("<section>\n<h2>Ranks</h2>\n<p>").count(job.ranks_total);
    html.raw(" in job ").text(if job.id.is_empty() { "without a name" } else { &job.id });
    html.raw(" (").text(&job.launcher).raw("). ");
    missing(html, job);
    html.raw("</p>\n").table(&[
        "Rank",
        "Node",
        "Ended",
        "Time",
        "Processor",
        "Memory",
        "Read",
        "Written",
    ]);
    for rank in &job.ranks {
        row(html, rank);
    }
    html.end_table();
    if job.ranks_left_out > 0 {
        html.raw("<p>").count(job.ranks_left_out).raw(" more are left out.</p>\n");
    }
    html.raw("<p class=\"soft\">The report of each rank is in its folder beside this page.</p>\n");
    html.raw("</section>\n");
}

fn missing(html: &mut Html, job: &Job) {
    if job.missing_total == 0 {
        html.raw("All of them have a report.");
        return;
    }
    let names: Vec<String> = job.missing.iter().map(u32::to_string).collect();
    html.count(job.missing_total).raw(" have no report: ").text(&names.join(", "));
    html.raw(if job.missing.len() as u64 == job.missing_total { "." } else { ", …" });
}

fn row(html: &mut Html, rank: &RankUse) {
    html.raw("<tr><td class=\"v n\">").count(rank.rank).raw("</td><td>").text(&rank.node);
    html.raw("</td><td>").text(&ended(rank)).raw("</td>");
    let bytes = |value: Option<f64>| value.map(|v| amount(v, "bytes"));
    for cell in [
        rank.wall_seconds.map(|v| amount(v, "seconds")),
        rank.cpu_seconds.map(|v| amount(v, "seconds")),
        bytes(rank.resident_bytes_max),
        bytes(rank.read_bytes),
        bytes(rank.written_bytes),
    ] {
        html.raw("<td class=\"v\">").text(cell.as_deref().unwrap_or("?")).raw("</td>");
    }
    html.raw("</tr>\n");
}

fn ended(rank: &RankUse) -> String {
    match (rank.exit_type, rank.status, rank.signal) {
        (ExitType::Limit, ..) => "for a limit".to_owned(),
        (_, Some(status), _) => status.to_string(),
        (_, _, Some(signal)) => format!("signal {signal}"),
        (ExitType::Running, ..) => "still running".to_owned(),
        _ => "unknown".to_owned(),
    }
}
