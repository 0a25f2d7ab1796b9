//! Control groups, version 2 and version 1: the task gets a group of its own, in which the kernel
//! counts its usage and, if the group has the controllers, enforces limits.
//!
//! Needs the right to create a group below the monitor's own one: root, or a user to whom the group
//! is delegated. The charge of a group includes page cache, so its peak is not the need of the
//! task.

mod delegation;
mod events;
mod group_name;

use std::collections::HashSet;
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
use super::reasons::still_running;
use super::{Launch, Mechanism, Sample};
use crate::ledger::{Ledger, Offer};
use crate::proc;
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "cgroup";

/// Processor time that the child uses in the group before its exec, while it waits at its gate.
const SETUP_SECONDS: f64 = 0.001;

/// The most threads if only the number of processes is limited: so many for each process, and at
/// least the second number in total.
const THREADS_EACH: f64 = 8.0;
const MIN_THREADS: f64 = 4096.0;

/// The most processes outside of the group's own list whose groups one sample reads.
const MAX_CHECKED: usize = 256;

/// The note on the two parts of the processor time, whose sum is exact.
const BY_TICKS: &str = "the kernel's clock samples the division into these two once a tick";

pub(crate) struct Cgroup {
    limits: Limits,
    groups: Vec<Group>,
    /// Controllers that groups above were made to delegate.
    delegation: Vec<Delegation>,
    /// The reason why a group above delegates no controllers.
    delegation_error: Option<String>,
    /// Throttled time of the groups above the task's one when it began, in seconds.
    throttled_before: f64,
    /// The reason why the groups no longer hold the whole task within its limit, if a sample found one.
    lost: Option<String>,
}

/// A group that was created in one hierarchy.
struct Group {
    folder: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// Moves a process into the group, unless it is already there.
    fn enter(&self, process: Pid) -> io::Result<()> {
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
        let limits = limits.clone();
        let (delegation_error, lost) = (None, None);
        Self { limits, groups, delegation, delegation_error, throttled_before: 0.0, lost }
    }

