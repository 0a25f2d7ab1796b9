//! Findings: conditions that stand out in a report, with advice.

use skopos_model::task::{ExitType, Finding, Summary};

use crate::mechanism::ptrace;

/// A rule reads the whole report.
type Rule = fn(&Summary) -> Option<Finding>;

/// All rules, the most important first.
const RULES: [Rule; 8] =
    [limit, signal, tracer, left_behind, waited_for_storage, swapped, waited_for_cores, idle];

/// Applies all rules.
pub(super) fn findings(summary: &Summary) -> Vec<Finding> {
    RULES.iter().filter_map(|rule| rule(summary)).collect()
}

/// The most processes that a finding names.
const MAX_NAMED: usize = 3;

/// Reports processes that run on although the task was to be ended.
pub(super) fn survivors(left: &[String]) -> Option<Finding> {
    if left.is_empty() {
        return None;
    }
    let named = left[..left.len().min(MAX_NAMED)].join(", ");
    let more = match left.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    finding(
        format!("the task was to be ended, but these processes are left: {named}{more}"),
        "processes of another user can be killed by that user or an administrator",
    )
}

/// Reports that the kernel does not enforce a limit on processor time.
pub(super) fn cpu_limit_error(why: Option<&str>) -> Option<Finding> {
    finding(
        format!(
            "the kernel does not enforce the limit on the processor time of each process: {}",
            why?
        ),
        "samples enforce the limit on their sum, as long as the monitor lives",
    )
}

/// Reports that samples alone enforce the limit on memory.
pub(super) fn sampled_memory(is_sampled: bool) -> Option<Finding> {
    if !is_sampled {
        return None;
    }
    finding(
        "samples enforced the limit on memory, not the kernel: a task may exceed it between two of them, \
         and memory in files of tmpfs is seen only while a process has them open, or after that by name"
            .to_owned(),
        "the kernel enforces it in a control group that the monitor may create: as root, or with \
         `systemd-run --user --scope -p Delegate=yes skopos run …`",
    )
}

/// The share of the wall time above which a wait stands out.
const MUCH: f64 = 0.25;

/// Shorter runs are over before they can be slow.
const SHORT_SECONDS: f64 = 1.0;

fn value(summary: &Summary, name: &str) -> Option<f64> {
    summary.resources.get(name)?.value
}

fn finding(what: String, advice: &str) -> Option<Finding> {
    Some(Finding { what, advice: advice.to_owned() })
}

fn limit(summary: &Summary) -> Option<Finding> {
    let ended = &summary.ended;
    if ended.exit_type != ExitType::Limit {
        return None;
    }
    let who = ended.guilty.as_ref().map_or(String::new(), |who| format!("; mostly used by {who}"));
    finding(
        format!("the task was ended for a limit: {}{who}", ended.limits.join(", ")),
        "raise the limit, or give the task less work at one time",
    )
}

fn signal(summary: &Summary) -> Option<Finding> {
    let ended = &summary.ended;
    let signal = ended.signal.filter(|_| ended.exit_type == ExitType::Signal)?;
    let advice = match signal {
        9 => "it was killed; if the kernel did that for lack of memory, `dmesg` says so",
        6 | 11 | 7 | 8 | 4 => "it crashed: a core dump or a debugger shows where",
        _ => "it was asked to end by this signal",
    };
    finding(format!("the task died of signal {}", super::signals::signal_name(signal)), advice)
}

/// Programs that trace others.
const TRACERS: [&str; 6] = ["strace", "ltrace", "gdb", "lldb", "rr", "uftrace"];

