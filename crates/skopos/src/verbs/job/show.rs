//! `skopos job show ID`.

use std::process::ExitCode;

use serde_json::Value as Json;
use skopos_model::task::{RESOURCES, amount};
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

use super::found::Finding;
use super::hub::Hub;
use super::one::OneJob;

pub(crate) fn run(global: &Global, id: &str) -> Result<ExitCode, Failure> {
    let hub = Hub::open(global)?;
    let id = hub.find(id)?;
    let job = OneJob::ask(&hub, &id)?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&job)?,
        Style::Plain => plain(&job, &mut out)?,
        Style::Human => human(&job, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a value as a cell.
pub(super) fn cell(value: &Json) -> String {
    match value {
        Json::String(text) => printable(text),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the metadata as names and values, those that are known.
pub(super) fn metadata(job: &OneJob) -> Vec<(String, String)> {
    let columns = job.metadata.iter().filter(|(_, value)| !value.is_null());
    let columns = columns.map(|(name, value)| (name.clone(), cell(value)));
    let fields = job.fields.iter().map(|field| {
        let name =
            field.name.as_ref().map_or(String::new(), |name| format!(" {}", printable(name)));
        (format!("{}{name}", field.field), printable(&field.value))
    });
    columns.chain(fields).collect()
}

/// Returns the value of a field of the metadata for people: a requested amount with its unit.
pub(super) fn with_unit(field: &str, value: String) -> String {
    let name = match field {
        "requested_bytes" => Some("resident_bytes_max"),
        other => other.strip_prefix("requested "),
    };
    let resource = name.and_then(|name| RESOURCES.iter().find(|known| known.name == name));
    match resource.zip(value.parse().ok()) {
        Some((resource, number)) => amount(number, resource.unit),
        None => value,
    }
}

fn plain(job: &OneJob, out: &mut Out) -> Result<(), Failure> {
    for (name, value) in metadata(job) {
        out.line(format!("metadata\t{name}\t{value}"))?;
    }
    for f in &job.findings {
        let text = |text: &Option<String>| text.as_deref().map_or(String::new(), printable);
        let why = if f.is_found() { text(&f.what) } else { text(&f.reason) };
        let severity = f.severity.as_deref().unwrap_or_default();
        out.line(format!("finding\t{}\t{}\t{severity}\t{why}", f.finding, f.verdict))?;
    }
    for (name, value, _) in job.resources() {
        out.line(format!("used\t{name}\t{value}"))?;
    }
    for line in &job.series {
        let (low, high) = line.points.bounds().unwrap_or_default();
        let (node, metric) = (printable(&line.node), printable(&line.metric));
        out.line(format!("series\t{node}\t{}\t{metric}\t{low}\t{high}", printable(&line.schema)))?;
    }
    Ok(())
}

fn human(job: &OneJob, out: &mut Out) -> Result<(), Failure> {
    let rows = metadata(job).into_iter().map(|(name, value)| {
        let value = with_unit(&name, value);
        vec![name, value]
    });
    out.table(&rows.collect::<Vec<_>>(), &[])?;
    out.line("")?;
    for finding in job.findings.iter().filter(|finding| finding.is_found()) {
        found(finding, out)?;
    }
    if !job.findings.iter().any(Finding::is_found) {
        out.line("nothing was found")?;
    }
    let others = |verdict: &str| {
        let names = job.findings.iter().filter(|f| f.verdict == verdict);
        names.map(|f| f.finding.clone()).collect::<Vec<_>>()
    };
    if !others("absent").is_empty() {
        out.line(out.dim(&format!("absent: {}", others("absent").join(", "))))?;
    }
    for f in job.findings.iter().filter(|f| f.verdict == "unknown") {
        let reason = f.reason.as_deref().map_or(String::new(), printable);
        out.line(out.dim(&format!("not judged: {}: {reason}", f.finding)))?;
    }
    out.line("")?;
    let rows = job.resources().map(|(name, _, text)| vec![name.to_owned(), text]);
    out.table(&rows.collect::<Vec<_>>(), &[1])?;
    if job.series.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let row = |line: &super::one::Line| {
        let rate = if line.is_rate { " /s" } else { "" };
        let (low, high) = line.points.bounds()?;
        let unit = unit(&line.metric);
        let shown = |value: f64| skopos_model::task::amount(value, unit);
        Some(vec![
            printable(&line.node),
            format!("{}{rate}", printable(&line.metric)),
            line.points.line(),
            format!("{} … {}", shown(low), shown(high)),
        ])
    };
    let rows: Vec<Vec<String>> = job.series.iter().filter_map(row).collect();
    out.table(&rows, &[])?;
    if job.series_left_out > 0 {
        let left = job.series_left_out;
        out.line(format!(
            "{left} more series: `skopos sql` and the table `job_samples` show them"
        ))?;
    }
    Ok(())
}

fn found(finding: &Finding, out: &mut Out) -> Result<(), Failure> {
    let severity = finding.severity.as_deref().unwrap_or_default();
    let head = format!("{severity}: {}", finding.finding);
    let what = finding.what.as_deref().map_or(String::new(), printable);
    out.line(format!("{}: {what}", out.bold(&head)))?;
    out.line(format!("  evidence: {}", printable(&finding.shown_evidence())))?;
    if let Some(advice) = &finding.advice {
        out.line(format!("  advice:   {advice}"))?;
    }
    Ok(())
}

/// Returns the unit that the end of a metric's name tells. A rate of seconds is a number of cores.
pub(super) fn unit(metric: &str) -> &'static str {
    let name = metric.strip_suffix("_total").unwrap_or(metric);
    if name.ends_with("_bytes") { "bytes" } else { "" }
}
