//! Kickstart of Pegasus: an invocation record for each job, in YAML since Pegasus 5, in XML before.
//!
//! Origin and accuracy of the numbers:
//! - Processor time, faults and switches come from `wait4`: they cover the first process and all
//!   processes that were waited for, but no orphans.
//! - `maxrss` is that of the largest single process, and processes inherit it: a small process
//!   shows Kickstart's own. If processes were traced (`-t`, `-z`), the largest `rsspeak` is taken.
//! - A traced record lists threads as processes. The last thread of a process has `finthreads: 1`,
//!   so the number of such entries is that of processes; if there are other entries, there may be
//!   more.
//! - `rchar` and `wchar` of a process include those of all children that it waited for, so the
//!   values of the first process are taken, and not the sum over the list.
//! - Times are rounded to milliseconds, and each has a minimum.

use std::collections::BTreeMap;

use skopos_model::task::{Completeness, ExitType, Host, Identity, Process, Summary};

use super::error::ImportError;
use super::imported::{Imported, MAX_LISTED, Readings, base_name, ended};
use super::record::{Record, number};
use super::{xml, yaml};

/// The method of the values, and the name in errors.
const NAME: &str = "kickstart";

/// Times have three decimals; a wall time below this is raised to it.
const LEAST_WALL_SECONDS: f64 = 0.003;
const STEP_SECONDS: f64 = 0.001;

/// The block size of `getrusage`, independent of the device's.
const BLOCK_BYTES: f64 = 512.0;

const WAITED: &str = "of the first process and all waited-for processes; excludes orphans";
const LARGEST: &str = "of the largest single process";

/// Reads the records of a file, in YAML or XML.
///
/// # Errors
/// The file contains no record, or one that is cut off or lacks its start or duration.
pub fn import(text: &str) -> Result<Vec<Summary>, ImportError> {
    let is_xml = text.contains("<invocation");
    let records = if is_xml { xml::records(text) } else { yaml::records(text) };
    if records.is_empty() {
        return Err(ImportError::Empty(NAME));
    }
    records.iter().enumerate().map(|(n, record)| summary(record, n + 1)).collect()
}

fn summary(record: &Record, report: usize) -> Result<Summary, ImportError> {
    if !record.is_whole() {
        return Err(ImportError::Truncated(report));
    }
    let missing = |field| ImportError::Field { report, field };
    let start = seconds(&record.text("mainjob.start")).ok_or(missing("mainjob.start"))?;
    let wall = record.number("mainjob.duration").ok_or(missing("mainjob.duration"))?;
    let program = record.text("mainjob.executable.file_name");
    let transformation = record.text("transformation");
    let mut command = vec![program.clone()];
    command.extend(record.arguments.iter().cloned());
    let node = record.text("machine.uname_nodename");
    let memory = record.number("machine.ram_total").map_or(0.0, |kib| kib * 1024.0);
    let imported = Imported {
        task: Identity {
            class: if transformation.is_empty() { base_name(&program) } else { transformation },
            command,
            folder: record.text("cwd"),
            monitor: format!("{NAME}, record version {}", record.text("version")),
            rank: None,
            attached: None,
        },
        host: Host {
            node: if node.is_empty() { record.text("hostname") } else { node },
            kernel: record.text("machine.uname_release"),
            cores: record.number("machine.cpu_count").unwrap_or(0.0) as u32,
            memory_bytes: memory as u64,
        },
        start_seconds: start,
        end_seconds: start + wall,
        ended: task_end(record).ok_or(missing("mainjob.status"))?,
        readings: readings(record, wall),
        tool: (NAME, "imported from its record, which does not include its own overhead"),
    };
    let mut summary = imported.summary("Kickstart does not measure it");
    if let Some(failure) = record.fields.get("mainjob.status.failure_error") {
        summary.disturbed.push(format!("the job was not started: error {failure}"));
    }
    list_processes(&mut summary, record, start);
    Ok(summary)
}

fn task_end(record: &Record) -> Option<skopos_model::task::Ended> {
    let whole = |path: &str| record.text(path).parse::<i32>().ok();
    if let Some(signal) = whole("mainjob.status.signalled_signal") {
        return Some(ended(ExitType::Signal, None, Some(signal)));
    }
    if let Some(status) = whole("mainjob.status.regular_exitcode") {
        return Some(ended(ExitType::Normal, Some(status), None));
    }
    // A job that was not started has neither, and a negative raw status.
    whole("mainjob.status.raw").filter(|raw| *raw < 0).map(|_| ended(ExitType::Normal, None, None))
}

fn readings(record: &Record, wall: f64) -> Readings {
    let mut readings = Readings::new(NAME);
    let bound = if wall <= LEAST_WALL_SECONDS { LEAST_WALL_SECONDS } else { STEP_SECONDS };
    readings.put("wall_seconds", Some(wall), Completeness::All, Some(bound), "");
    let least = Completeness::AtLeast;
    let usage = |key: &str| record.number(&format!("mainjob.usage.{key}"));
    let (user, system) = (usage("utime"), usage("stime"));
    let cpu = user.zip(system).map(|(user, system)| user + system);
    let busy = cpu.filter(|_| wall > 0.0).map(|cpu| cpu / wall);
    let blocks = |key| usage(key).map(|blocks| blocks * BLOCK_BYTES);
    for (name, value) in [
        ("user_seconds", user),
        ("system_seconds", system),
        ("cpu_seconds", cpu),
        ("cores", busy),
        ("minor_faults", usage("minflt")),
        ("major_faults", usage("majflt")),
        ("voluntary_switches", usage("nvcsw")),
        ("involuntary_switches", usage("nivcsw")),
        ("device_read_bytes", blocks("inblock")),
        ("device_written_bytes", blocks("outblock")),
    ] {
        readings.put(name, value, least, None, WAITED);
    }
    let kib = |value: Option<f64>| value.map(|kib| kib * 1024.0);
    let inherited = "of the largest single process; for a small one, possibly Kickstart's own";
    readings.put("resident_bytes_max", kib(usage("maxrss")), least, None, inherited);
    traced(&mut readings, record);
    readings
}