/// A process can have only one tracer: a debugger in the task fails, and its own message does not
/// say why.
fn tracer(summary: &Summary) -> Option<Finding> {
    if !summary.mechanisms.iter().any(|m| m.name == ptrace::NAME && m.used) {
        return None;
    }
    let program = |command: &str| {
        let word = command.split(' ').next().unwrap_or_default();
        word.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let failed = summary.processes.iter().filter(|p| p.status != Some(0));
    let name = failed.map(|p| program(&p.command)).find(|name| TRACERS.contains(&&**name))?;
    finding(
        format!("`{name}` failed because the monitor traces: a process can have only one tracer"),
        "run it with --level 1, which traces nothing",
    )
}

/// Processes that outlive the task are in no total, and no process waits for them.
fn left_behind(summary: &Summary) -> Option<Finding> {
    if !matches!(summary.ended.exit_type, ExitType::Normal | ExitType::Signal) {
        return None;
    }
    let left: Vec<_> = summary.processes.iter().filter(|p| p.end_seconds.is_none()).collect();
    let first = left.first()?;
    let more = match left.len() {
        1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    finding(
        format!("the task left {} (pid {}){more} running", first.command, first.pid),
        "their further usage is not measured: let the task wait for them if they are part of it",
    )
}

/// Reports watched folders that no sample found.
pub(super) fn missing_folders(folders: &[String]) -> Option<Finding> {
    if folders.is_empty() {
        return None;
    }
    let advice = "no files were counted there: check whether --watch names the right folder";
    finding(format!("never found: {}", folders.join(", ")), advice)
}

fn share(summary: &Summary, name: &str) -> Option<f64> {
    let wall = value(summary, "wall_seconds").filter(|wall| *wall >= SHORT_SECONDS)?;
    Some(value(summary, name)? / wall)
}

fn waited_for_storage(summary: &Summary) -> Option<Finding> {
    let share = share(summary, "io_delay_seconds").filter(|share| *share >= MUCH)?;
    finding(
        format!("the task waited for storage {:.0} % of the time", 100.0 * share),
        "faster storage, larger blocks or fewer syncs would help; more cores would not",
    )
}

fn swapped(summary: &Summary) -> Option<Finding> {
    let bytes = value(summary, "swap_bytes_max").filter(|bytes| *bytes > 0.0)?;
    finding(
        format!("{:.0} MiB of the task were in swap", bytes / (1024.0 * 1024.0)),
        "run fewer tasks beside it, or on a machine with more memory",
    )
}

fn waited_for_cores(summary: &Summary) -> Option<Finding> {
    let share = share(summary, "cpu_delay_seconds").filter(|share| *share >= MUCH)?;
    finding(
        format!("threads of the task were ready without a core {:.0} % of the time", 100.0 * share),
        "ask for more cores, or start fewer threads",
    )
}

fn idle(summary: &Summary) -> Option<Finding> {
    let cores = value(summary, "cores")?;
    let wall = value(summary, "wall_seconds").filter(|wall| *wall >= 10.0)?;
    let waited = value(summary, "io_delay_seconds").unwrap_or(0.0);
    if cores > 0.1 || waited > MUCH * wall {
        return None;
    }
    finding(
        format!("the task used {cores:.2} cores: it mostly waited, and not for storage"),
        "look for sleeps, locks and network waits",
    )
}

#[cfg(test)]
mod tests {
    use skopos_model::task::Process;

    use super::*;

    #[test]
    fn the_cause_of_the_end_comes_before_survivors() {
        let text = include_str!("../../tests/data/rank.json");
        let mut summary: Summary = serde_json::from_str(text).expect("a report");
        let daemon = Process { pid: 7, command: "daemon".into(), ..Process::default() };
        summary.processes.push(daemon);
        (summary.ended.exit_type, summary.ended.signal) = (ExitType::Signal, Some(11));
        let all: Vec<String> = findings(&summary).into_iter().map(|f| f.what).collect();
        let at = |text: &str| all.iter().position(|what| what.contains(text));
        let (died, left) = (at("the task died of signal 11"), at("the task left daemon"));
        assert!(died.is_some() && left.is_some() && died < left, "{all:?}");
    }
}
