//! The programs in the kernel, and the maps in which they count. The layouts are those of
//! `bpf/processes.h` and `bpf/files.h`, in words of 64 bits.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, RingBuf};
use rustix::thread::CapabilitySet;
use skopos_bpf::{At, Loaded, Program, load, with_causes};

use super::tables::{CALLS_WORDS, FILE_WORDS, MAX_FILES, PEER_KEY, PEER_WORDS, Tables};
use super::totals::Totals;
use crate::mechanism::files::KINDS;
use crate::mechanism::reasons::NO_KERNEL_IDS;
use crate::sys::Pid;
use crate::sys::netlink;

/// Compiled from `bpf/task.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/task.bpf.o"));

/// The same with the programs that count files.
static WITH_FILES: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/files.bpf.o"));

/// The reason why this build cannot count files by BPF. The registers and numbers of system calls in
/// `bpf/files.h` are those of one processor.
pub(crate) const FILES_MISSING: Option<&str> = if cfg!(target_arch = "x86_64") {
    None
} else {
    Some("system calls are looked at on x86-64 alone")
};

/// The list of values that the programs need: the file that they are compiled with.
const FIELDS: &str = include_str!("../../../bpf/fields.h");

/// The programs that track processes, and their tracepoints.
const PROCESSES: &[(&str, &str)] = &[
    ("forked", "sched_process_fork"),
    ("became", "sched_process_exec"),
    ("ended", "sched_process_exit"),
    ("left", "sched_switch"),
];

/// The programs that count the usage of files.
const FILES: &[(&str, &str)] = &[("called", "sys_exit"), ("completed", "io_uring_complete")];

/// The first version that reports the exit of a process while its memory is still present.
const MEMORY_AT_EXIT: (u32, u32) = (6, 16);

/// The size of the ring, and of the header of each record in it.
const RING_BYTES: usize = 1 << 22;
const RECORD_HEADER: usize = 8;

const KNOWN_WORDS: usize = 13;
const TOTALS_WORDS: usize = 18;
const MAXIMA_WORDS: usize = 2;

/// The running programs. They end when this value is dropped.
pub(super) struct Kernel {
    /// Keeps the programs attached.
    _programs: Loaded,
    ring: RingBuf<MapData>,
    processes: HashMap<MapData, u32, [u64; KNOWN_WORDS]>,
    totals: Array<MapData, [u64; TOTALS_WORDS]>,
    maxima: PerCpuArray<MapData, [u64; MAXIMA_WORDS]>,
    files: Option<FileMaps>,
}

/// The maps of files.
struct FileMaps {
    files: Array<MapData, [u64; FILE_WORDS]>,
    peers: HashMap<MapData, [u8; PEER_KEY], [u64; PEER_WORDS]>,
    calls: Array<MapData, [u64; CALLS_WORDS]>,
}

impl Kernel {
    /// Loads and attaches the programs. With more than `most` processes, each process start wakes
    /// the monitor.
    ///
    /// # Errors
    /// The reason, and what would help.
    pub(super) fn open(most: Option<u64>, with_files: bool) -> io::Result<Self> {
        may_load().map_err(io::Error::other)?;
        if let (true, Some(why)) = (with_files, FILES_MISSING) {
            return Err(io::Error::other(why));
        }
        let object = if with_files { WITH_FILES } else { OBJECT };
        let most = most.unwrap_or(u64::MAX);
        let processors = aya::util::nr_cpus().map_err(|(_, e)| e)? as u64;
        let programs = [PROCESSES, if with_files { FILES } else { &[] }].concat();
        let programs: Vec<_> = programs
            .iter()
            .map(|&(name, tracepoint)| Program { name, at: At::Raw(tracepoint) })
            .collect();
        let settings = [("wake_processes", most), ("processors", processors)];
        let mut loaded = load(object, &programs, FIELDS, &settings)?;
        let files = match with_files {
            true => Some(FileMaps {
                files: Map::Array(loaded.map("FILES")?).try_into().map_err(with_causes)?,
                peers: Map::HashMap(loaded.map("PEERS")?).try_into().map_err(with_causes)?,
                calls: Map::Array(loaded.map("CALLS")?).try_into().map_err(with_causes)?,
            }),
            false => None,
        };
        Ok(Self {
            ring: Map::RingBuf(loaded.map("RING")?).try_into().map_err(with_causes)?,
            processes: Map::HashMap(loaded.map("PROCESSES")?).try_into().map_err(with_causes)?,
            totals: Map::Array(loaded.map("TOTALS")?).try_into().map_err(with_causes)?,
            maxima: Map::PerCpuArray(loaded.map("MAXIMA")?).try_into().map_err(with_causes)?,
            files,
            _programs: loaded,
        })
    }

