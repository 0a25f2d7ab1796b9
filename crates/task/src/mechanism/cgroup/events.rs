//! The events of a control group that show whether its own limit was reached. A group above or below has
//! limits of its own, and the machine may run out of memory: their events are not the task's.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The greatest part of memory that is refused at once, a large page: the peak of a full group may be so much
/// below its limit.
const LAST_BYTES: u64 = 2 << 20;

/// The most groups below the task's one that are looked at: a container has a few.
const MAX_GROUPS: usize = 256;

/// True if the kernel refused memory to a group, or killed a process in it, because of this group's own
/// limit.
pub(super) fn ran_out_of_memory(group: &Path) -> bool {
    if let Some(times) = keyed(&group.join("memory.events.local"), "oom") {
        return times > 0;
    }
    // Before Linux 5.2 the events include those of groups below.
    if let Some(times) = keyed(&group.join("memory.events"), "oom") {
        return times > 0;
    }
    // Version 1 counts a killed process in its own group, by whichever limit it was killed. It is ours if
    // this group was full, and the group of the process was not.
    let kills = |group: &Path| keyed(&group.join("memory.oom_control"), "oom_kill").unwrap_or(0);
    let is_full = |group: &Path| {
        let most = number(&group.join("memory.limit_in_bytes")).unwrap_or(u64::MAX);
        let peak = number(&group.join("memory.max_usage_in_bytes")).unwrap_or(0);
        peak.saturating_add(LAST_BYTES) >= most
    };
    if kills(group) > 0 {
        return is_full(group);
    }
    let of_inner = |inner: &PathBuf| kills(inner) > 0 && !is_full(inner);
    below(group).iter().any(of_inner) && is_full(group)
}

/// True if the kernel refused a thread because of this group's own limit, which is `most`.
pub(super) fn refused_threads(group: &Path, most: f64) -> bool {
    // The peak counts what was granted: it is below the limit if a group above refused.
    if number(&group.join("pids.peak")).is_some_and(|peak| (peak as f64) < most.floor()) {
        return false;
    }
    if let Some(times) = keyed(&group.join("pids.events.local"), "max") {
        return times > 0;
    }
    let refused = |group: &Path| keyed(&group.join("pids.events"), "max").unwrap_or(0);
    refused(group) > 0 || below(group).iter().any(|inner| refused(inner) > 0)
}

/// Returns the groups below a group.
fn below(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![group.to_owned()];
    while let Some(folder) = waiting.pop().filter(|_| found.len() < MAX_GROUPS) {
        // A folder has a link for each folder in it and two more, so most groups need not be listed.
        if fs::metadata(&folder).is_ok_and(|about| about.nlink() == 2) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
                waiting.push(entry.path());
            }
        }
    }
    found
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the number after `key ` in a file of such lines.
pub(super) fn keyed(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        }
        folder
    }

    #[test]
    fn a_kill_for_the_limit_of_another_group_is_not_a_crossing() {
        let check = |files: &[(&str, &str)], expected: bool| {
            let group = group(files);
            assert_eq!(ran_out_of_memory(group.path()), expected, "{files:?}");
        };
        let all = ("memory.events", "low 0\noom 3\noom_kill 3\n");
        // The limit of a group below, in version 2.
        check(&[all, ("memory.events.local", "oom 0\noom_kill 0\n")], false);
        // The machine ran out of memory, or a group above did.
        check(&[all, ("memory.events.local", "oom 0\noom_kill 1\n")], false);
        check(&[all, ("memory.events.local", "oom 1\noom_kill 1\n")], true);
        // The killed process was in a group below.
        check(&[all, ("memory.events.local", "oom 1\noom_kill 0\n")], true);
        check(&[all], true);
        // Version 1.
        let killed = ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        let not_killed = ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
        let limit = ("memory.limit_in_bytes", "104857600\n");
        let full = ("memory.max_usage_in_bytes", "104853504\n");
        let half = ("memory.max_usage_in_bytes", "52428800\n");
        check(&[killed, limit, half], false);
        check(&[killed, limit, full], true);
        check(&[not_killed, limit, full], false);
        let inner = ("inner/memory.oom_control", killed.1);
        let of_inner = ("inner/memory.limit_in_bytes", "62914560\n");
        let inner_full = ("inner/memory.max_usage_in_bytes", "62914560\n");
        let inner_half = ("inner/memory.max_usage_in_bytes", "31457280\n");
        check(&[not_killed, limit, full, inner, of_inner, inner_half], true);
        check(&[not_killed, limit, full, inner, of_inner, inner_full], false);
        check(&[not_killed, limit, half, inner, of_inner, inner_half], false);
    }

    #[test]
    fn a_thread_that_another_group_refused_is_not_a_crossing() {
        let check = |files: &[(&str, &str)], expected: bool| {
            let group = group(files);
            assert_eq!(refused_threads(group.path(), 10.0), expected, "{files:?}");
        };
        let refused = ("pids.events", "max 2\n");
        check(&[refused, ("pids.peak", "6\n")], false);
        check(&[refused, ("pids.peak", "10\n")], true);
        check(&[refused], true);
        check(&[refused, ("pids.events.local", "max 0\n"), ("pids.peak", "10\n")], false);
        check(&[refused, ("pids.events.local", "max 2\n"), ("pids.peak", "10\n")], true);
        let inner = ("inner/pids.events", "max 1\n");
        check(&[("pids.events", "max 0\n"), inner, ("pids.peak", "10\n")], true);
    }
}
