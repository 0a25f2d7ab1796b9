//! The processes of this machine: what a scan of `/proc` yields, and their use since the scan before.

use std::collections::HashMap;

/// The most generations that are walked up to find the monitor of a task: more than shells, build
/// tools and job launchers nest.
const MAX_GENERATIONS: usize = 64;

/// `PF_KTHREAD` in the kernel's flags: the process is a kernel thread, which runs no program.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Seconds and bytes of the units that `/proc` counts in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub ticks_per_second: f64,
    pub page_bytes: u64,
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stat {
    /// The name of the program, at most 15 bytes of it.
    pub name: String,
    /// One letter, as proc(5) lists them.
    pub state: char,
    pub parent: u32,
    pub cpu_seconds: f64,
    pub threads: u64,
    /// Start time in clock ticks since boot: with the pid it identifies a process.
    pub started_ticks: u64,
    pub resident_bytes: u64,
    pub is_kernel_thread: bool,
}

impl Stat {
    /// Parses the file; `None` if it is cut short.
    pub(crate) fn parse(text: &[u8], units: Units) -> Option<Self> {
        // The name stands in parentheses and may contain parentheses itself.
        let (start, end) =
            (text.iter().position(|b| *b == b'(')?, text.iter().rposition(|b| *b == b')')?);
        let name = String::from_utf8_lossy(text.get(start + 1..end)?);
        let name = name.replace(char::is_control, " ");
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        // Field 3 is the first after the name.
        let mut words = rest.split_ascii_whitespace();
        let mut field = 3;
        let mut word = |number: usize| {
            let found = words.nth(number - field);
            field = number + 1;
            found
        };
        let state = word(3)?.chars().next()?;
        let parent = word(4)?.parse().ok()?;
        let flags: u64 = word(9)?.parse().ok()?;
        let user: f64 = word(14)?.parse().ok()?;
        let system: f64 = word(15)?.parse().ok()?;
        let threads = word(20)?.parse().ok()?;
        let started_ticks = word(22)?.parse().ok()?;
        let resident_pages: u64 = word(24)?.parse().ok()?;
        Some(Self {
            name,
            state,
            parent,
            cpu_seconds: (user + system) / units.ticks_per_second,
            threads,
            started_ticks,
            resident_bytes: resident_pages.saturating_mul(units.page_bytes),
            is_kernel_thread: flags & KERNEL_THREAD != 0,
        })
    }
}

/// Bytes that a process has moved from and to storage, of `/proc/PID/io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Io {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Io {
    /// Parses the file; `None` if it is cut short.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let number = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
        };
        Some(Self { read_bytes: number("read_bytes:")?, written_bytes: number("write_bytes:")? })
    }
}

/// The command line of a process: the arguments of `/proc/PID/cmdline`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    arguments: Vec<String>,
}

impl CommandLine {
    /// Parses the file, whose arguments end with a zero byte each.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        let words = text.split(|b| *b == 0).filter(|_| !text.is_empty());
        // A control character could steer the terminal, or break a line.
        let shown = |word| String::from_utf8_lossy(word).replace(char::is_control, " ");
        Self { arguments: words.map(shown).collect() }
    }

    /// The whole line.
    pub(crate) fn whole(&self) -> String {
        self.arguments.join(" ")
    }

    /// The line without the folder of its program. A process without a command line shows its name
    /// in brackets, like in ps(1).
    pub(crate) fn short(&self, name: &str) -> String {
        let Some((program, arguments)) = self.arguments.split_first() else {
            return format!("[{name}]");
        };
        // Programs that rewrite their command line put sentences there: `sshd: user [priv]`.
        let is_path = program.starts_with('/') && !program.contains(' ');
        let program = if is_path { basename(program) } else { program };
        [&[program.to_owned()], arguments].concat().join(" ")
    }

    /// True for `skopos run`, with any options before the verb.
    pub(crate) fn is_monitor(&self) -> bool {
        let Some((program, arguments)) = self.arguments.split_first() else { return false };
        basename(program) == "skopos"
            && arguments.iter().take_while(|word| *word != "--").any(|word| word == "run")
    }
}

fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// One process at the time of a scan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    pub pid: u32,
    pub stat: Stat,
    /// `None` where the user may not read it, and for kernel threads.
    pub io: Option<Io>,
    pub command: CommandLine,
}

/// A process and its use since the scan before; unknown if it was not there then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub process: Process,
    /// Share of one core: 2 for a process that keeps two busy.
    pub cpu_ratio: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub written_bytes_per_second: Option<f64>,
    /// The process id of the `skopos run` that monitors it.
    pub monitor: Option<u32>,
}

impl Usage {
    /// Bytes that are read and written in a second.
    pub(crate) fn io_bytes_per_second(&self) -> Option<f64> {
        Some(self.read_bytes_per_second? + self.written_bytes_per_second?)
    }
}

/// All processes, by process id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    pub list: Vec<Usage>,
    /// Number of processes beyond the most that a scan reads.
    pub left_out: usize,
    /// The error of the last scan.
    pub trouble: Option<String>,
}

impl Processes {
    /// Compares a scan with `earlier`, which is `seconds` older.
    pub(crate) fn new(scan: Vec<Process>, earlier: &[Usage], seconds: f64) -> Self {
        let earlier: HashMap<(u32, u64), &Process> = earlier
            .iter()
            .map(|usage| ((usage.process.pid, usage.process.stat.started_ticks), &usage.process))
            .collect();
        let parents: HashMap<u32, u32> = scan.iter().map(|p| (p.pid, p.stat.parent)).collect();
        let monitors: Vec<u32> =
            scan.iter().filter(|p| p.command.is_monitor()).map(|p| p.pid).collect();
        let list = scan.into_iter().map(|process| {
            let before = earlier.get(&(process.pid, process.stat.started_ticks));
            let before = before.filter(|_| seconds > 0.0);
            let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let io = before.and_then(|before| process.io.zip(before.io));
            Usage {
                cpu_ratio: before.map(|before| {
                    (process.stat.cpu_seconds - before.stat.cpu_seconds).max(0.0) / seconds
                }),
                read_bytes_per_second: io
                    .map(|(now, then)| per_second(now.read_bytes, then.read_bytes)),
                written_bytes_per_second: io
                    .map(|(now, then)| per_second(now.written_bytes, then.written_bytes)),
                monitor: monitor_of(process.pid, &parents, &monitors),
                process,
            }
        });
        Self { list: list.collect(), left_out: 0, trouble: None }
    }
}

