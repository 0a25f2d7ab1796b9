//! The paper's programs, rebuilt, with sizes for a machine of today that is not large.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::watchers::{Seen, Watcher};

/// What starting and ending a monitor may take.
pub(super) const MOST_FIXED_MS: f64 = 30.0;

/// One program with its amount of work.
pub(super) struct Case {
    pub(super) name: &'static str,
    words: &'static [&'static str],
    kind: Kind,
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cpu,
    Memory,
    Io,
    Processes,
}

/// What the program says of itself.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Truth {
    cpu_seconds: f64,
    resident_bytes: f64,
    read_bytes: f64,
    processes: f64,
}

const fn case(name: &'static str, kind: Kind, words: &'static [&'static str]) -> Case {
    Case { name, words, kind }
}

/// All of them. `FILE` stands for a file of the run's own.
pub(super) const CASES: &[Case] = &[
    case("(a) 10^6 steps", Kind::Cpu, &["spin", "1000000"]),
    case("(a) 10^8 steps", Kind::Cpu, &["spin", "100000000"]),
    case("(b) 1 GiB", Kind::Memory, &["hold", "1024"]),
    case("(b) 4 GiB", Kind::Memory, &["hold", "4096"]),
    case("(c) 1 MiB by 4 KiB, cached", Kind::Io, &["io", "1", "4", "FILE", "cached"]),
    case("(c) 1 GiB by 4 KiB, cached", Kind::Io, &["io", "1024", "4", "FILE", "cached"]),
    case("(c) 32 MiB by 4 KiB, direct", Kind::Io, &["io", "32", "4", "FILE", "direct"]),
    case("(d) 1 GiB by 32 KiB, cached", Kind::Io, &["io", "1024", "32", "FILE", "cached"]),
    case("(e) 2,000 processes", Kind::Processes, &["start", "2000"]),
];

/// A thing to compare: what it is called, the truth, what was seen, and the error in per cent that was
/// promised.
type Check = (&'static str, fn(&Truth) -> f64, fn(&Seen) -> Option<f64>, f64);

impl Case {
    /// The file that it writes and reads. What goes through the cache lies in memory: on disk, pages
    /// that one run leaves to be written back would be in the next one's way.
    pub(super) fn file(&self, dir: &Path) -> PathBuf {
        match self.words.last() {
            Some(&"cached") => {
                PathBuf::from(format!("/dev/shm/skopos-bench-task-{}", std::process::id()))
            }
            _ => dir.join("file"),
        }
    }

    /// True if its overhead is told as a share of its time whatever that is.
    pub(super) fn is_of_many(&self) -> bool {
        self.kind == Kind::Processes
    }

    /// The command.
    pub(super) fn command(&self, dir: &Path) -> Vec<String> {
        let file = self.file(dir).display().to_string();
        let words =
            self.words.iter().map(|w| if *w == "FILE" { file.clone() } else { (*w).to_owned() });
        [dir.join("work").display().to_string()].into_iter().chain(words).collect()
    }

    /// As a process without a monitor.
    pub(super) fn bare(&self, dir: &Path) -> Command {
        let words = self.command(dir);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// The most that a level may cost of the time.
    pub(super) fn most_percent(&self, watcher: Watcher) -> Option<f64> {
        match (self.kind, watcher) {
            (Kind::Cpu | Kind::Memory, _) => Some(1.0),
            (Kind::Io, Watcher::Level2) => Some(1.0),
            (Kind::Io, Watcher::Level3) => Some(8.0),
            (Kind::Processes, Watcher::Level2) => Some(20.0),
            _ => None,
        }
    }

    /// What of the report is held against the truth.
    pub(super) fn checked(&self) -> Vec<Check> {
        let cpu: Check = ("processor time", |t| t.cpu_seconds, |s| s.cpu_seconds, 1.0);
        match self.kind {
            Kind::Cpu => vec![cpu],
            Kind::Memory => {
                vec![("resident memory", |t| t.resident_bytes, |s| s.resident_bytes, 0.1)]
            }
            Kind::Io => vec![("bytes read", |t| t.read_bytes, |s| s.read_bytes, 0.0)],
            Kind::Processes => vec![("processes", |t| t.processes, |s| s.processes, 0.0)],
        }
    }
}