    /// Reads the counts of files, if they are enabled.
    pub(super) fn tables(&self) -> Option<Tables> {
        let maps = self.files.as_ref()?;
        let calls = maps.calls.get(&0, 0).ok()?;
        let last = (calls[0] as u32).saturating_add(KINDS.len() as u32).min(MAX_FILES);
        Some(Tables {
            files: (0..last).map_while(|row| maps.files.get(&row, 0).ok()).collect(),
            peers: maps.peers.iter().filter_map(Result::ok).collect(),
            calls,
        })
    }

    /// Adds the first process, which waits for its exec. Its descendants are tracked from now on.
    pub(super) fn put(&mut self, pid: Pid) -> io::Result<()> {
        // It has one thread, is present and waits.
        let known = [1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0];
        self.processes.insert(pid.unsigned_abs(), known, 0).map_err(with_causes)
    }

    /// Passes on the records so far, oldest first. It stops after one ring of bytes, because a task
    /// may fork as fast as this reads.
    pub(super) fn take(&mut self, record: impl FnMut(&[u8])) {
        self.take_some(RING_BYTES, record);
    }

    fn take_some(&mut self, most: usize, mut record: impl FnMut(&[u8])) {
        let mut bytes = 0;
        while bytes < most
            && let Some(next) = self.ring.next()
        {
            bytes += RECORD_HEADER + next.len();
            record(&next);
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    pub(super) fn totals(&self) -> io::Result<Totals> {
        let words = self.totals.get(&0, 0).map_err(with_causes)?;
        let [_, threads, starts, read, written, device_read, device_written, delay, ..] = words;
        let [.., present, cpu, minor, major, voluntary, involuntary, lost, unknown, _, _] = words;
        let [.., thread_starts] = words;
        let maxima = self.maxima.get(&0, 0).map_err(with_causes)?;
        let greatest = |at: usize| maxima.iter().map(|m| m[at]).fold(1, u64::max);
        Ok(Totals {
            processes_total: 1 + starts,
            processes_max: greatest(0),
            threads_max: greatest(1),
            threads_total: 1 + thread_starts,
            read_bytes: read,
            written_bytes: written,
            device_read_bytes: device_read,
            device_written_bytes: device_written,
            delay_nanos: delay,
            leaving: present.cast_signed() - threads.cast_signed(),
            cpu_nanos: cpu,
            minor_faults: minor,
            major_faults: major,
            voluntary_switches: voluntary,
            involuntary_switches: involuntary,
            lost,
            unknown,
        })
    }
}

/// Checks the requirements, those of the machine before those of the build. All of this is faster
/// than reading the kernel's types.
fn may_load() -> Result<(), String> {
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
    if !has.contains(both) && !has.contains(CapabilitySet::SYS_ADMIN) {
        return Err("it needs root, or CAP_BPF and CAP_PERFMON".to_owned());
    }
    if !netlink::has_kernel_ids() {
        return Err(NO_KERNEL_IDS.to_owned());
    }
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    if !is_at_least(&release, MEMORY_AT_EXIT) {
        let why = "before Linux 6.16 the kernel reports an exit after the memory is gone";
        return Err(why.to_owned());
    }
    Ok(())
}

/// Compares a release such as "6.18.44-something".
fn is_at_least(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, expected) in [
            ("6.18.44-x", true),
            ("6.16.0", true),
            ("6.9.0-rc1", false),
            ("7.0", true),
            ("5.15.0-91-generic", false),
            ("none", false),
        ] {
            assert_eq!(is_at_least(release, MEMORY_AT_EXIT), expected, "{release}");
        }
    }

    #[test]
    fn one_call_reads_no_more_than_the_ring_holds() {
        let mut kernel = match Kernel::open(None, false) {
            Ok(kernel) => kernel,
            Err(why) => return println!("skipped: {why}"),
        };
        // A process of one thread: the threads of the other tests come and go.
        let mut shell = Command::new("sh")
            .args(["-c", "while read line; do /bin/true; echo; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        kernel.put(shell.id() as Pid).expect("there is room");
        let mut lines = shell.stdin.take().expect("piped");
        let mut answers = BufReader::new(shell.stdout.take().expect("piped"));
        let mut start = || {
            writeln!(lines).expect("written");
            answers.read_line(&mut String::new()).expect("answered");
        };
        start();
        // Each record that is read causes another one.
        let mut records = 0;
        kernel.take_some(2048, |_| {
            records += 1;
            assert!(records < 500, "the loop does not end");
            start();
        });
        assert!(records > 2048 / 600, "{records}: a record is at most 600 bytes");
        assert!(kernel.ring.next().is_some(), "the rest stays for the next call");
        drop(lines);
        shell.wait().expect("it ends");
    }
}
