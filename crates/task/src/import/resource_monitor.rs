//! `resource_monitor` of the Cooperative Computing Tools: a JSON object for each run, with
//! quantities as `[value, "unit"]`.
//!
//! Observations of version 8.0, which the readings mention: it samples, so short peaks are missing
//! (200 MB held for two seconds were reported as 8 MB); its wall time ends when it notices the exit
//! (2.7 to 3.1 s instead of 2.0 s); its MB is 1,048,576 bytes, rounded down; its concurrent
//! processes are all that lived since its last sample (40 instead of 7), so their number stays
//! unknown; GPUs are reported as 0 if none were looked for.

use serde_json::Value;
use skopos_model::task::{
    Completeness, Crossing, ExitType, Host, Identity, Limit, LimitSet, Summary, resource,
};

use super::error::ImportError;
use super::imported::{Imported, Readings, base_name, ended};

/// The method of the values, and the name in errors.
const NAME: &str = "resource_monitor";

/// The offset that it adds to the number of a signal.
const SIGNALLED: i64 = 128;

/// The notes on sampled values.
const SAMPLED: &str = "sampled by the tool; excludes what came and went between two samples";
const SAMPLED_MIB: &str =
    "sampled by the tool, rounded down to whole MiB; excludes what came and went between samples";

/// Its names, ours, and the note.
const MEASURES: [(&str, &str, &str); 9] = [
    ("cpu_time", "cpu_seconds", SAMPLED),
    ("cores_avg", "cores", SAMPLED),
    ("memory", "resident_bytes_max", SAMPLED_MIB),
    ("virtual_memory", "virtual_bytes_max", SAMPLED_MIB),
    ("swap_memory", "swap_bytes_max", SAMPLED_MIB),
    ("bytes_read", "read_bytes", SAMPLED_MIB),
    ("bytes_written", "written_bytes", SAMPLED_MIB),
    ("total_files", "files", SAMPLED),
    ("disk", "footprint_bytes", SAMPLED_MIB),
];

/// Its names of limited resources, and ours.
const LIMITS: [(&str, &str); 4] = [
    ("wall_time", "wall_seconds"),
    ("max_concurrent_processes", "processes_max"),
    ("cores", "cores"),
    ("total_processes", "processes_total"),
];

/// Reads summaries: a single one, several in sequence, or an array.
///
/// # Errors
/// The text is not JSON, contains no summary, or contains one that lacks its start or end.
pub fn import(text: &str) -> Result<Vec<Summary>, ImportError> {
    let mut all = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match document.map_err(ImportError::Json)? {
            Value::Array(several) => {
                for one in &several {
                    all.push(summary(one, all.len() + 1)?);
                }
            }
            one => all.push(summary(&one, all.len() + 1)?),
        }
    }
    if all.is_empty() { Err(ImportError::Empty(NAME)) } else { Ok(all) }
}

fn summary(json: &Value, report: usize) -> Result<Summary, ImportError> {
    let time = |field: &'static str| {
        quantity(json.get(field), "seconds").ok_or(ImportError::Field { report, field })
    };
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (start_seconds, end_seconds) = (time("start")?, time("end")?);
    let command = text("command");
    let program = command.split_whitespace().next().unwrap_or_default();
    let category = Some(text("category")).filter(|category| !category.is_empty());
    let cores = quantity(json.get("machine_cpus"), "").filter(|n| *n <= f64::from(u32::MAX));
    let (exit_type, status, signal) = exit(json, report)?;
    let imported = Imported {
        task: Identity {
            class: category.unwrap_or_else(|| base_name(program)),
            command: vec![command],
            monitor: format!("{NAME} {}", text("monitor_version").trim_end_matches('.')),
            ..Identity::default()
        },
        host: Host { node: text("host"), cores: cores.unwrap_or(0.0) as u32, ..Host::default() },
        start_seconds,
        end_seconds,
        ended: ended(exit_type, status, signal),
        readings: readings(json),
        tool: (NAME, "imported from its summary, which does not include its own overhead"),
    };
    let mut summary = imported.summary("resource_monitor does not measure it");
    limits(&mut summary, json);
    Ok(summary)
}

