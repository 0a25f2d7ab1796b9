//! The report for a person: the findings with advice, then the end of the task and the main numbers. The
//! whole report is in `summary.json`.

use std::fmt::Write as _;
use std::path::Path;

use skopos_model::task::{Completeness, Crossing, ExitType, RESOURCES, Reading, Summary, amount};

/// The main numbers for a person.
const SHOWN: [&str; 12] = [
    "wall_seconds",
    "cpu_seconds",
    "cores",
    "resident_bytes_max",
    "processes_max",
    "processes_total",
    "read_bytes",
    "written_bytes",
    "device_read_bytes",
    "device_written_bytes",
    "files",
    "footprint_bytes",
];

/// Formats a value that is near its limit.
pub(super) fn near(near: &Crossing) -> String {
    let resource = near.limit.resource;
    let (value, most) = (amount(near.value, resource.unit), amount(near.limit.most, resource.unit));
    format!("{}: {value} of {most}", resource.short())
}

/// The report.
pub(super) fn summary(summary: &Summary, place: Option<&Path>) -> String {
    let mut text = String::new();
    for finding in &summary.findings {
        let _ = writeln!(text, "! {}\n  {}", finding.what, finding.advice);
    }
    for disturbed in &summary.disturbed {
        let _ = writeln!(text, "! measurement disturbed: {disturbed}");
    }
    let _ = writeln!(text, "{}: {}", summary.task.class, ended(summary));
    if let Some(attached) = summary.task.attached {
        let _ = writeln!(text, "  attached to {attached}");
    }
    for name in SHOWN {
        let Some(reading) = summary.resources.get(name).filter(|r| r.value.is_some()) else {
            continue;
        };
        let unit = RESOURCES.iter().find(|r| r.name == name).map_or("", |r| r.unit);
        let value = reading.value.map(|value| amount(value, unit)).unwrap_or_default();
        let _ = writeln!(text, "  {name:<20} {:>14}  {}", sign(reading) + &value, reading.method);
    }
    let own = summary.overhead;
    let _ = write!(
        text,
        "  the monitor took {} of processor time and {}",
        amount(own.cpu_seconds, "seconds"),
        amount(own.resident_bytes_max as f64, "bytes")
    );
    if let Some(place) = place {
        let _ = write!(text, "\n  report: {}", shown(place));
    }
    text
}

/// The sign before a value that is a bound or an estimate.
fn sign(reading: &Reading) -> String {
    match reading.completeness {
        Completeness::All | Completeness::None => "",
        Completeness::AtLeast | Completeness::Sampled => "≥ ",
    }
    .to_owned()
}

fn ended(summary: &Summary) -> String {
    let ended = &summary.ended;
    match (ended.exit_type, ended.status, ended.signal) {
        (ExitType::Limit, ..) => format!("ended by a limit: {}", ended.limits.join(", ")),
        (_, Some(status), _) => format!("returned {status}"),
        (_, _, Some(signal)) => format!("died of signal {}", skopos_task::signal_name(signal)),
        (ExitType::Running, ..) => "runs on".to_owned(),
        _ => "ended; its exit status is unknown".to_owned(),
    }
}

/// Formats the folder as the user named it.
fn shown(place: &Path) -> String {
    place.display().to_string()
}
