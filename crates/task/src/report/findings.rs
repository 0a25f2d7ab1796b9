//! What stands out in a report, and what one could do about it.

use skopos_model::task::{ExitType, Finding, Summary};

use crate::mechanism::ptrace;

/// A finding looks at the whole report.
type Rule = fn(&Summary) -> Option<Finding>;

/// The most important first.
const RULES: [Rule; 8] =
    [limit, signal, tracer, left_behind, waited_for_storage, swapped, waited_for_cores, idle];

/// All that stand out.
pub(super) fn findings(summary: &Summary) -> Vec<Finding> {
    RULES.iter().filter_map(|rule| rule(summary)).collect()
}

/// The most processes that a finding names.
const MAX_NAMED: usize = 3;

/// What runs on though it was to be ended.
pub(super) fn survivors(left: &[String]) -> Option<Finding> {
    if left.is_empty() {
        return None;
    }
    let named = left[..left.len().min(MAX_NAMED)].join(", ");
    let more = match left.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    found(
        format!("it was to be ended, and this is left of it: {named}{more}"),
        "what another user runs that user or an administrator can end, with `kill`",
    )
}

/// Why the kernel does not keep a limit that it was asked to keep.
pub(super) fn cpu_limit_error(why: Option<&str>) -> Option<Finding> {
    found(
        format!(
            "the kernel does not keep the limit on the processor time of each process: {}",
            why?
        ),
        "looks keep the one of all together, for as long as the monitor lives",
    )
}

/// A share of the wall time from which on waiting stands out.
const MUCH: f64 = 0.25;

/// Shorter runs are over before they can be slow.
const SHORT_SECONDS: f64 = 1.0;

fn value(summary: &Summary, name: &str) -> Option<f64> {
    summary.resources.get(name)?.value
}

fn found(what: String, advice: &str) -> Option<Finding> {
    Some(Finding { what, advice: advice.to_owned() })
}

fn limit(summary: &Summary) -> Option<Finding> {
    let ended = &summary.ended;
    if ended.exit_type != ExitType::Limit {
        return None;
    }
    let who = ended.guilty.as_ref().map_or(String::new(), |who| format!("; most of it by {who}"));
    found(
        format!("it was ended for a limit: {}{who}", ended.limits.join(", ")),
        "give it more, or less to do at one time",
    )
}

fn signal(summary: &Summary) -> Option<Finding> {
    let ended = &summary.ended;
    let signal = ended.signal.filter(|_| ended.exit_type == ExitType::Signal)?;
    let advice = match signal {
        9 => "somebody killed it; if it was the kernel for want of memory, `dmesg` says so",
        6 | 11 | 7 | 8 | 4 => "it crashed: a core dump or a debugger tells where",
        _ => "somebody asked it to end",
    };
    found(format!("it died of signal {}", super::signals::signal_name(signal)), advice)
}

/// Programs that trace others.
const TRACERS: [&str; 6] = ["strace", "ltrace", "gdb", "lldb", "rr", "uftrace"];

/// One tracer at a time: a debugger in the task fails, and its own message does not say why.
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
    found(
        format!("`{name}` failed, and could not trace: the monitor traces, and only one may"),
        "run it with --level 1, which traces nothing",
    )
}

/// What is not told of them is in no number, and nobody else waits for them.
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
    found(
        format!("it left {} (pid {}){more} running", first.command, first.pid),
        "what they use from now on is not measured: let it wait for them if they are part of it",
    )
}

/// Folders that were watched and not there at any look.
pub(super) fn missing_folders(folders: &[String]) -> Option<Finding> {
    if folders.is_empty() {
        return None;
    }
    let advice =
        "nothing was counted there: see whether --watch names the folder that it writes to";
    found(format!("never there: {}", folders.join(", ")), advice)
}

fn share(summary: &Summary, name: &str) -> Option<f64> {
    let wall = value(summary, "wall_seconds").filter(|wall| *wall >= SHORT_SECONDS)?;
    Some(value(summary, name)? / wall)
}

fn waited_for_storage(summary: &Summary) -> Option<Finding> {
    let share = share(summary, "io_delay_seconds").filter(|share| *share >= MUCH)?;
    found(
        format!("it waited for storage {:.0} % of the time", 100.0 * share),
        "faster storage, larger blocks or fewer syncs would help; more cores would not",
    )
}

fn swapped(summary: &Summary) -> Option<Finding> {
    let bytes = value(summary, "swap_bytes_max").filter(|bytes| *bytes > 0.0)?;
    found(
        format!("{:.0} MiB of it were in swap", bytes / (1024.0 * 1024.0)),
        "run fewer tasks beside it, or on a machine with more memory",
    )
}

fn waited_for_cores(summary: &Summary) -> Option<Finding> {
    let share = share(summary, "cpu_delay_seconds").filter(|share| *share >= MUCH)?;
    found(
        format!("its threads were ready and had no core for {:.0} % of the time", 100.0 * share),
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
    found(
        format!("it used {cores:.2} cores: it mostly waited for something else than storage"),
        "look for sleeps, locks and the network",
    )
}

#[cfg(test)]
mod tests {
    use skopos_model::task::Process;

    use super::*;

    #[test]
    fn why_it_ended_comes_before_what_it_left() {
        let text = include_str!("../../tests/data/rank.json");
        let mut summary: Summary = serde_json::from_str(text).expect("a report");
        let daemon = Process { pid: 7, command: "daemon".into(), ..Process::default() };
        summary.processes.push(daemon);
        (summary.ended.exit_type, summary.ended.signal) = (ExitType::Signal, Some(11));
        let said: Vec<String> = findings(&summary).into_iter().map(|f| f.what).collect();
        let at = |text: &str| said.iter().position(|what| what.contains(text));
        let (died, left) = (at("it died of signal 11"), at("it left daemon"));
        assert!(died.is_some() && left.is_some() && died < left, "{said:?}");
    }
}
