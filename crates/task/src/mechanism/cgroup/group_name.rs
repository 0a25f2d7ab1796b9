//! What groups are called: by the process id of their monitor and when it started, since ids come round
//! again. So no two monitors mean the same group, and who finds one knows whether its monitor is gone.

use std::fs;
use std::io;
use std::path::Path;

use crate::proc;
use crate::sys::Pid;

/// What groups of tasks are called, before the monitor's process id.
pub(super) const TASK: &str = "skopos-";

/// And those of monitors themselves.
pub(super) const MONITOR: &str = "skopos-monitor-";

fn name(kind: &str, monitor: Pid, started_ticks: u64) -> String {
    format!("{kind}{monitor}-{started_ticks}")
}

/// The name of a group of this monitor.
pub(super) fn own(kind: &str) -> io::Result<String> {
    let own = std::process::id() as Pid;
    let stat = proc::stat(own).ok_or_else(|| io::Error::other("/proc does not tell of itself"))?;
    Ok(name(kind, own, stat.started_ticks))
}

/// The monitor that a group of this name is of, and when that started.
fn monitor_of(group: &str) -> Option<(Pid, u64)> {
    let (kind, rest) = match group.strip_prefix(MONITOR) {
        Some(rest) => (MONITOR, rest),
        None => (TASK, group.strip_prefix(TASK)?),
    };
    let (pid, ticks) = rest.split_once('-')?;
    let (pid, ticks) = (pid.parse().ok()?, ticks.parse().ok()?);
    // Numbers may be written otherwise, by others.
    (name(kind, pid, ticks) == group).then_some((pid, ticks))
}

/// Takes empty groups away of monitors that died, and first those of monitors inside of theirs.
pub(super) fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let Some((pid, ticks)) = entry.file_name().to_str().and_then(monitor_of) else { continue };
        if proc::stat(pid).is_none_or(|stat| stat.started_ticks != ticks) {
            sweep(&entry.path());
            // One that is not empty stays: its task runs on.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_monitors_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str| fs::create_dir_all(folder.path().join(name)).expect("made");
        let own = std::process::id();
        let ticks = proc::stat(own as Pid).expect("this one").started_ticks;
        let gone = Pid::MAX;
        // An id that came round again, a monitor that is gone, and one that was inside of its task.
        let swept = [
            format!("skopos-{own}-{}", ticks + 1),
            format!("skopos-{gone}-7"),
            format!("skopos-monitor-{gone}-7"),
            format!("skopos-{gone}-8/skopos-{gone}-9"),
        ];
        let kept = [
            format!("skopos-{own}-{ticks}"),
            format!("skopos-monitor-{own}-{ticks}"),
            // A task that runs on.
            format!("skopos-{gone}-1/task"),
            // Those of others.
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