/// The nearest ancestor among `monitors`.
fn monitor_of(pid: u32, parents: &HashMap<u32, u32>, monitors: &[u32]) -> Option<u32> {
    if monitors.is_empty() {
        return None;
    }
    let ancestors = std::iter::successors(parents.get(&pid), |parent| parents.get(parent));
    ancestors.take(MAX_GENERATIONS).find(|parent| monitors.contains(parent)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units { ticks_per_second: 100.0, page_bytes: 4096 };

    /// A line of `/proc/PID/stat` of a process that started at tick 900.
    fn line(name: &str, parent: u32, flags: u64, ticks: u64, pages: u64) -> String {
        format!(
            "7 ({name}) S {parent} 7 7 0 -1 {flags} 10 0 0 0 {ticks} 50 0 0 20 0 3 0 900 \
             123456 {pages} 18446744073709551615 0 0"
        )
    }

    fn process(pid: u32, parent: u32, command: &str, ticks: u64, io: Option<Io>) -> Process {
        let stat = Stat::parse(line("x", parent, 0, ticks, 1).as_bytes(), UNITS).expect("a stat");
        let command = CommandLine::parse(command.replace(' ', "\0").as_bytes());
        Process { pid, stat, io, command }
    }

    #[test]
    fn a_stat_is_parsed_after_the_last_parenthesis() {
        let check = |name: &str, flags, is_kernel_thread| {
            let stat = Stat::parse(line(name, 4, flags, 150, 25).as_bytes(), UNITS);
            let expected = Stat {
                name: name.to_owned(),
                state: 'S',
                parent: 4,
                cpu_seconds: 2.0,
                threads: 3,
                started_ticks: 900,
                resident_bytes: 25 * 4096,
                is_kernel_thread,
            };
            assert_eq!(stat, Some(expected));
        };
        check("sh", 0x0040_0000, false);
        check("a) S 1 (b", 0, false);
        check("kworker/0:1", 0x0420_8060, true);
        assert_eq!(Stat::parse(b"7 (sh) S 4 7", UNITS), None);
        assert_eq!(Stat::parse(b")7(", UNITS), None);
        assert_eq!(Stat::parse(b"", UNITS), None);
    }

    #[test]
    fn io_is_parsed_by_name() {
        let text = b"rchar: 9\nwchar: 8\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled: 1\n";
        assert_eq!(Io::parse(text), Some(Io { read_bytes: 4096, written_bytes: 8192 }));
        assert_eq!(Io::parse(b"rchar: 9\n"), None);
    }

    #[test]
    fn a_command_line_is_short_and_whole() {
        let check = |text: &[u8], short: &str, whole: &str| {
            let command = CommandLine::parse(text);
            assert_eq!((command.short("name").as_str(), command.whole().as_str()), (short, whole));
        };
        check(b"/usr/bin/python3\0train.py\0", "python3 train.py", "/usr/bin/python3 train.py");
        check(b"/usr/sbin/x: a [b/c]\0", "/usr/sbin/x: a [b/c]", "/usr/sbin/x: a [b/c]");
        check(b"sh\0-c\0\0", "sh -c ", "sh -c ");
        check(b"", "[name]", "");
    }

    #[test]
    fn a_monitor_is_skopos_run() {
        let check = |text: &str, expected| {
            let command = CommandLine::parse(text.replace(' ', "\0").as_bytes());
            assert_eq!(command.is_monitor(), expected, "{text}");
        };
        check("/usr/bin/skopos run -- make", true);
        check("skopos --dir /x run make", true);
        check("skopos top run-queue", false);
        check("runner run", false);
        check("", false);
    }

    #[test]
    fn use_is_the_difference_of_two_scans() {
        let io = |read, written| Some(Io { read_bytes: read, written_bytes: written });
        let first = Processes::new(vec![process(7, 1, "a", 100, io(0, 100))], &[], 0.0);
        assert_eq!((first.list[0].cpu_ratio, first.list[0].io_bytes_per_second()), (None, None));
        let scan = vec![process(7, 1, "a", 300, io(4096, 300)), process(8, 1, "b", 5, None)];
        let second = Processes::new(scan, &first.list, 2.0);
        assert_eq!(second.list[0].cpu_ratio, Some(1.0));
        assert_eq!(second.list[0].read_bytes_per_second, Some(2048.0));
        assert_eq!(second.list[0].io_bytes_per_second(), Some(2148.0));
        assert_eq!(second.list[1].cpu_ratio, None);
        // Another process has taken the pid over.
        let mut other = process(7, 1, "c", 500, io(9999, 9999));
        other.stat.started_ticks = 1000;
        assert_eq!(Processes::new(vec![other], &second.list, 2.0).list[0].cpu_ratio, None);
    }

    #[test]
    fn processes_below_a_monitor_are_marked() {
        let scan = vec![
            process(1, 0, "init", 0, None),
            process(5, 1, "skopos run make", 0, None),
            process(6, 5, "make", 0, None),
            process(7, 6, "cc", 0, None),
            process(8, 1, "sh", 0, None),
            // Pids of two moments may form a circle.
            process(9, 10, "x", 0, None),
            process(10, 9, "y", 0, None),
        ];
        let found = Processes::new(scan, &[], 1.0);
        let monitors: Vec<_> = found.list.iter().map(|usage| usage.monitor).collect();
        assert_eq!(monitors, [None, None, Some(5), Some(5), None, None, None]);
    }
}
