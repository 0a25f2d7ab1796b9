//! The resources of a task, as data: each is a field of the report, a column of the series and a
//! name in a limit.

/// A resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The name in reports and limits; it ends with the unit.
    pub name: &'static str,
    /// A short name that a limit may use instead; empty if there is none.
    pub alias: &'static str,
    /// Base unit: `bytes`, `seconds`, `joules`; empty for a count.
    pub unit: &'static str,
    /// A description in one sentence.
    pub help: &'static str,
    /// The rule that combines the values of two parts of a task.
    pub combine: Combine,
}

impl Resource {
    /// Returns the alias, or the name if there is no alias.
    pub fn short(&self) -> &'static str {
        if self.alias.is_empty() { self.name } else { self.alias }
    }
}

/// The rule that combines the values of two tasks in sequence, or of nested monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The sum of both.
    Sum,
    /// The greater of both.
    Max,
}

const fn new(
    name: &'static str,
    alias: &'static str,
    unit: &'static str,
    combine: Combine,
    help: &'static str,
) -> Resource {
    Resource { name, alias, unit, help, combine }
}

use Combine::{Max, Sum};

/// All resources, in the order of reports. The first block is Table 2 of Juve et al., "Practical
/// Resource Monitoring for Robust High Throughput Computing".
pub static RESOURCES: &[Resource] = &[
    new("wall_seconds", "wall", "seconds", Sum, "Time from start to end"),
    new("cpu_seconds", "cpu", "seconds", Sum, "Processor time of all processes, user and system"),
    new("user_seconds", "", "seconds", Sum, "Processor time in user mode"),
    new("system_seconds", "", "seconds", Sum, "Processor time in kernel mode"),
    new(
        "cores",
        "",
        "",
        Max,
        "Processor time divided by wall time: the average number of busy cores",
    ),
    new("gpus", "", "", Max, "GPUs on which a process of the task had a context"),
    new("gpu_bytes_max", "", "bytes", Max, "Memory of GPUs that the task held at one time"),
    new("processes_max", "processes", "", Max, "Processes that ran at one time"),
    new("processes_total", "", "", Sum, "Processes that started, including the first one"),
    new("threads_max", "threads", "", Max, "Threads that ran at one time"),
    new(
        "threads_total",
        "",
        "",
        Sum,
        "Threads that started, including the first one of each process",
    ),
    new(
        "resident_bytes_max",
        "memory",
        "bytes",
        Max,
        "Resident memory of all processes at one time; a page that two of them share counts twice",
    ),
    new(
        "pss_bytes_max",
        "pss",
        "bytes",
        Max,
        "Resident memory at one time, with shared pages divided among the processes that share them",
    ),
    new("virtual_bytes_max", "virtual", "bytes", Max, "Address space of all processes at one time"),
    new("swap_bytes_max", "swap", "bytes", Max, "Memory in swap at one time"),
    new(
        "tmpfs_bytes_max",
        "",
        "bytes",
        Max,
        "Memory in files of tmpfs that the task made, such as those in /dev/shm, at one time",
    ),
    new(
        "cgroup_bytes_max",
        "",
        "bytes",
        Max,
        "Charge of the control group at one time: memory, page cache and kernel memory",
    ),
    new(
        "read_bytes",
        "read",
        "bytes",
        Sum,
        "Bytes read from files, pipes and sockets by read and similar calls, sendfile and copy_file_range; not by recv, splice, mmap",
    ),
    new(
        "written_bytes",
        "written",
        "bytes",
        Sum,
        "Bytes written to files, pipes and sockets by write and similar calls, sendfile and copy_file_range; not by send, splice, mmap",
    ),
    new(
        "read_calls",
        "",
        "",
        Sum,
        "Calls that read from files, pipes and sockets, as the kernel counts them: read and similar calls",
    ),
    new(
        "write_calls",
        "",
        "",
        Sum,
        "Calls that wrote to files, pipes and sockets, as the kernel counts them: write and similar calls",
    ),
    new(
        "device_read_bytes",
        "",
        "bytes",
        Sum,
        "Bytes that storage delivered for the task because no cache had them",
    ),
    new(
        "device_written_bytes",
        "",
        "bytes",
        Sum,
        "Bytes of the task's pages to be written to storage",
    ),
    new(
        "files",
        "files",
        "",
        Max,
        "Files and folders in the watched folders, or in the working folder; hard links count once",
    ),
    new(
        "footprint_bytes",
        "disk",
        "bytes",
        Max,
        "Space on disk of the watched folders, or of the working folder; hard links count once",
    ),
    new(
        "filesystem_growth_bytes_max",
        "",
        "bytes",
        Max,
        "Growth of the used space on the file system of the working folder, by any program",
    ),
    new(
        "filesystem_growth_files_max",
        "",
        "",
        Max,
        "Growth of the number of files on the file system of the working folder, by any program",
    ),
    new("minor_faults", "", "", Sum, "Page faults that needed no input or output"),
    new("major_faults", "", "", Sum, "Page faults that read from storage: mapped files, swap"),
    new("voluntary_switches", "", "", Sum, "Times that a thread gave up its processor to wait"),
    new("involuntary_switches", "", "", Sum, "Times that a thread lost its processor to another"),
    new(
        "cpu_delay_seconds",
        "",
        "seconds",
        Sum,
        "Time that threads were ready and had no processor",
    ),
    new(
        "throttled_seconds",
        "",
        "seconds",
        Sum,
        "Time that the control group of the task, or one above it, waited because of its limit on processor time",
    ),
    new("io_delay_seconds", "", "seconds", Sum, "Time that threads waited for storage"),
    new(
        "memory_delay_seconds",
        "",
        "seconds",
        Sum,
        "Time that threads waited for memory: swap, reclaim, thrashing, compaction",
    ),
    new(
        "received_bytes",
        "received",
        "bytes",
        Sum,
        "Bytes received through sockets, by recv and by read",
    ),
    new("sent_bytes", "sent", "bytes", Sum, "Bytes sent through sockets, by send and by write"),
    new("opened_files", "", "", Sum, "Distinct files that were opened"),
    new(
        "modified_files",
        "",
        "",
        Sum,
        "Distinct files that were closed after being open for writing",
    ),
    new("instructions", "", "", Sum, "Instructions retired"),
    new("cycles", "", "", Sum, "Processor cycles"),
    new(
        "energy_joules",
        "energy",
        "joules",
        Sum,
        "Energy of the processors while the task ran, including other tasks on the machine",
    ),
];

/// Returns the resource of this name or alias.
pub fn resource(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.name == name || (!r.alias.is_empty() && r.alias == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_unique_and_end_with_the_unit() {
        for (at, r) in RESOURCES.iter().enumerate() {
            let others = || RESOURCES.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, r)| r);
            assert!(others().all(|o| o.name != r.name && o.alias != r.name), "{}", r.name);
            assert!(r.alias.is_empty() || others().all(|o| o.alias != r.alias), "{}", r.alias);
            assert!(r.unit.is_empty() || r.name.contains(r.unit), "{} in {}", r.name, r.unit);
            assert!(!r.help.is_empty() && !r.help.ends_with('.'), "{}", r.name);
        }
    }

    #[test]
    fn a_name_and_its_alias_find_the_same_resource() {
        assert_eq!(resource("memory"), resource("resident_bytes_max"));
        assert!(resource("memory").is_some());
        assert_eq!(resource(""), None);
    }
}