/// Adds the values that are known only if processes were traced.
fn traced(readings: &mut Readings, record: &Record) {
    let all = &record.processes;
    let untraced = "Kickstart lists processes only if it traces them: -t or -z";
    if all.is_empty() {
        for name in
            ["processes_max", "processes_total", "virtual_bytes_max", "read_bytes", "written_bytes"]
        {
            readings.unknown(name, untraced);
        }
        return;
    }
    let greatest =
        |key: &str| all.iter().filter_map(|p| number(p, key)).filter(|v| *v > 0.0).reduce(f64::max);
    let least = Completeness::AtLeast;
    for (key, name) in [("rsspeak", "resident_bytes_max"), ("vmpeak", "virtual_bytes_max")] {
        readings.put(name, greatest(key).map(|kib| kib * 1024.0), least, None, LARGEST);
    }
    let certain = all.iter().filter(|p| is_process(p)).count();
    let is_all = certain == all.len();
    let (covers, reason) = if is_all {
        (Completeness::All, String::new())
    } else {
        (least, format!("threads are listed as processes: {} entries", all.len()))
    };
    let bound = is_all.then_some(0.0);
    readings.put("processes_total", Some(certain as f64), covers, bound, &reason);
    let pid = record.text("mainjob.pid");
    let Some(first) = all.iter().find(|p| p.get("pid") == Some(&pid)) else { return };
    let is_alone = is_all && certain == 1;
    for (key, name) in [("rchar", "read_bytes"), ("wchar", "written_bytes")] {
        let covers = if is_alone { Completeness::All } else { least };
        let reason = if is_alone { "" } else { WAITED };
        readings.put(name, number(first, key), covers, is_alone.then_some(0.0), reason);
    }
}

/// True for an entry that certainly is a process: its last thread.
fn is_process(entry: &BTreeMap<String, String>) -> bool {
    number(entry, "finthreads") == Some(1.0)
}

fn list_processes(summary: &mut Summary, record: &Record, start: f64) {
    let certain: Vec<_> = record.processes.iter().filter(|p| is_process(p)).collect();
    let threads = record.processes.len() - certain.len();
    if threads > 0 {
        summary.disturbed.push(format!(
            "threads are listed as processes: {threads} entries may be threads, and are left out"
        ));
    }
    let mut listed: Vec<Process> = certain
        .iter()
        .take(MAX_LISTED)
        .filter_map(|entry| process(entry, &certain, start))
        .collect();
    listed.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds).then(a.pid.cmp(&b.pid)));
    summary.processes_left_out = (certain.len() - listed.len()) as u64;
    summary.processes = listed;
}

fn process(
    entry: &BTreeMap<String, String>,
    all: &[&BTreeMap<String, String>],
    start: f64,
) -> Option<Process> {
    let id = |key: &str| entry.get(key)?.parse::<i32>().ok();
    let since = |key: &str| number(entry, key).filter(|t| *t > 0.0).map(|time| time - start);
    let is_parent = all.iter().any(|other| other.get("ppid") == entry.get("pid"));
    // The bytes of a parent include those of its children.
    let bytes = |key: &str| number(entry, key).filter(|_| !is_parent).map(|bytes| bytes as u64);
    Some(Process {
        pid: id("pid")?,
        parent: id("ppid")?,
        command: entry.get("exe").cloned().unwrap_or_default(),
        start_seconds: since("start")?,
        end_seconds: since("stop"),
        status: None,
        signal: None,
        cpu_seconds: number(entry, "utime").zip(number(entry, "stime")).map(|(u, s)| u + s),
        resident_bytes_max: number(entry, "rsspeak").map(|kib| (kib * 1024.0) as u64),
        read_bytes: bytes("rchar"),
        written_bytes: bytes("wchar"),
    })
}

/// Parses `2025-03-12T12:39:36.752-07:00` as seconds of UNIX time.
fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let at = time.find(['Z', '+', '-'])?;
    let (time, zone) = time.split_at(at);
    let mut parts = date.split('-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let is_time = (0.0..24.0).contains(&hour) && minute.max(second) <= 60.0;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day > 31 || !is_time {
        return None;
    }
    let of_day = hour * 3600.0 + minute * 60.0 + second;
    Some(days(year, month, day) * 86_400.0 + of_day - zone_seconds(zone)?)
}

/// Returns the days since 1970: H. Hinnant, "chrono-compatible low-level date algorithms".
fn days(year: u32, month: u32, day: u32) -> f64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day.max(1) - 1;
    let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    f64::from(era) * 146_097.0 + f64::from(of_era) - 719_468.0
}

/// Parses `Z`, `-07:00` or `+0200` as the seconds by which the zone is ahead of UTC.
fn zone_seconds(zone: &str) -> Option<f64> {
    let sign = match zone.chars().next()? {
        'Z' => return Some(0.0),
        '-' => -1.0,
        _ => 1.0,
    };
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = (digits.get(..2)?, digits.get(2..4).unwrap_or("0"));
    Some(sign * (hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0))
}
