//! Reads the files of one process in `/proc/PID`. The process may exit at any moment, so every
//! value is optional.

mod text;

use std::fs;
use std::str;

use self::text::text;
use crate::sys::Pid;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    pub(crate) parent: Pid,
    /// Its process group, its session, and the foreground group of the session's terminal: -1
    /// without a terminal.
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    pub(crate) foreground: Pid,
    /// Processor time, in seconds. The kernel counts in clock ticks, usually of 10 ms.
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    /// Processor time of the children that it has waited for, and of their children.
    pub(crate) waited_for_seconds: f64,
    /// Page faults of those children. Every process has some.
    pub(crate) waited_for_faults: u64,
    /// Including the children that it has waited for.
    pub(crate) total_user_seconds: f64,
    pub(crate) total_system_seconds: f64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) threads: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// Time spent waiting for storage, in seconds, if the kernel accounts for delays.
    pub(crate) io_delay_seconds: f64,
    pub(crate) is_zombie: bool,
    /// Stopped by a signal or for its tracer.
    pub(crate) is_stopped: bool,
    /// Its start time, in clock ticks since boot.
    pub(crate) started_ticks: u64,
    /// A kernel thread, which runs no program.
    pub(crate) is_kernel_thread: bool,
    /// Addresses of the code and of the stack, which the kernel chooses at each exec: a fork has those of its
    /// parent. The kernel shows 1 and 0 to a user that may not see them.
    pub(crate) program: [u64; 2],
}

/// `PF_KTHREAD` in the kernel's flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Fields of `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) virtual_bytes_max: u64,
    pub(crate) resident_bytes_max: u64,
    pub(crate) swap_bytes: u64,
    /// Resident pages of no file.
    pub(crate) anonymous_bytes: u64,
    /// Resident pages of files that are not in memory only.
    pub(crate) file_bytes: u64,
    /// Resident pages of files of tmpfs and of memory that processes share.
    pub(crate) shared_bytes: u64,
    /// It ignores SIGCHLD: it does not wait for its children, and the kernel adds their usage
    /// nowhere.
    pub(crate) ignores_children: bool,
}

/// Counts of `/proc/PID/io`: of the process, its exited threads, and the children that it waited
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Io {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) device_read_bytes: u64,
    pub(crate) device_written_bytes: u64,
    /// Number of system calls that read.
    pub(crate) read_calls: u64,
    /// Number of system calls that wrote.
    pub(crate) write_calls: u64,
}

impl Io {
    pub(crate) fn read(&self) -> u64 {
        self.read_bytes
    }

    pub(crate) fn written(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the increase since an earlier count.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            device_read_bytes: self.device_read_bytes.saturating_sub(earlier.device_read_bytes),
            device_written_bytes: self
                .device_written_bytes
                .saturating_sub(earlier.device_written_bytes),
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
        }
    }
}

impl std::ops::AddAssign for Io {
    fn add_assign(&mut self, other: Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.device_read_bytes += other.device_read_bytes;
        self.device_written_bytes += other.device_written_bytes;
        self.read_calls += other.read_calls;
        self.write_calls += other.write_calls;
    }
}

pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    text(pid, "stat", parse_stat)
}

/// Number of fields that are read after the command; the last one is field 42.
const STAT_FIELDS: usize = 42 - 3 + 1;

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The command is in parentheses and may contain any bytes, including parentheses: the fields
    // begin after the last one.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = [""; STAT_FIELDS];
    let words = str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace();
    fields.iter_mut().zip(words).for_each(|(field, word)| *field = word);
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    let whole = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let id = |field: usize| fields.get(field - 3)?.parse::<Pid>().ok();
    let (ticks, page) =
        (rustix::param::clock_ticks_per_second() as f64, rustix::param::page_size() as u64);
    let threads = number(20)? as u64;
    Some(Stat {
        parent: id(4)?,
        group: id(5)?,
        session: id(6)?,
        foreground: id(8)?,
        user_seconds: number(14)? / ticks,
        system_seconds: number(15)? / ticks,
        waited_for_seconds: (number(16)? + number(17)?) / ticks,
        waited_for_faults: number(11)? as u64,
        total_user_seconds: (number(14)? + number(16)?) / ticks,
        total_system_seconds: (number(15)? + number(17)?) / ticks,
        minor_faults: whole(10)? + whole(11)?,
        major_faults: whole(12)? + whole(13)?,
        threads,
        virtual_bytes: number(23)? as u64,
        resident_bytes: fields.get(21)?.parse::<u64>().ok()? * page,
        io_delay_seconds: number(42)? / ticks,
        // The first thread of a process may exit before others, and is a zombie until they exit too.
        is_zombie: matches!(fields.first(), Some(&"Z" | &"X")) && threads <= 1,
        is_stopped: matches!(fields.first(), Some(&"T" | &"t")),
        started_ticks: whole(22)?,
        is_kernel_thread: whole(9)? & KERNEL_THREAD != 0,
        program: [whole(26)?, whole(28)?],
    })
}

