//! `resource_monitor` of the Cooperative Computing Tools: JSON, an object a run, quantities as
//! `[value, "unit"]`.
//!
//! Seen of version 8.0, and said at the numbers: it looks now and then, so that what grows and goes
//! between two looks is missing (200 MB held for two seconds were 8 MB); its wall time ends when it
//! notices the end (2.7 to 3.1 s of 2.0 s); its MB is 1,048,576 bytes, cut off to whole ones; processes
//! at one time are those that lived since its last look (40 of 7), so that their number stays unknown;
//! GPUs are written as 0 where nobody looked.

use serde_json::Value;
use skopos_model::task::{
    Completeness, Crossing, ExitType, Host, Identity, Limit, LimitSet, Summary, resource,
};

use super::error::ImportError;
use super::imported::{Imported, Readings, base_name, ended};

/// As a method, and in errors.
const NAME: &str = "resource_monitor";

/// What it adds to the number of a signal.
const SIGNALLED: i64 = 128;

/// Why a value is less than it may have been.
const LOOKS: &str = "seen when it looked; what came and went between two looks is missing";
const LOOKS_MIB: &str =
    "seen when it looked, cut off to whole MiB; what came and went between two looks is missing";

/// Its name, ours, and what is to be said.
const MEASURES: [(&str, &str, &str); 9] = [
    ("cpu_time", "cpu_seconds", LOOKS),
    ("cores_avg", "cores", LOOKS),
    ("memory", "resident_bytes_max", LOOKS_MIB),
    ("virtual_memory", "virtual_bytes_max", LOOKS_MIB),
    ("swap_memory", "swap_bytes_max", LOOKS_MIB),
    ("bytes_read", "read_bytes", LOOKS_MIB),
    ("bytes_written", "written_bytes", LOOKS_MIB),
    ("total_files", "files", LOOKS),
    ("disk", "footprint_bytes", LOOKS_MIB),
];

/// Its names of what a limit may be on, and ours.
const LIMITS: [(&str, &str); 4] = [
    ("wall_time", "wall_seconds"),
    ("max_concurrent_processes", "processes_max"),
    ("cores", "cores"),
    ("total_processes", "processes_total"),
];

/// Reads summaries: one, several one after the other, or an array.
///
/// # Errors
/// It is no JSON, has no summary in it, or one that lacks its start or end.
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
        tool: (NAME, "imported from its summary, which does not tell what it took itself"),
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
    let wall = "until it noticed the end, which may be seconds later";
    readings.put("wall_seconds", of("wall_time", "wall_seconds"), Completeness::All, None, wall);
    for (theirs, ours, reason) in MEASURES {
        readings.put(ours, of(theirs, ours), Completeness::Sampled, None, reason);
    }
    let is_static = json.get("executable_type").and_then(Value::as_str) == Some("static");
    for (theirs, ours) in [("bytes_received", "received_bytes"), ("bytes_sent", "sent_bytes")] {
        if is_static {
            readings.unknown(ours, "it counts sockets by preloading, and the program is static");
        } else {
            let reason = "counted in programs that a library can be preloaded into, in whole MiB";
            readings.put(ours, of(theirs, ours), Completeness::AtLeast, None, reason);
        }
    }
    let total = of("total_processes", "processes_total");
    readings.put("processes_total", total, Completeness::AtLeast, None, LOOKS);
    let said = of("max_concurrent_processes", "processes_max").map(|n| n.to_string());
    let said = said.unwrap_or("nothing".to_owned());
    let why = format!("it says {said}, and counts those that ended since it looked last");
    readings.unknown("processes_max", &why);
    for ours in ["voluntary_switches", "involuntary_switches"] {
        let both = of("context_switches", ours).map_or("nothing".to_owned(), |n| n.to_string());
        readings.unknown(ours, &format!("it gives the sum of both kinds: {both}"));
    }
    readings.unknown("gpus", "it writes 0 where nobody looked");
    readings
}

fn exit(json: &Value, report: usize) -> Result<(ExitType, Option<i32>, Option<i32>), ImportError> {
    let number = |name: &str| json.get(name).and_then(Value::as_i64);
    let small = |n: i64| i32::try_from(n).ok();
    let status = number("exit_status");
    // A task that it ended has the status of a shell: 128 and the signal.
    let told = status.filter(|s| *s > SIGNALLED).and_then(|s| small(s - SIGNALLED));
    let signal = number("signal").and_then(small).or(told);
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

/// It tells the limits that were exceeded, and no others.
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
        let said = value.filter(|v| *v > most).map(|value| Crossing { limit, value }.to_string());
        summary.ended.limits.push(said.unwrap_or_else(|| format!("{theirs}: above {limit}")));
    }
}

/// `[value, "unit"]`, or a number in the unit that is wanted, in our base unit; `None` if it is of
/// another kind, not finite or negative.
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
