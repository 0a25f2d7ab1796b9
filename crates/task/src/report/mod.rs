//! The report: takes each resource from the mechanism that measures it best, and adds findings.

mod findings;
pub(crate) mod job;
pub(crate) mod job_files;
pub(crate) mod missing;
pub(crate) mod page;
pub(crate) mod series;
pub(crate) mod signals;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use skopos_model::task::{
    Completeness, Crossing, Ended, ExitType, Identity, MechanismUse, Overhead, RESOURCES, Reading,
    SUMMARY_VERSION, Summary,
};

use crate::attach::AttachTarget;
use crate::end::TaskEnd;
use crate::host;
use crate::ledger::{Ledger, Offer};
use crate::mechanism::procfs;
use crate::order::Order;
use crate::sys::{self, Status};

/// The results of a run.
pub(crate) struct Measurements<'a> {
    pub(crate) order: &'a Order,
    pub(crate) start_seconds: f64,
    pub(crate) elapsed: Duration,
    /// Seconds between the exit of the first process and the moment at which the monitor handled
    /// it.
    pub(crate) exit_delay: f64,
    pub(crate) end: Option<TaskEnd>,
    pub(crate) target: Option<AttachTarget>,
    pub(crate) crossings: Vec<Crossing>,
    pub(crate) guilty: Option<String>,
    /// Command lines of processes that run on although the task was to be ended.
    pub(crate) survivors: Vec<String>,
    /// The reason why the kernel does not enforce the limit on processor time.
    pub(crate) cpu_limit_error: Option<String>,
    /// Memory is limited, and samples alone enforce the limit.
    pub(crate) memory_is_sampled: bool,
    pub(crate) level: u8,
    pub(crate) uses: Vec<MechanismUse>,
    pub(crate) disturbed: Vec<String>,
    pub(crate) ledger: Ledger,
}

/// The method of values that the monitor's clock gives.
const CLOCK: &str = "clock";

/// The most time between opening the gate and exec, and between the exit and its report.
const CLOCK_BOUND_SECONDS: f64 = 0.001;

pub(crate) fn summary(measurements: Measurements<'_>) -> Summary {
    let Measurements { order, start_seconds, elapsed, mut ledger, .. } = measurements;
    let wall = elapsed.as_secs_f64();
    let wall_bound = CLOCK_BOUND_SECONDS + measurements.exit_delay;
    let clock = Offer {
        method: CLOCK,
        value: wall,
        completeness: Completeness::All,
        error_bound: Some(wall_bound),
        reason: None,
    };
    ledger.offers.add("wall_seconds", clock.clone());
    let of_cpu = ledger.offers.best("cpu_seconds", "");
    if let Some(cpu) = of_cpu.value {
        let (completeness, reason) = (of_cpu.completeness, of_cpu.reason);
        let error_bound = of_cpu.error_bound.map(|off| (off + wall_bound * cpu / wall) / wall);
        let value = cpu / wall;
        ledger.offers.add("cores", Offer { value, completeness, error_bound, reason, ..clock });
    }
    let resources: BTreeMap<String, Reading> = RESOURCES
        .iter()
        .map(|r| {
            let why = why_unknown(r.name, measurements.level, &measurements.uses);
            let mut reading = ledger.offers.best(r.name, why);
            missing::mark(r.name, &mut reading, &ledger.unseen);
            (r.name.to_owned(), reading)
        })
        .collect();
    let (cpu, resident) = sys::own_usage();
    let stops = ledger.stops;
    let (mut nested, nested_left_out) = std::mem::take(&mut ledger.nested);
    nested.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds).then(a.pid.cmp(&b.pid)));
    let missing_folders = std::mem::take(&mut ledger.missing_folders);
    let (processes, processes_left_out) = ledger.into_processes();
    let mut summary = Summary {
        version: SUMMARY_VERSION,
        task: identity(order, measurements.target.as_ref()),
        host: host::describe(),
        start_seconds,
        end_seconds: start_seconds + wall,
        ended: ended(measurements.end, &measurements.crossings, measurements.guilty),
        limits_set: order.limits.iter().map(Into::into).collect(),
        level: measurements.level,
        resources,
        mechanisms: measurements.uses,
        overhead: Overhead { cpu_seconds: cpu.as_secs_f64(), resident_bytes_max: resident, stops },
        disturbed: measurements.disturbed,
        findings: Vec::new(),
        processes,
        processes_left_out,
        nested,
        nested_left_out,
        job: None,
    };
    summary.findings = findings::findings(&summary);
    summary.findings.extend(findings::survivors(&measurements.survivors));
    summary.findings.extend(findings::missing_folders(&missing_folders));
    summary.findings.extend(findings::sampled_memory(measurements.memory_is_sampled));
    summary.findings.extend(findings::cpu_limit_error(measurements.cpu_limit_error.as_deref()));
    summary
}