pub(crate) fn memory(pid: Pid) -> Option<Memory> {
    text(pid, "status", parse_memory)
}

/// The bit of SIGCHLD in a signal mask.
const SIGCHLD: u64 = 1 << (libc::SIGCHLD - 1);

/// Returns `None` for a process that has released its memory.
fn parse_memory(text: &[u8]) -> Option<Memory> {
    let text = after_name(text)?;
    // The lines come in this order, so one pass over the sixty lines finds them all.
    let mut lines = text.lines();
    let mut bytes =
        |name: &str| lines.find_map(|line| line.strip_prefix(name)).and_then(kib_as_bytes);
    let virtual_bytes_max = bytes("VmPeak:")?;
    let resident_bytes_max = bytes("VmHWM:")?;
    // These lines are there since Linux 4.5.
    let anonymous_bytes = bytes("RssAnon:").unwrap_or(0);
    let file_bytes = bytes("RssFile:").unwrap_or(0);
    let shared_bytes = bytes("RssShmem:").unwrap_or(0);
    let swap_bytes = bytes("VmSwap:").unwrap_or(0);
    let ignores_children = lines.find_map(ignores).unwrap_or(false);
    Some(Memory {
        virtual_bytes_max,
        resident_bytes_max,
        swap_bytes,
        anonymous_bytes,
        file_bytes,
        shared_bytes,
        ignores_children,
    })
}

/// True for a process that ignores SIGCHLD, also after its exit.
pub(crate) fn ignores_children(pid: Pid) -> bool {
    let ignored = text(pid, "status", |text| after_name(text)?.lines().find_map(ignores));
    ignored.unwrap_or(false)
}

/// Reads the bit of SIGCHLD from the line of ignored signals in a status.
fn ignores(line: &str) -> Option<bool> {
    let mask = line.strip_prefix("SigIgn:")?.trim();
    Some(u64::from_str_radix(mask, 16).ok()? & SIGCHLD != 0)
}

/// Returns a status without its first line, which holds the program's name and may contain any
/// bytes.
fn after_name(status: &[u8]) -> Option<&str> {
    let end = status.iter().position(|byte| *byte == b'\n')?;
    str::from_utf8(&status[end + 1..]).ok()
}

pub(crate) fn io(pid: Pid) -> Option<Io> {
    text(pid, "io", |text| parse_io(str::from_utf8(text).ok()?))
}

fn parse_io(text: &str) -> Option<Io> {
    let number = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
    };
    Some(Io {
        read_bytes: number("rchar:")?,
        written_bytes: number("wchar:")?,
        device_read_bytes: number("read_bytes:")?,
        device_written_bytes: number("write_bytes:")?
            .saturating_sub(number("cancelled_write_bytes:").unwrap_or(0)),
        read_calls: number("syscr:")?,
        write_calls: number("syscw:")?,
    })
}

/// Time on a processor and time ready without one, of one thread, in nanoseconds.
pub(crate) fn schedstat(pid: Pid) -> Option<(u64, u64)> {
    text(pid, "schedstat", |text| {
        let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    })
}

/// The reason why delays are unknown if the kernel does not account for them.
pub(crate) const NO_DELAYS: &str =
    "kernel.task_delayacct is 0: the kernel does not account for these delays";

/// True if the kernel accounts for delays by storage and memory. If it does not, the fields are
/// zero.
pub(crate) fn accounts_for_delays() -> bool {
    let setting = fs::read_to_string("/proc/sys/kernel/task_delayacct");
    // Kernels before 5.14 lack this setting and account unless told not to; here that counts as
    // unknown.
    setting.is_ok_and(|text| text.trim() == "1")
}

/// Returns the proportional set size: each shared page divided by the number of its users.
/// Expensive, since the kernel walks all page tables of the process.
pub(crate) fn pss_bytes(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    kib_as_bytes(text.lines().find_map(|line| line.strip_prefix("Pss:"))?)
}

/// Converts a value such as ` 17 kB`, by which the kernel means KiB, to bytes.
pub(crate) fn kib_as_bytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The most bytes of a command line that are kept.
const MAX_COMMAND: usize = 512;

/// Returns the command line, its words joined by spaces, or the program's name in brackets if it
/// has none.
pub(crate) fn command(pid: Pid) -> Option<String> {
    text(pid, "cmdline", command_line).or_else(|| name(pid))
}

