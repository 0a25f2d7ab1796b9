//! Control groups, version 2 and version 1: the task gets a group of its own, in which the kernel
//! counts and, where it has the controllers, enforces.
//!
//! Needs to be allowed to make a group below one's own: root, or a user to whom it was delegated. What
//! a group was charged for has page cache in it, so its peak is no need of the task's.

mod delegation;
mod group_name;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::task::{Completeness, Crossing, Limit, Limits};

use self::delegation::Delegation;
use self::group_name::sweep;
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "cgroup";

/// What the child does in the group before it is the program: it waits at its gate.
const BEFORE_SECONDS: f64 = 0.001;

/// Threads that the processes of a task may have where only its processes are limited: so many each,
/// and never fewer than these in all.
const THREADS_EACH: f64 = 8.0;
const ROOM: f64 = 4096.0;

/// Of the two parts of the processor time, whose sum is exact.
const BY_TICKS: &str =
    "how the time is divided into these two is sampled by the kernel's clock, once a tick";

pub(crate) struct Cgroup {
    limits: Limits,
    groups: Vec<Group>,
    /// What groups above were made to hand down.
    delegation: Vec<Delegation>,
    /// Why one hands nothing down.
    not_handed: Option<String>,
}

/// A group that was made in one hierarchy.
struct Group {
    folder: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// Puts a process in that is not in it.
    fn take(&self, process: Pid) -> io::Result<()> {
        let procs = self.folder.join("cgroup.procs");
        let process = process.to_string();
        if fs::read_to_string(&procs)?.lines().any(|inside| inside == process) {
            return Ok(());
        }
        fs::write(procs, process)
    }
}

impl Cgroup {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (groups, delegation) = (Vec::new(), Vec::new());
        Self { limits: limits.clone(), groups, delegation, not_handed: None }
    }

    /// Has groups of version 2 hand down what the limits need.
    fn hand_down(&mut self, parent: &Path) {
        let is_limited = |name| self.limits.of(name).is_some();
        let mut wanted = Vec::new();
        if is_limited("resident_bytes_max") {
            wanted.push("memory");
        }
        if is_limited("threads_max") || is_limited("processes_max") {
            wanted.push("pids");
        }
        match Delegation::down(parent, &wanted) {
            Ok(delegation) => self.delegation.extend(delegation),
            Err(why) => self.not_handed = Some(why),
        }
    }

    /// The file by which the kernel is told how much memory the group may have.
    fn memory_max(&self) -> Option<PathBuf> {
        ["memory.max", "memory.limit_in_bytes"].iter().find_map(|file| self.with(file))
    }

    /// The group in which a file of this name is.
    fn with(&self, file: &str) -> Option<PathBuf> {
        self.groups.iter().map(|g| g.folder.join(file)).find(|path| path.exists())
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.with(file)?).ok()?.trim().parse().ok()
    }

    /// The number after `key ` in a file of such lines.
    fn keyed(&self, file: &str, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.with(file)?).ok()?;
        text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// Total stall of a pressure file's `some` line, in seconds.
    fn stalled(&self, file: &str) -> Option<f64> {
        let text = fs::read_to_string(self.with(file)?).ok()?;
        let line = text.lines().find(|line| line.starts_with("some"))?;
        let micros: u64 = line.rsplit_once("total=")?.1.trim().parse().ok()?;
        Some(micros as f64 / 1e6)
    }

    /// Has the kernel keep what it can keep.
    fn enforce(&self) -> io::Result<()> {
        if let Some(bytes) = self.limits.of("resident_bytes_max") {
            let text = format!("{}", bytes as u64);
            if let Some(path) = self.memory_max() {
                fs::write(path, &text)?;
                // Without this the task would go to swap instead.
                if let Some(path) = self.with("memory.memsw.limit_in_bytes") {
                    let _ = fs::write(path, &text);
                }
                if let Some(path) = self.with("memory.swap.max") {
                    let _ = fs::write(path, "0");
                }
            }
        }
        let threads = self.limits.of("threads_max");
        // The kernel counts threads. Where processes are limited this only keeps a task that forks
        // without end from growing faster than it is looked at.
        let room = self.limits.of("processes_max").map(|most| (most * THREADS_EACH).max(ROOM));
        if let (Some(most), Some(path)) = (threads.or(room), self.with("pids.max")) {
            fs::write(path, format!("{}", most as u64))?;
        }
        Ok(())
    }

    /// How often the kernel ended a process because the group had no memory left.
    fn oom_kills(&self) -> u64 {
        self.keyed("memory.events", "oom_kill")
            .or_else(|| self.keyed("memory.oom_control", "oom_kill"))
            .unwrap_or(0)
    }

    /// The most that the group was charged for.
    fn charged_max(&self) -> Option<u64> {
        self.number("memory.peak").or_else(|| self.number("memory.max_usage_in_bytes"))
    }
}

