//! `skopos doctor`: checks what this machine allows and what runs, with a hint for each problem.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_model::{Timestamp, duration};
use skopos_sense::open_all;
use skopos_shm::{Host, Segment, Vertex};
use skopos_store::history::{Folder, Found};

use skopos_agent::control::{self, Answer, Request, SensorStatus, SkipStatus, Status};
use skopos_agent::folder_of;
use skopos_term::Global;
use skopos_term::format;
use skopos_term::{EXIT_NO, Failure};
use skopos_term::{Out, Style};

/// A publisher without a sign of life for this time is stuck: ten times the usual interval.
const SILENT: Duration = Duration::from_secs(10);
/// Free memory in the runtime directory's file system below which a new agent may not start.
const ROOM_BYTES: u64 = 16 << 20;

/// `docs/json/doctor.schema.json`.
#[derive(Serialize)]
struct Report {
    checks: Vec<Check>,
    sensors: Vec<SensorStatus>,
    skips: Vec<SkipStatus>,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    detail: String,
    hint: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    Warning,
    Bad,
}

impl Check {
    fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, detail: detail.into(), hint: None }
    }

    fn warning(name: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { name, verdict: Verdict::Warning, detail: detail.into(), hint }
    }

    fn bad(name: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, ..Self::warning(name, detail, hint) }
    }
}