    /// The controllers that the limits need.
    fn wanted(&self) -> Vec<&'static str> {
        let is_limited = |name| self.limits.of(name).is_some();
        let mut wanted = Vec::new();
        if is_limited("resident_bytes_max") {
            wanted.push("memory");
        }
        if is_limited("threads_max") || is_limited("processes_max") {
            wanted.push("pids");
        }
        wanted
    }

    /// Returns the group below which the task's one is created: the monitor's own group, or in version 2 the
    /// one above, if that alone passes on the controllers which the limits need.
    fn place(&mut self, parent: &Path) -> PathBuf {
        let wanted = self.wanted();
        match Delegation::request(parent, &wanted) {
            Ok(delegation) => self.delegation.extend(delegation),
            Err(why) => self.delegation_error = Some(why),
        }
        // An administrator may create a group anywhere; a batch system expects its tasks in its own group.
        let user = rustix::process::geteuid();
        if !user.is_root()
            && let Some(above) = delegation::above(parent, &wanted, user.as_raw())
        {
            self.delegation_error = None;
            return above;
        }
        parent.to_owned()
    }

    /// Returns the file that sets the group's limit on memory.
    fn memory_max(&self) -> Option<PathBuf> {
        ["memory.max", "memory.limit_in_bytes"].iter().find_map(|file| self.file(file))
    }

    /// Returns the path of a file of this name in one of the groups.
    fn file(&self, file: &str) -> Option<PathBuf> {
        self.groups.iter().map(|g| g.folder.join(file)).find(|path| path.exists())
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.file(file)?).ok()?.trim().parse().ok()
    }

    /// Returns the number after `key ` in a file of such lines.
    fn keyed_number(&self, file: &str, key: &str) -> Option<u64> {
        events::keyed(&self.file(file)?, key)
    }

    /// Returns the total stall time in the `some` line of a pressure file, in seconds.
    fn stall_seconds(&self, file: &str) -> Option<f64> {
        let text = fs::read_to_string(self.file(file)?).ok()?;
        let line = text.lines().find(|line| line.starts_with("some"))?;
        let micros: u64 = line.rsplit_once("total=")?.1.trim().parse().ok()?;
        Some(micros as f64 / 1e6)
    }

    /// Sets the limits that the kernel can enforce.
    fn enforce(&self) -> io::Result<()> {
        if let Some(bytes) = self.limits.of("resident_bytes_max") {
            let text = format!("{}", bytes as u64);
            if let Some(path) = self.memory_max() {
                fs::write(path, &text)?;
                // Without this the task would be swapped out instead.
                if let Some(path) = self.file("memory.memsw.limit_in_bytes") {
                    let _ = fs::write(path, &text);
                }
                if let Some(path) = self.file("memory.swap.max") {
                    let _ = fs::write(path, "0");
                }
            }
        }
        let threads = self.limits.of("threads_max");
        // The kernel counts threads. If only processes are limited, this merely keeps a task that
        // forks without end from growing faster than samples are taken.
        let threads_limit =
            self.limits.of("processes_max").map(|most| (most * THREADS_EACH).max(MIN_THREADS));
        if let (Some(most), Some(path)) = (threads.or(threads_limit), self.file("pids.max")) {
            fs::write(path, format!("{}", most as u64))?;
        }
        Ok(())
    }

    /// Returns a text about a living process of the task that is outside of a group, if there is one.
    fn escaped(&self, ledger: &Ledger) -> Option<String> {
        let name = ledger.membership.group.as_ref()?;
        let living = ledger.live_pids();
        let mut outside: HashSet<Pid> = HashSet::new();
        for group in &self.groups {
            let inside = fs::read_to_string(group.folder.join("cgroup.procs")).ok()?;
            let inside: HashSet<Pid> = inside.lines().filter_map(|pid| pid.parse().ok()).collect();
            outside.extend(living.iter().filter(|pid| !inside.contains(pid)));
        }
        // A process may be in a group below, or have started or exited just now.
        let is_outside = |pid: &Pid| {
            let is_out = proc::groups_named(*pid, name) < self.groups.len();
            is_out && proc::stat(*pid).is_some_and(|stat| !stat.is_zombie)
        };
        let pid = outside.into_iter().take(MAX_CHECKED).find(is_outside)?;
        let command = ledger.command_of(pid).unwrap_or_default();
        Some(format!("{command} (pid {pid}) left the control group of the task"))
    }

    /// Returns a text if the group's limit on memory is no longer the one that was set.
    fn raised(&self) -> Option<String> {
        let most = self.limits.of("resident_bytes_max")?;
        let now = fs::read_to_string(self.memory_max()?).ok()?;
        let is_kept = now.trim().parse::<f64>().is_ok_and(|now| now <= most);
        (!is_kept).then(|| "the limit of the control group was raised".to_owned())
    }

    /// Returns the time that the task's groups and those above them were throttled, in seconds; `None` if no group
    /// counts it. A limit is often set on the group of a whole job, and only that group counts it.
    fn throttled_seconds(&self) -> Option<f64> {
        let folders = self.groups.iter().flat_map(|group| group.folder.ancestors());
        let counted: HashSet<&Path> = folders.filter(|at| at.join("cpu.stat").exists()).collect();
        let of = |folder: &&Path| {
            let path = folder.join("cpu.stat");
            let nanos = events::keyed(&path, "throttled_time").map(|n| n as f64 / 1e9);
            nanos.or_else(|| events::keyed(&path, "throttled_usec").map(|n| n as f64 / 1e6))
        };
        let all: Vec<f64> = counted.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum())
    }

    /// Returns the peak of the group's charge.
    fn charged_max(&self) -> Option<u64> {
        self.number("memory.peak").or_else(|| self.number("memory.max_usage_in_bytes"))
    }
}

