//! Scans `/proc` for [`Processes`]: at most once a refresh, and only while a pane shows them.
//!
//! The folder stays open, and all files are read into one buffer. The command line of a process is
//! read when the process is new or has another program.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::processes::{CommandLine, Io, Process, Processes, Stat, Units, Usage};

/// The most processes that a scan reads, at about ten microseconds each: a fifth of a second in
/// which no key is answered.
const MAX_SCANNED: usize = 16_384;

/// The size of the result of one call for folder entries: about 200 of them.
const ENTRIES_BYTES: usize = 8192;

/// The longest file that is read: what is beyond in a command line would not be shown.
const FILE_BYTES: usize = 4096;

/// The pid, and the name of a file in its folder, with a zero at the end.
const PATH_BYTES: usize = 32;

/// Reads the processes of this machine.
pub(crate) struct ProcScan {
    /// `/proc`, once it has been opened.
    folder: Option<OwnedFd>,
    units: Units,
    /// A buffer for folder entries. Only its spare capacity is used; the vector stays empty.
    entries: Vec<u8>,
    file: Vec<u8>,
    pids: Vec<u32>,
    scanned_at: Option<Instant>,
}

impl ProcScan {
    pub(crate) fn new() -> Self {
        Self {
            folder: None,
            units: Units {
                ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
                page_bytes: rustix::param::page_size() as u64,
            },
            entries: Vec::new(),
            file: Vec::new(),
            pids: Vec::new(),
            scanned_at: None,
        }
    }

    /// Brings `processes` up to date.
    pub(crate) fn scan(&mut self, processes: &mut Processes) {
        let now = Instant::now();
        let list = std::mem::take(&mut processes.list);
        match self.read(&list) {
            Ok((scan, left_out)) => {
                let seconds =
                    self.scanned_at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
                *processes = Processes { left_out, ..Processes::new(scan, &list, seconds) };
                self.scanned_at = Some(now);
            }
            Err(e) => {
                // The last processes stay.
                (processes.list, processes.trouble) = (list, Some(format!("/proc: {e}")));
            }
        }
    }

    /// The processes, and the number of those that were not read.
    fn read(&mut self, earlier: &[Usage]) -> io::Result<(Vec<Process>, usize)> {
        let left_out = self.list()?;
        let units = self.units;
        let earlier: HashMap<u32, &Process> =
            earlier.iter().map(|usage| (usage.process.pid, &usage.process)).collect();
        let mut scan = Vec::with_capacity(self.pids.len());
        for index in 0..self.pids.len() {
            let pid = self.pids[index];
            // Most often the process has ended.
            let Some(stat) = self.file(pid, "stat") else { continue };
            let Some(stat) = Stat::parse(stat, units) else { continue };
            let io = match stat.is_kernel_thread {
                true => None,
                false => self.file(pid, "io").and_then(Io::parse),
            };
            let known = earlier.get(&pid).filter(|known| {
                known.stat.started_ticks == stat.started_ticks && known.stat.name == stat.name
            });
            let command = match known {
                Some(known) => known.command.clone(),
                None if stat.is_kernel_thread => CommandLine::default(),
                None => self.file(pid, "cmdline").map(CommandLine::parse).unwrap_or_default(),
            };
            scan.push(Process { pid, stat, io, command });
        }
        Ok((scan, left_out))
    }

    /// Lists the process ids, and returns the number of those beyond the most that are read.
    fn list(&mut self) -> io::Result<usize> {
        let folder = match &self.folder {
            Some(folder) => folder,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                self.folder.insert(rustix::fs::open("/proc", flags, Mode::empty())?)
            }
        };
        self.entries.reserve(ENTRIES_BYTES);
        self.pids.clear();
        let mut left_out = 0;
        rustix::fs::seek(folder, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(folder, self.entries.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            match name.and_then(|name| name.parse().ok()) {
                Some(pid) if self.pids.len() < MAX_SCANNED => self.pids.push(pid),
                Some(_) => left_out += 1,
                None => {}
            }
        }
        self.pids.sort_unstable();
        Ok(left_out)
    }

    /// The start of a file of a process.
    fn file(&mut self, pid: u32, name: &str) -> Option<&[u8]> {
        let mut path = [0; PATH_BYTES];
        write!(&mut path[..], "{pid}/{name}\0").ok()?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = self.folder.as_ref()?;
        let mut file = File::from(rustix::fs::openat(folder, path, flags, Mode::empty()).ok()?);
        self.file.resize(FILE_BYTES, 0);
        let length = file.read(&mut self.file).ok()?;
        self.file.get(..length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_this_process_and_its_use() {
        let mut scan = ProcScan::new();
        let mut processes = Processes::default();
        scan.scan(&mut processes);
        let me = std::process::id();
        let mine = |processes: &Processes| {
            processes.list.iter().find(|usage| usage.process.pid == me).cloned()
        };
        let first = mine(&processes).expect("this process");
        assert!(first.process.stat.resident_bytes > 0 && first.cpu_ratio.is_none(), "{first:?}");
        let program = std::env::args().next().expect("a program");
        assert!(first.process.command.whole().starts_with(&program), "{first:?}");
        scan.scan(&mut processes);
        let second = mine(&processes).expect("this process");
        assert!(second.cpu_ratio.is_some() && processes.trouble.is_none(), "{second:?}");
    }
}
