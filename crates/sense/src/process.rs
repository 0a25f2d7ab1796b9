//! `process`: the number of processes, in total and by state (proc(5)). The number of threads is
//! the fact `tasks` of the family `load`.
//!
//! Reading `/proc/PID/stat` of every process at each tick would cost milliseconds on a big node. So
//! the states come from a **walk**, spread over polls. The walk lists the pids once, then reads a
//! few states at each poll: as many as finish it in [`POLLS_PER_WALK`] polls, within bounds. At its
//! end the counts are set (with `walk_polls`), and the next walk begins. A process that ends before
//! its turn is not counted; a process that starts meanwhile is counted by the next walk.
//!
//! The number of processes does not need a walk: `st_nlink` of `/proc` is 2 plus the number of
//! folders in it, and each process is a folder. Each walk checks this sum. Where it is wrong (in a
//! pid namespace the kernel counts the processes of all namespaces there), the number comes from
//! the walk too.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags, statx};
use skopos_model::schema::process::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The number of polls that a walk should take: about a minute at 1 Hz.
const POLLS_PER_WALK: usize = 64;

/// The most processes asked at one poll, at up to ten microseconds each with cold caches. With more
/// than 2,048 processes a walk takes longer.
const MAX_STATES: usize = 32;

/// The most processes asked at the very first poll, so that there are states from the start.
const FIRST_STATES: usize = 512;

/// The fewest processes asked at one poll.
const MIN_STATES: usize = 2;

/// The most processes that a walk asks. A node with more has a larger problem, and its states are a
/// sample of the first ones.
const MAX_WALKED: usize = 32_768;

/// Room for the pids of a quiet node, so that a few more processes allocate nothing.
const FIRST_PIDS: usize = 2048;

/// The size of the result of one call for folder entries: about 200 of them.
const ENTRIES_BYTES: usize = 8192;

/// The letters in `/proc/PID/stat`, and the metrics that they feed.
static STATES: [(&[u8], &Metric); 6] = [
    (b"R", &RUNNING_PROCESSES),
    (b"S", &SLEEPING_PROCESSES),
    (b"DKW", &BLOCKED_PROCESSES),
    (b"ZXx", &ZOMBIE_PROCESSES),
    (b"Tt", &STOPPED_PROCESSES),
    (b"IP", &IDLE_PROCESSES),
];

pub(crate) struct Process {
    proc: OwnedFd,
    facts: Facts,
    walk: Walk,
    /// Links of `/proc` that are not processes, if the sum is right.
    other_links: Option<u64>,
    /// A buffer for folder entries. Only its spare capacity is used; the vector stays empty.
    entries: Vec<u8>,
}

struct Walk {
    pids: Vec<u64>,
    next: usize,
    polls: u64,
    is_first_poll: bool,
    left_out: u64,
    counts: [u64; STATES.len()],
}

impl Process {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open(&root.proc, flags, Mode::empty())
            .map_err(|e| Skip::new("process", format!("{}: {e}", root.proc.display())))?;
        // An empty folder is the mount point of procfs, and not a machine without processes. Every
        // procfs has this file.
        let always = root.proc.join("loadavg");
        if let Err(e) = always.metadata() {
            return Err(Skip::new("process", format!("{}: {e}", always.display())));
        }
        let pids = Vec::with_capacity(FIRST_PIDS);
        Ok(Self {
            proc,
            facts: Facts::of_node(&process::FAMILY),
            walk: Walk {
                pids,
                next: 0,
                polls: 0,
                is_first_poll: true,
                left_out: 0,
                counts: [0; STATES.len()],
            },
            other_links: None,
            entries: Vec::with_capacity(ENTRIES_BYTES),
        })
    }

    fn links(&self) -> io::Result<u64> {
        let stat = statx(&self.proc, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?;
        Ok(u64::from(stat.stx_nlink))
    }

    /// Lists the pids for the next walk, and returns their number.
    fn begin_walk(&mut self) -> io::Result<u64> {
        let links_before = self.links()?;
        self.walk.pids.clear();
        self.walk.next = 0;
        self.walk.polls = 0;
        self.walk.counts = [0; STATES.len()];
        let (mut processes, mut folders) = (0u64, 0u64);
        rustix::fs::seek(&self.proc, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.proc, self.entries.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            match parse::u64(entry.file_name().to_bytes()) {
                Some(pid) => {
                    processes += 1;
                    if self.walk.pids.len() < MAX_WALKED {
                        self.walk.pids.push(pid);
                    }
                }
                None if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                None => folders += u64::from(entry.file_type() == FileType::Directory),
            }
        }
        self.walk.left_out = processes.saturating_sub(self.walk.pids.len() as u64);
        // If processes came or went meanwhile, the sum cannot be checked.
        if self.links()? == links_before {
            let fits = links_before == 2 + folders + processes;
            self.other_links = fits.then_some(2 + folders);
        }
        Ok(processes)
    }

    fn set_processes(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if self.walk.next == self.walk.pids.len() {
            let listed = self.begin_walk()?;
            if self.other_links.is_none() {
                self.facts.set(tick, &PROCESSES, listed);
            }
        }
        if let Some(other_links) = self.other_links {
            let processes = self.links()?.saturating_sub(other_links);
            self.facts.set(tick, &PROCESSES, processes);
        }
        Ok(())
    }
}

impl Sensor for Process {
    fn family(&self) -> &'static Family {
        &process::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.set_processes(tick)?;
        let Self { proc, walk, facts, .. } = self;
        walk.polls += 1;
        let states = match std::mem::replace(&mut walk.is_first_poll, false) {
            true => FIRST_STATES,
            false => walk.pids.len().div_ceil(POLLS_PER_WALK).clamp(MIN_STATES, MAX_STATES),
        };
        for &pid in walk.pids[walk.next..].iter().take(states) {
            walk.next += 1;
            // Most often the process has ended.
            let Some(letter) = state_letter(proc, pid) else { continue };
            if let Some(state) = STATES.iter().position(|(letters, _)| letters.contains(&letter)) {
                walk.counts[state] += 1;
            }
        }
        if walk.next == walk.pids.len() {
            for ((_, metric), count) in STATES.iter().zip(walk.counts) {
                facts.set(tick, metric, count);
            }
            facts.set(tick, &WALK_POLLS, walk.polls);
        }
        Ok(())
    }
    fn skips(&self) -> Vec<Skip> {
        match self.walk.left_out {
            0 => Vec::new(),
            n => {
                vec![Skip::new(
                    "process/*_processes",
                    format!("{n} processes beyond the first {MAX_WALKED}"),
                )]
            }
        }
    }
}

/// Returns the state in `PID/stat`: the word after the name. The name stands in parentheses and may
/// contain parentheses itself.
fn state_letter(proc: &OwnedFd, pid: u64) -> Option<u8> {
    let mut path = [0; 32];
    write!(&mut path[..], "{pid}/stat\0").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(proc, path, flags, Mode::empty()).ok()?);
    // A pid and a name of at most 64 bytes precede the state; only numbers follow it.
    let mut start = [0; 128];
    let len = file.read(&mut start).ok()?;
    let start = &start[..len];
    let name_end = start.iter().rposition(|&b| b == b')')?;
    start.get(name_end + 2).copied()
}