impl Mechanism for Cgroup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("the task is in groups that it may share with other processes")
    }

    fn prepare(&mut self, launch: &mut Launch) -> io::Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut refused = None;
        for parent in parents(&own, &mounts) {
            let place = self.place(&parent);
            sweep(&place);
            let folder = place.join(group_name::own_name(group_name::TASK)?);
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
                // Without this descriptor the child is moved into the group later.
                launch.group = File::open(folder).ok().map(OwnedFd::from);
            }
        }
        self.enforce()
    }

    /// Moves the child into those groups that it could not enter by itself; the kernel makes the
    /// monitor wait for this. A group that the child cannot enter is dropped.
    fn attach(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        let mut refused = None;
        self.groups.retain(|group| match group.enter(root) {
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
            _ => {
                self.throttled_before = self.throttled_seconds().unwrap_or_default();
                ledger.membership.group = Some(group_name::own_name(group_name::TASK)?);
                Ok(())
            }
        }
    }

    fn sample(&mut self, _now: &mut Sample, ledger: &mut Ledger) {
        if self.lost.is_none() {
            self.lost = self.escaped(ledger).or_else(|| self.raised());
        }
    }

    fn crossings(&mut self, _ledger: &Ledger) -> Vec<Crossing> {
        let mut crossings = Vec::new();
        let limit = |name| self.limits.iter().find(|limit: &Limit| limit.resource.name == name);
        let folder = |file: &str| Some(self.file(file)?.parent()?.to_owned());
        let memory = || self.memory_max()?.parent().map(Path::to_owned);
        if let Some(limit) = limit("resident_bytes_max")
            && memory().is_some_and(|group| events::ran_out_of_memory(&group))
        {
            // The task reached the limit, because the kernel granted no more. The kernel rounds the
            // limit down to whole pages, so the charge may be a little less than the limit.
            let value = self.charged_max().map_or(limit.most, |b| limit.most.max(b as f64));
            crossings.push(Crossing { limit, value });
        }
        if let Some(limit) = limit("threads_max")
            && folder("pids.max").is_some_and(|group| events::refused_threads(&group, limit.most))
        {
            crossings.push(Crossing { limit, value: limit.most + 1.0 });
        }
        crossings
    }

    fn provides(&self) -> Option<String> {
        let (memory, pids) = (self.memory_max().is_some(), self.file("pids.max").is_some());
        let mut text = "processor time of all processes".to_owned();
        if self.charged_max().is_some() {
            text += ", the group's memory";
        }
        text += match (memory, pids) {
            (true, true) => ", limits that the kernel enforces",
            (true, false) => {
                ", a limit on memory that the kernel enforces; there is no controller `pids` here, \
                 so samples enforce a limit on threads"
            }
            (false, true) => {
                ", a limit on threads that the kernel enforces; there is no controller `memory` \
                 here, so samples enforce a limit on memory"
            }
            (false, false) => {
                "; there are no controllers `memory` and `pids` here, so samples enforce limits and \
                 the kernel does not"
            }
        };
        if let Some(why) = &self.delegation_error {
            text += ": ";
            text += why;
        }
        Some(text)
    }

    fn enforces(&self, resource: &str) -> bool {
        resource == "resident_bytes_max" && self.lost.is_none() && self.memory_max().is_some()
    }

    fn kill_all(&mut self) -> bool {
        self.file("cgroup.kill").is_some_and(|path| fs::write(path, "1").is_ok())
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let nanos = |value: u64| value as f64 / 1e9;
        let micros = |value: u64| value as f64 / 1e6;
        let cpu = self.number("cpuacct.usage").map(nanos);
        let cpu = cpu.or_else(|| self.keyed_number("cpu.stat", "usage_usec").map(micros));
        let ticks = self.number("cpuacct.usage_user").zip(self.number("cpuacct.usage_sys"));
        let parts = |name| self.keyed_number("cpu.stat", name).map(micros);
        let (user, system) = match ticks.zip(cpu) {
            Some((ticks, cpu)) => split_cpu(cpu, ticks).unzip(),
            None => (parts("user_usec"), parts("system_usec")),
        };
        let left = self.file("cgroup.procs").and_then(|path| fs::read_to_string(path).ok());
        let left = left.map_or(0, |pids| pids.lines().count());
        let left = self.escaped(ledger).or(self.lost.take()).or(still_running(left));
        if self.charged_max().is_none() {
            ledger.offers.mark_unavailable(
                "cgroup_bytes_max",
                "its control group has no controller `memory`",
            );
        }
        let throttled = self.throttled_seconds().map(|all| (all - self.throttled_before).max(0.0));
        let above = Some("contains waits of other processes in the groups above the task's one");
        let stall = Some("time in which at least one thread waited; simultaneous waits count once");
        let (all, least) = (Completeness::All, Completeness::AtLeast);
        for (name, value, completeness, error_bound, reason) in [
            ("cpu_seconds", cpu, all, Some(SETUP_SECONDS), None),
            ("user_seconds", user, all, None, Some(BY_TICKS)),
            ("system_seconds", system, all, None, Some(BY_TICKS)),
            ("cgroup_bytes_max", self.charged_max().map(|b| b as f64), all, Some(0.0), None),
            ("threads_max", self.number("pids.peak").map(|n| n as f64), all, Some(0.0), None),
            ("throttled_seconds", throttled, all, None, above),
            ("memory_delay_seconds", self.stall_seconds("memory.pressure"), least, None, stall),
            ("cpu_delay_seconds", self.stall_seconds("cpu.pressure"), least, None, stall),
            ("io_delay_seconds", self.stall_seconds("io.pressure"), least, None, stall),
        ] {
            let Some(value) = value else { continue };
            let completeness = if left.is_some() { least } else { completeness };
            let of_it = reason.map(str::to_owned);
            let reason = left.clone().filter(|_| reason != stall).or(of_it);
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that delegates controllers cannot take a process back.
        self.delegation.clear();
        for Group { folder, parent } in &self.groups {
            remove(folder, parent);
        }
    }
}

/// Number of attempts to remove a group, and the time between them: an exiting process can neither
/// leave the group nor stay in it, and needs a few milliseconds.
const REMOVALS: usize = 100;
const REMOVE_AGAIN: Duration = Duration::from_millis(2);

/// Removes a group. Processes that are left in it move to the group that the task came from.
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

/// Splits the processor time in proportion to the ticks in user and in kernel mode. Version 1
/// reports the ticks themselves, whose sum does not match the time of short processes. Returns
/// `None` if there was no tick.
fn split_cpu(cpu: f64, ticks: (u64, u64)) -> Option<(f64, f64)> {
    let (user, system) = (ticks.0 as f64, ticks.1 as f64);
    let share = user / (user + system);
    (user + system > 0.0).then_some((cpu * share, cpu * (1.0 - share)))
}

/// Useful controllers of version 1. With `cpu` the task as a whole shares the processors with the
/// monitor: thousands of processes cannot keep the monitor from killing them.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];

/// Returns the folders of this process's groups in each useful hierarchy.
fn parents(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 lists no controllers here.
        if !controllers.is_empty() && !controllers.split(',').any(|c| CONTROLLERS.contains(&c)) {
            continue;
        }
        let Some(mount) = mount_of(controllers, mounts) else { continue };
        let parent = mount.join(path.trim_start_matches('/'));
        // In a container's namespace the path may start above the mount point.
        let parent = if parent.is_dir() { parent } else { mount };
        if !found.contains(&parent) {
            found.push(parent);
        }
    }
    found
}

/// Returns the mount point of the hierarchy with these controllers, or of version 2 if there are
/// none.
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
    fn the_parts_of_the_processor_time_add_up_to_the_exact_sum() {
        let near = |(user, system): (f64, f64), expected: (f64, f64)| {
            assert!((user - expected.0).abs() + (system - expected.1).abs() < 1e-12);
        };
        near(split_cpu(2.0, (30, 10)).expect("ticks"), (1.5, 0.5));
        near(split_cpu(0.5, (0, 10)).expect("ticks"), (0.0, 0.5));
        assert_eq!(split_cpu(0.003, (0, 0)), None);
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