pub(crate) fn identity(order: &Order, target: Option<&AttachTarget>) -> Identity {
    let ordered = || order.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command: Vec<String> = target.map_or_else(ordered, |target| target.command.clone());
    let program = command.first().map_or("", String::as_str);
    let name = Path::new(program).file_name().map(|n| n.to_string_lossy().into_owned());
    Identity {
        class: order.class.clone().or(name).unwrap_or_default(),
        folder: match target {
            Some(target) => target.folder.display().to_string(),
            None => std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default(),
        },
        monitor: concat!("skopos ", env!("CARGO_PKG_VERSION")).to_owned(),
        rank: if target.is_some() { None } else { host::rank() },
        attached: target.map(|target| target.attached),
        command,
    }
}

fn ended(end: Option<TaskEnd>, crossings: &[Crossing], guilty: Option<String>) -> Ended {
    let exit_type = match end {
        _ if !crossings.is_empty() => ExitType::Limit,
        Some(TaskEnd::Exited(Status::Exited(_))) => ExitType::Normal,
        Some(TaskEnd::Exited(Status::Signalled(_))) => ExitType::Signal,
        Some(TaskEnd::Unseen) => ExitType::Unknown,
        Some(TaskEnd::Detached) | None => ExitType::Running,
    };
    let status = if let Some(TaskEnd::Exited(status)) = end { Some(status) } else { None };
    Ended {
        exit_type,
        status: status.and_then(|s| if let Status::Exited(code) = s { Some(code) } else { None }),
        signal: status.and_then(|s| if let Status::Signalled(n) = s { Some(n) } else { None }),
        limits: crossings.iter().map(ToString::to_string).collect(),
        guilty,
    }
}

/// Returns the reason why no mechanism measured a resource.
fn why_unknown(name: &str, level: u8, uses: &[MechanismUse]) -> &'static str {
    let samples_processes = uses.iter().any(|one| one.name == procfs::NAME && one.used);
    match name {
        "files" | "footprint_bytes" => "no mechanism counts files: `tree` was not named",
        "processes_max" | "processes_total" | "threads_max" | "threads_total"
        | "cpu_delay_seconds" | "io_delay_seconds"
            if level < 2 =>
        {
            "at level 1 no mechanism tracks process starts and exits"
        }
        "pss_bytes_max" => {
            "the task ended before its page tables were first read, or had too many processes"
        }
        "resident_bytes_max" | "virtual_bytes_max" | "swap_bytes_max" | "tmpfs_bytes_max"
            if samples_processes =>
        {
            "the task ended before the first sample"
        }
        "throttled_seconds" => "no control group that counts it was found for the task",
        "read_calls" | "write_calls" => "counted for tasks that the monitor started itself",
        "cgroup_bytes_max" | "memory_delay_seconds" => "the task had no control group of its own",
        "received_bytes" | "sent_bytes" | "opened_files" => "counted at level 3 only",
        "modified_files" => "counted by `fanotify`, which needs root, level 3 and --watch",
        "instructions" | "cycles" => "counted by `perf`: at level 3 or if named",
        "energy_joules" => "no processor here reports its energy, or not to this user",
        "gpus" | "gpu_bytes_max" => "the library of a GPU driver is not installed",
        _ => "no mechanism could measure it",
    }
}