/// Joins the zero-terminated words of a command line; `None` if there are no words.
pub(crate) fn command_line(bytes: &[u8]) -> Option<String> {
    let words: Vec<_> = bytes.split(|b| *b == 0).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return None;
    }
    let mut text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    if text.len() > MAX_COMMAND {
        let end = (0..=MAX_COMMAND).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    Some(text)
}

/// Returns the words of the command line, or the program's name in brackets if it has none.
pub(crate) fn words(pid: Pid) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(&bytes)).into_owned();
    match text.is_empty() {
        true => name(pid).into_iter().collect(),
        false => text.split('\0').map(str::to_owned).collect(),
    }
}

/// Returns the program's name in brackets.
pub(crate) fn name(pid: Pid) -> Option<String> {
    text(pid, "comm", |name| Some(format!("[{}]", String::from_utf8_lossy(name).trim_end())))
}

/// Returns the children of all threads of a process, including those not yet reaped.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// Returns the descendants of `pid`, without `pid` itself. Stops once it has found more than `most`.
pub(crate) fn descendants(pid: Pid, most: usize) -> Vec<Pid> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied().filter(|_| found.len() <= most) {
        found.extend(children(parent));
        next += 1;
    }
    found
}

/// Returns the number of hierarchies of control groups in which a process is in a group of this name, or
/// below one. Version 1 forgets the group of a process that has exited.
pub(crate) fn groups_named(pid: Pid, group: &str) -> usize {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines().filter(|line| line.split('/').any(|part| part == group)).count()
}

/// Returns the process of a thread.
pub(crate) fn process_of(thread: Pid) -> Option<Pid> {
    status(thread, "Tgid:")
}

/// Returns the thread that traces another one.
pub(crate) fn tracer_of(thread: Pid) -> Option<Pid> {
    status(thread, "TracerPid:").filter(|tracer| *tracer != 0)
}

/// Returns the user id of a process.
pub(crate) fn user_of(pid: Pid) -> Option<Pid> {
    status(pid, "Uid:")
}

/// Returns the first number of a line in `/proc/PID/status`.
fn status(pid: Pid, name: &str) -> Option<Pid> {
    text(pid, "status", |text| {
        let line = after_name(text)?.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    })
}

/// Returns all threads of a process.
pub(crate) fn threads(pid: Pid) -> Vec<Pid> {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    all.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_contain_any_character() {
        let mut text =
            "7 (a) b (c) S 3 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 100 8192 2 ".to_owned();
        text += "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 30 0 0 0 0 0 0 0 0 0 0\n";
        let stat = parse_stat(text.as_bytes()).expect("a line");
        let page = rustix::param::page_size() as u64;
        assert_eq!((stat.parent, stat.threads, stat.virtual_bytes), (3, 4, 8192));
        assert_eq!((stat.group, stat.session, stat.foreground), (7, 7, -1));
        assert_eq!(stat.resident_bytes, 2 * page);
        assert_eq!(
            (stat.user_seconds, stat.system_seconds, stat.io_delay_seconds),
            (2.5, 0.5, 0.3)
        );
        assert!(!stat.is_zombie && parse_stat(b"7 (x) Z 3").is_none());
    }

    #[test]
    fn a_name_that_is_not_utf8_hides_no_field() {
        let status =
            b"Name:\ta\xff\nUmask:\t0022\nVmPeak:\t   8 kB\nVmHWM:\t   4 kB\nRssShmem:\t   0 kB\nVmSwap:\t   0 kB\n";
        let memory = parse_memory(status).expect("a status");
        assert_eq!((memory.virtual_bytes_max, memory.resident_bytes_max), (8192, 4096));
        let mut stat = b"7 (\xff) S 3".to_vec();
        stat.extend(b" 1".repeat(48));
        assert_eq!(parse_stat(&stat).expect("a line").parent, 3);
    }

    #[test]
    fn the_values_of_this_process_are_plausible() {
        let own = std::process::id() as Pid;
        let stat = stat(own).expect("it runs");
        assert_eq!(stat.parent, std::os::unix::process::parent_id() as Pid);
        let memory = memory(own).expect("it has memory");
        assert!(memory.resident_bytes_max <= memory.virtual_bytes_max);
        assert!(pss_bytes(own).is_some_and(|pss| pss <= memory.resident_bytes_max));
        assert!(io(own).is_some_and(|io| io.read_bytes > 0));
        assert!(command(own).is_some_and(|c| c.contains("skopos_task")));
        assert_eq!(process_of(own), Some(own));
    }

    #[test]
    fn cancelled_writes_are_not_counted() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 1\nsyscw: 1\nread_bytes: 7\nwrite_bytes: 6\ncancelled_write_bytes: 10\n";
        let io = parse_io(text).expect("counts");
        assert_eq!((io.read_bytes, io.written_bytes), (9, 8));
        assert_eq!((io.device_read_bytes, io.device_written_bytes), (7, 0));
    }
}