impl Mechanism for Cgroup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("it has the groups that it was started in, and others may be in them")
    }

    fn prepare(&mut self, launch: &mut Launch) -> io::Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut refused = None;
        for parent in parents(&own, &mounts) {
            sweep(&parent);
            self.hand_down(&parent);
            let folder = parent.join(group_name::own(group_name::TASK)?);
            match fs::create_dir(&folder) {
                Ok(()) => self.groups.push(Group { folder, parent }),
                Err(e) => {
                    refused = Some(io::Error::new(e.kind(), format!("{}: {e}", folder.display())));
                }
            }
        }
        if self.groups.is_empty() {
            let none = || io::Error::new(io::ErrorKind::NotFound, "no control groups are mounted");
            return Err(refused.unwrap_or_else(none));
        }
        for Group { folder, .. } in &self.groups {
            let tasks = folder.join("tasks");
            if tasks.exists() {
                launch.groups.extend(CString::new(tasks.into_os_string().into_vec()));
            } else {
                // Without a descriptor for it the child is put in later.
                launch.group = File::open(folder).ok().map(OwnedFd::from);
            }
        }
        self.enforce()
    }

    /// A child that is not in its groups by now is put in by the monitor, which waits for the kernel then. A
    /// group that it cannot be put into has nothing to tell.
    fn attach(&mut self, root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        let mut refused = None;
        self.groups.retain(|group| match group.take(root) {
            Ok(()) => true,
            Err(e) => {
                refused =
                    Some(io::Error::new(e.kind(), format!("{}: {e}", group.folder.display())));
                let _ = fs::remove_dir(&group.folder);
                false
            }
        });
        match refused {
            Some(e) if self.groups.is_empty() => Err(e),
            _ => Ok(()),
        }
    }

    fn crossings(&mut self, _ledger: &Ledger) -> Vec<Crossing> {
        let mut crossings = Vec::new();
        let limit = |name| self.limits.iter().find(|limit: &Limit| limit.resource.name == name);
        if let Some(limit) = limit("resident_bytes_max").filter(|_| self.oom_kills() > 0) {
            // The kernel let it have no more: that is what it reached.
            // A kernel keeps whole pages, so that may be a little less than what was asked for.
            let value = self.charged_max().map_or(limit.most, |b| limit.most.max(b as f64));
            crossings.push(Crossing { limit, value });
        }
        if let Some(limit) = limit("threads_max")
            && self.keyed("pids.events", "max").is_some_and(|refused| refused > 0)
        {
            crossings.push(Crossing { limit, value: limit.most + 1.0 });
        }
        crossings
    }

    fn provides(&self) -> Option<String> {
        let (memory, pids) = (self.memory_max().is_some(), self.with("pids.max").is_some());
        let mut told = "processor time of all".to_owned();
        if self.charged_max().is_some() {
            told += ", the group's memory";
        }
        told += match (memory, pids) {
            (true, true) => ", limits that the kernel keeps",
            (true, false) => {
                ", the limit on memory, which the kernel keeps; it has no controller \
                              `pids` here, and looks keep a limit on threads"
            }
            (false, true) => {
                ", the limit on threads, which the kernel keeps; it has no controller \
                              `memory` here, and looks keep a limit on memory"
            }
            (false, false) => {
                "; it has no controllers `memory` and `pids` here, so the kernel keeps \
                               no limit, and looks do"
            }
        };
        if let Some(why) = &self.not_handed {
            told += ": ";
            told += why;
        }
        Some(told)
    }

    fn enforces(&self, resource: &str) -> bool {
        resource == "resident_bytes_max" && self.memory_max().is_some()
    }

    fn kill_all(&mut self) -> bool {
        self.with("cgroup.kill").is_some_and(|path| fs::write(path, "1").is_ok())
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let nanos = |value: u64| value as f64 / 1e9;
        let micros = |value: u64| value as f64 / 1e6;
        let cpu = self.number("cpuacct.usage").map(nanos);
        let cpu = cpu.or_else(|| self.keyed("cpu.stat", "usage_usec").map(micros));
        let ticks = self.number("cpuacct.usage_user").zip(self.number("cpuacct.usage_sys"));
        let parts = |name| self.keyed("cpu.stat", name).map(micros);
        let (user, system) = match ticks.zip(cpu) {
            Some((ticks, cpu)) => divided(cpu, ticks).unzip(),
            None => (parts("user_usec"), parts("system_usec")),
        };
        let left = self.with("cgroup.procs").and_then(|path| fs::read_to_string(path).ok());
        let left = left.map_or(0, |pids| pids.lines().count());
        let left = match left {
            0 => None,
            1 => Some("1 process of the task runs on".to_owned()),
            _ => Some(format!("{left} processes of the task run on")),
        };
        if self.charged_max().is_none() {
            ledger.offers.mark_unavailable(
                "cgroup_bytes_max",
                "its control group has no controller `memory`",
            );
        }
        let stalled =
            Some("time in which at least one thread waited; two that wait together count once");
        let (all, least) = (Completeness::All, Completeness::AtLeast);
        for (name, value, completeness, error_bound, reason) in [
            ("cpu_seconds", cpu, all, Some(BEFORE_SECONDS), None),
            ("user_seconds", user, all, None, Some(BY_TICKS)),
            ("system_seconds", system, all, None, Some(BY_TICKS)),
            ("cgroup_bytes_max", self.charged_max().map(|b| b as f64), all, Some(0.0), None),
            ("threads_max", self.number("pids.peak").map(|n| n as f64), all, Some(0.0), None),
            ("memory_delay_seconds", self.stalled("memory.pressure"), least, None, stalled),
            ("cpu_delay_seconds", self.stalled("cpu.pressure"), least, None, stalled),
            ("io_delay_seconds", self.stalled("io.pressure"), least, None, stalled),
        ] {
            let Some(value) = value else { continue };
            let completeness = if left.is_some() { least } else { completeness };
            let of_it = reason.map(str::to_owned);
            let reason = left.clone().filter(|_| reason != stalled).or(of_it);
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Where controllers are handed down no process may be put back.
        self.delegation.clear();
        for Group { folder, parent } in &self.groups {
            remove(folder, parent);
        }
    }
}