fn readings(json: &Value) -> Readings {
    let mut readings = Readings::new(NAME);
    let of = |theirs: &str, ours: &str| {
        quantity(json.get(theirs), resource(ours).map_or("", |r| r.unit))
    };
    let wall = "until the tool noticed the exit, which may be seconds later";
    readings.put("wall_seconds", of("wall_time", "wall_seconds"), Completeness::All, None, wall);
    for (theirs, ours, reason) in MEASURES {
        readings.put(ours, of(theirs, ours), Completeness::Sampled, None, reason);
    }
    let is_static = json.get("executable_type").and_then(Value::as_str) == Some("static");
    for (theirs, ours) in [("bytes_received", "received_bytes"), ("bytes_sent", "sent_bytes")] {
        if is_static {
            readings
                .unknown(ours, "the tool counts sockets by preloading, and the program is static");
        } else {
            let reason = "counted in programs that can preload a library, in whole MiB";
            readings.put(ours, of(theirs, ours), Completeness::AtLeast, None, reason);
        }
    }
    let total = of("total_processes", "processes_total");
    readings.put("processes_total", total, Completeness::AtLeast, None, SAMPLED);
    let reported = of("max_concurrent_processes", "processes_max").map(|n| n.to_string());
    let reported = reported.unwrap_or("nothing".to_owned());
    let why = format!(
        "the tool reports {reported}, including processes that exited since its last sample"
    );
    readings.unknown("processes_max", &why);
    for ours in ["voluntary_switches", "involuntary_switches"] {
        let both = of("context_switches", ours).map_or("nothing".to_owned(), |n| n.to_string());
        readings.unknown(ours, &format!("the tool reports the sum of both kinds: {both}"));
    }
    readings.unknown("gpus", "the tool reports 0 if it did not look for GPUs");
    readings
}

fn exit(json: &Value, report: usize) -> Result<(ExitType, Option<i32>, Option<i32>), ImportError> {
    let number = |name: &str| json.get(name).and_then(Value::as_i64);
    let small = |n: i64| i32::try_from(n).ok();
    let status = number("exit_status");
    // A task that the tool ended has the status of a shell: 128 plus the signal.
    let from_status = status.filter(|s| *s > SIGNALLED).and_then(|s| small(s - SIGNALLED));
    let signal = number("signal").and_then(small).or(from_status);
    match json.get("exit_type").and_then(Value::as_str) {
        Some("normal") => Ok((ExitType::Normal, status.and_then(small), None)),
        Some("signal") => Ok((ExitType::Signal, None, signal)),
        Some("limits" | "limit") => {
            let status = status.filter(|_| signal.is_none()).and_then(small);
            Ok((ExitType::Limit, status, signal))
        }
        _ => Err(ImportError::Field { report, field: "exit_type" }),
    }
}

/// Adds the exceeded limits; the tool reports no others.
fn limits(summary: &mut Summary, json: &Value) {
    let Some(exceeded) = json.get("limits_exceeded").and_then(Value::as_object) else { return };
    for (theirs, limit) in exceeded {
        let ours = LIMITS.iter().copied().chain(MEASURES.iter().map(|(t, o, _)| (*t, *o)));
        let ours = ours.into_iter().find(|(name, _)| name == theirs).and_then(|(_, o)| resource(o));
        let Some(resource) = ours else {
            summary.ended.limits.push(format!("{theirs}: {limit}"));
            continue;
        };
        let Some(most) = quantity(Some(limit), resource.unit) else { continue };
        let limit = Limit { resource, most };
        summary.limits_set.push(LimitSet::from(limit));
        let value = quantity(json.get(theirs), resource.unit);
        let reported =
            value.filter(|v| *v > most).map(|value| Crossing { limit, value }.to_string());
        summary.ended.limits.push(reported.unwrap_or_else(|| format!("{theirs}: above {limit}")));
    }
}

/// Parses `[value, "unit"]`, or a number in the expected unit, and converts it to our base unit.
/// Returns `None` if it has another unit, is not finite, or is negative.
fn quantity(json: Option<&Value>, unit: &str) -> Option<f64> {
    let (value, theirs) = match json? {
        Value::Array(pair) => (pair.first()?.as_f64()?, pair.get(1)?.as_str()?),
        number => (number.as_f64()?, unit),
    };
    let scale = match (unit, theirs) {
        ("bytes", "B" | "bytes") => 1.0,
        ("bytes", "kB" | "KB") => 1024.0,
        ("bytes", "MB") => 1024.0 * 1024.0,
        ("bytes", "GB") => 1024.0 * 1024.0 * 1024.0,
        ("bytes", "TB") => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        ("seconds", "s" | "seconds") => 1.0,
        ("seconds", "ms") => 1e-3,
        ("seconds", "us") => 1e-6,
        ("", _) => 1.0,
        _ => return None,
    };
    Some(value * scale).filter(|v| v.is_finite() && *v >= 0.0)
}
