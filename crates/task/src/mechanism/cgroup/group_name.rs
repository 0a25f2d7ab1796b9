//! Names of control groups: the process id and the start time of their monitor, because process ids
//! are reused. So two monitors never use the same name, and any monitor can tell whether the one in
//! a name is gone.

use std::fs;
use std::io;
use std::path::Path;

use crate::proc;
use crate::sys::Pid;

/// Prefix of the group of a task.
pub(super) const TASK: &str = "skopos-";

/// Prefix of the group of a monitor itself.
pub(super) const MONITOR: &str = "skopos-monitor-";

fn name(kind: &str, monitor: Pid, started_ticks: u64) -> String {
    format!("{kind}{monitor}-{started_ticks}")
}

/// Returns the name for a group of this monitor.
pub(super) fn own_name(kind: &str) -> io::Result<String> {
    let own = std::process::id() as Pid;
    let stat =
        proc::stat(own).ok_or_else(|| io::Error::other("/proc/self/stat is not readable"))?;
    Ok(name(kind, own, stat.started_ticks))
}

/// Returns the process id and start time of the monitor of a group; `None` if the name is not one
/// of ours.
fn monitor_of(group: &str) -> Option<(Pid, u64)> {
    let (kind, rest) = match group.strip_prefix(MONITOR) {
        Some(rest) => (MONITOR, rest),
        None => (TASK, group.strip_prefix(TASK)?),
    };
    let (pid, ticks) = rest.split_once('-')?;
    let (pid, ticks) = (pid.parse().ok()?, ticks.parse().ok()?);
    // Others may write numbers differently.
    (name(kind, pid, ticks) == group).then_some((pid, ticks))
}

/// Removes the empty groups of dead monitors, including those of monitors that ran inside their
/// tasks.
pub(super) fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let Some((pid, ticks)) = entry.file_name().to_str().and_then(monitor_of) else { continue };
        if proc::stat(pid).is_none_or(|stat| stat.started_ticks != ticks) {
            sweep(&entry.path());
            // A group that is not empty stays: its task is still running.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_dead_monitors_are_removed_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str| fs::create_dir_all(folder.path().join(name)).expect("made");
        let own = std::process::id();
        let ticks = proc::stat(own as Pid).expect("this one").started_ticks;
        let gone = Pid::MAX;
        // A reused id, a dead monitor, and one that ran inside its task.
        let swept = [
            format!("skopos-{own}-{}", ticks + 1),
            format!("skopos-{gone}-7"),
            format!("skopos-monitor-{gone}-7"),
            format!("skopos-{gone}-8/skopos-{gone}-9"),
        ];
        let kept = [
            format!("skopos-{own}-{ticks}"),
            format!("skopos-monitor-{own}-{ticks}"),
            // A task that is still running.
            format!("skopos-{gone}-1/task"),
            // Groups of other programs.
            format!("skopos-{gone}"),
            format!("skopos-{gone}-07"),
            format!("skopos-{gone}-+7"),
            format!("skopos-{gone}-7-"),
            format!("skopos-other-{gone}-7"),
            format!("{gone}-7"),
        ];
        swept.iter().chain(&kept).for_each(|name| make(name));
        sweep(folder.path());
        for name in &swept {
            let top = name.split('/').next().expect("a name");
            assert!(!folder.path().join(top).exists(), "{name}");
        }
        for name in &kept {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }
}