/// How often it is tried to take a group away, and the time between: a process that is about to end
/// can neither leave it nor be left in it, and needs a few milliseconds.
const REMOVALS: usize = 100;
const REMOVE_AGAIN: Duration = Duration::from_millis(2);

/// Takes a group away. Processes that are left in it go back to where the task came from.
fn remove(folder: &Path, parent: &Path) {
    sweep(folder);
    for _ in 0..REMOVALS {
        if fs::remove_dir(folder).is_ok() {
            return;
        }
        let left = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(parent.join("cgroup.procs"), pid);
        }
        if fs::remove_dir(folder).is_ok() {
            return;
        }
        std::thread::sleep(REMOVE_AGAIN);
    }
}

/// Processor time divided as the ticks are that hit a program and those that hit the kernel: version 1
/// hands out the ticks themselves, whose sum is none of the times of short processes. `None` if there was
/// no tick.
fn divided(cpu: f64, ticks: (u64, u64)) -> Option<(f64, f64)> {
    let (user, system) = (ticks.0 as f64, ticks.1 as f64);
    let share = user / (user + system);
    (user + system > 0.0).then_some((cpu * share, cpu * (1.0 - share)))
}

/// The controllers of version 1 that are of use. With `cpu` the task as a whole shares the processors
/// with the monitor: thousands of its processes cannot keep the monitor from ending them.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];

/// Where this process' groups are, in each hierarchy that is of use.
fn parents(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 has none here.
        if !controllers.is_empty() && !controllers.split(',').any(|c| CONTROLLERS.contains(&c)) {
            continue;
        }
        let Some(mount) = mount_of(controllers, mounts) else { continue };
        let parent = mount.join(path.trim_start_matches('/'));
        // In a container's namespace the path may start above what is mounted.
        let parent = if parent.is_dir() { parent } else { mount };
        if !found.contains(&parent) {
            found.push(parent);
        }
    }
    found
}

/// Where the hierarchy of these controllers is mounted; without any it is version 2.
fn mount_of(controllers: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        // "36 35 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let fits = match kind {
            "cgroup2" => controllers.is_empty(),
            "cgroup" if !controllers.is_empty() => {
                controllers.split(',').all(|c| options.split(',').any(|o| o == c))
            }
            _ => false,
        };
        fits.then(|| left.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_sum_that_is_exact() {
        let near = |(user, system): (f64, f64), expected: (f64, f64)| {
            assert!((user - expected.0).abs() + (system - expected.1).abs() < 1e-12);
        };
        near(divided(2.0, (30, 10)).expect("ticks"), (1.5, 0.5));
        near(divided(0.5, (0, 10)).expect("ticks"), (0.0, 0.5));
        assert_eq!(divided(0.003, (0, 0)), None);
    }

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let own = "5:memory:/a\n4:cpu,cpuacct:/a\n3:freezer:/\n0::/b\n";
        let mounts = "30 25 0:26 / /sys/fs/cgroup/unified rw shared:8 - cgroup2 cgroup2 rw\n\
                      31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let mount = |c| mount_of(c, mounts);
        assert_eq!(mount("memory"), Some(PathBuf::from("/sys/fs/cgroup/memory")));
        assert_eq!(mount("cpu,cpuacct"), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(mount(""), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount("pids"), None);
        let found = parents(own, mounts);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