pub(crate) fn run(global: &Global) -> Result<ExitCode, Failure> {
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let dirs = match &global.dir {
        Some(dir) => vec![dir.clone()],
        None => skopos_shm::search_path(),
    };
    let mut checks = vec![kernel(), directory(&dir), room(&dir)];
    checks.extend(build(skopos_task::build_lacks()));
    checks.extend(publishers(dirs));
    let (check, status) = agent(&dir);
    checks.push(check);
    let status = status.unwrap_or_else(probe);
    let report = Report { checks, sensors: status.sensors, skips: status.skips };
    let bad = report.checks.iter().any(|c| c.verdict == Verdict::Bad);
    print(&mut Out::new(global.style()), &report)?;
    Ok(if bad { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

fn kernel() -> Check {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    Check::good(
        "kernel",
        format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
    )
}

/// Returns a warning for each part that this build lacks, or the statement that it is complete.
fn build(lacks: Vec<(&'static str, String)>) -> Vec<Check> {
    if lacks.is_empty() {
        return vec![Check::good("build", "complete: every mechanism of the task monitor")];
    }
    let hint = "build on x86-64 with a C compiler (`make run` does)";
    let warning = |(part, why)| Check::warning("build", format!("lacks {part}: {why}"), hint);
    lacks.into_iter().map(warning).collect()
}

fn directory(dir: &Path) -> Check {
    let shown = dir.display();
    match Host::open_dirs(vec![dir.into()]) {
        _ if !dir.exists() => {
            Check::good("directory", format!("{shown} is created by the first publisher"))
        }
        Ok(_) => Check::good("directory", format!("only the owner of {shown} can write to it")),
        Err(e) => Check::bad("directory", e.to_string(), "name another one with SKOPOS_DIR"),
    }
}

fn room(dir: &Path) -> Check {
    let existing = dir.ancestors().find(|d| d.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(existing) {
        Err(e) => {
            Check::bad("memory", format!("{}: {e}", existing.display()), "name another SKOPOS_DIR")
        }
        Ok(fs) => {
            let free = fs.f_bavail.saturating_mul(fs.f_frsize);
            let detail = format!("{} free at {}", format::bytes(free as f64), existing.display());
            if free < ROOM_BYTES {
                Check::bad("memory", detail, "an agent needs about 4 MiB there; free some")
            } else {
                Check::good("memory", detail)
            }
        }
    }
}

/// A check for each segment, dead or alive.
fn publishers(dirs: Vec<std::path::PathBuf>) -> Vec<Check> {
    let dead = dirs.iter().flat_map(|dir| dead_in(dir)).collect::<Vec<_>>();
    let host = match Host::open_dirs(dirs) {
        Ok(host) => host,
        Err(e) => return vec![Check::bad("publishers", e.to_string(), "see `directory` above")],
    };
    let mut checks: Vec<Check> = host.segments().iter().map(publisher).collect();
    let vertices = || host.segments().iter().flat_map(Segment::vertices);
    let folders: BTreeSet<PathBuf> = vertices().filter_map(|vertex| folder_of(&vertex)).collect();
    checks.extend(folders.into_iter().map(history));
    checks.extend(vertices().filter_map(|vertex| of_hub(&vertex)));
    checks.extend(host.refused().iter().map(|e| {
        Check::warning("publisher", e.to_string(), "it is not read; remove the file if it is yours")
    }));
    checks.extend(dead.into_iter().map(|path| {
        Check::warning(
            "publisher",
            format!("{path}: its publisher is dead"),
            "the next publisher there removes it",
        )
    }));
    checks
}

/// Facts of a hub that are 0 unless something is wrong: the end of the topic, the condition, and the hint.
const OF_HUB: [(&str, &str, &str); 3] = [
    (
        "/self/live/hub/publishers_of_other_versions_total",
        "publishers of other versions of Skopos were seen, and cannot be followed",
        "run the same version on the hub and on all nodes of its site",
    ),
    (
        "/self/jobs/troubles",
        "kinds of work on stored jobs fail now",
        "the hub's standard error says which",
    ),
    (
        "/self/jobs/damaged",
        "files of stored jobs are damaged",
        "stop the hub; `skopos mds verify` names them with the jobs whose records are lost",
    ),
];

/// Returns a warning if a fact of a hub says that something is wrong.
fn of_hub(vertex: &Vertex) -> Option<Check> {
    let topic = vertex.topic().as_str();
    let (_, condition, hint) = OF_HUB.iter().find(|(end, ..)| topic.ends_with(end))?;
    let number = vertex.latest().ok()?.sample.value.as_f64().filter(|number| *number > 0.0)?;
    let node = vertex.topic().node();
    Some(Check::warning("hub", format!("`{node}`: {number} {condition}"), *hint))
}

/// Checks a folder of history: its names, the metadata of its parts, and its logs.
fn history(folder: PathBuf) -> Check {
    let shown = folder.display().to_string();
    let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    let hint =
        format!("samples of these files are missing; they are in {shown}/quarantine, if there");
    match Folder::new(folder).find(&always) {
        Err(e) => Check::bad("history", e.to_string(), "repair the folder, or name another one"),
        Ok(Found { parts, damaged }) => match damaged.first() {
            None => Check::good("history", format!("{shown}: {} files, none damaged", parts.len())),
            Some(first) => {
                let more = match damaged.len() {
                    1 => String::new(),
                    count => format!(", and {} more files", count - 1),
                };
                Check::warning("history", format!("{shown}: {first}{more}"), hint)
            }
        },
    }
}

fn publisher(segment: &Segment) -> Check {
    let silent = segment.silent_for();
    let detail = format!(
        "`{}`, process {}, {} facts, last sign of life {} ago",
        segment.name(),
        segment.pid(),
        segment.vertices().len(),
        duration::human(silent)
    );
    if silent > SILENT && segment.name() == skopos_agent::SEGMENT_NAME {
        Check::warning("publisher", detail, "it runs but does not poll: check what it waits for")
    } else {
        Check::good("publisher", detail)
    }
}

fn dead_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .filter(|path| Segment::open(path).is_ok_and(|segment| !segment.is_alive()))
        .map(|path| path.display().to_string())
        .collect()
}

fn agent(dir: &Path) -> (Check, Option<Status>) {
    match control::ask(dir, &Request::Status) {
        Ok(Answer::Status(status)) => {
            let same = status.version == env!("CARGO_PKG_VERSION");
            let detail = format!("version {} on {} answers", status.version, status.node);
            let check = if status.facts_refused > 0 {
                let refused = status.facts_refused;
                let detail = format!("{detail}, but {refused} facts were refused");
                Check::warning("agent", detail, "make room in its directory, or --skip families")
            } else if same {
                Check::good("agent", detail)
            } else {
                Check::warning("agent", detail, "this `skopos` has another version")
            };
            (check, Some(status))
        }
        Ok(_) => (Check::bad("agent", "its response does not fit the request", "restart it"), None),
        Err(e) => {
            let hint = e.hint_text().unwrap_or("start one with `skopos up`").to_owned();
            (Check::warning("agent", e.message(), hint), None)
        }
    }
}

/// Lists the sensors that an agent would run here.
fn probe() -> Status {
    let opened = open_all(&skopos_agent::root());
    let sensor = |name: &str| SensorStatus {
        name: name.to_owned(),
        facts: 0,
        polls: 0,
        interval_seconds: 0.0,
        policy: String::new(),
        stretch: 1.0,
        poll_seconds: 0.0,
        error: None,
    };
    Status {
        sensors: opened.sensors.iter().map(|s| sensor(s.family().name)).collect(),
        skips: opened
            .skips
            .into_iter()
            .map(|s| SkipStatus { what: s.what, reason: s.reason })
            .collect(),
        ..Status::default()
    }
}

fn print(out: &mut Out, report: &Report) -> Result<(), Failure> {
    match out.style {
        Style::Json => out.json(report)?,
        Style::Plain => {
            for c in &report.checks {
                out.line(format!("{}\t{}\t{}", word(c.verdict), c.name, c.detail))?;
            }
            for s in &report.skips {
                out.line(format!("skipped\t{}\t{}", s.what, s.reason))?;
            }
        }
        Style::Human => {
            for c in &report.checks {
                out.line(format!("{:8} {:10} {}", word(c.verdict), c.name, c.detail))?;
                if let Some(hint) = &c.hint {
                    out.line(format!("{:19} hint: {hint}", ""))?;
                }
            }
            out.line("")?;
            let running = report.sensors.iter().any(|s| s.facts > 0);
            out.line(out.bold(if running { "sensed" } else { "an agent would sense" }))?;
            for s in &report.sensors {
                let state = match &s.error {
                    Some(error) => format!("cannot be read: {error}"),
                    None if running => {
                        let cost = duration::human(Duration::from_secs_f64(s.poll_seconds));
                        format!("{} facts, {cost} a poll", s.facts)
                    }
                    None => String::new(),
                };
                out.line(format!("  {:12} {state}", s.name).trim_end())?;
            }
            if !report.skips.is_empty() {
                out.line(out.bold("not sensed"))?;
                for s in &report.skips {
                    out.line(format!("  {:12} {}", s.what, s.reason))?;
                }
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_that_a_build_lacks_is_a_warning() {
        let checks = build(vec![("files of a task by BPF", "no object".to_owned())]);
        assert!(checks.iter().all(|check| check.verdict == Verdict::Warning));
        assert_eq!(checks[0].detail, "lacks files of a task by BPF: no object");
        assert!(build(Vec::new()).iter().all(|check| check.verdict == Verdict::Good));
    }
}
