//! The paper's programs, rebuilt, with sizes for the machine; a compile and a pipeline.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::real;
use super::watchers::{Ours, Program, Reported, Truth};

/// The greatest time for the start and the end of a monitor, in milliseconds.
pub(super) const MOST_FIXED_MS: f64 = 30.0;

/// The least time of a run in which a share of one per cent can be measured.
const LONG_SECONDS: f64 = 3.0;

/// A margin for runs that are slower than the timed ones, and the number of timed runs.
const WANTED_SECONDS: f64 = 3.6;
const TIMED: usize = 3;

/// The most repetitions of the work, on any machine.
const MOST_TIMES: f64 = 10_000.0;

/// The least time of input and output whose overhead is a share of its time.
const IO_SECONDS: f64 = 0.15;

/// A program with its amount of work.
pub(super) struct Case {
    pub(super) name: String,
    /// The program, or the reason why it cannot run here.
    pub(super) program: Result<Program, String>,
    kind: Kind,
    /// True if it takes so long that it has fewer rounds, without `strace`.
    pub(super) is_long: bool,
}

/// The subject of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cpu,
    Memory,
    /// The size of the buffer in KiB.
    Io(u32),
    Processes,
    Real,
}

/// A comparison: its name, the truth, the reported value, and the promised error in per cent.
type Check = (&'static str, fn(&Truth) -> Option<f64>, fn(&Reported) -> Option<f64>, f64);

/// All cases. The sizes of the long ones depend on the speed of the machine.
pub(super) fn cases(dir: &Path, memory_mib: u64) -> Vec<Case> {
    let work = |words: &[&str]| Program {
        command: [dir.join("work").display().to_string()]
            .into_iter()
            .chain(words.iter().map(|w| (*w).to_owned()))
            .collect(),
        file: None,
        limit: None,
        may_fail: false,
    };
    let case = |name: &str, kind, program| Case {
        name: name.to_owned(),
        program: Ok(program),
        kind,
        is_long: false,
    };
    let long = |name: String, kind, program| Case { name, program, kind, is_long: true };
    let steps = 10_000_000;
    let steps = steps * times(&work(&["spin", &steps.to_string()]), dir);
    let (kept, kept_mib) = kept(memory_mib);
    let touched = times(&work(&["hold", &kept_mib]), dir);
    let mut cases = vec![
        case("(a) 10^6 steps", Kind::Cpu, work(&["spin", "1000000"])),
        case("(a) 10^7 steps", Kind::Cpu, work(&["spin", "10000000"])),
        long(
            format!("(a) {} x 10^7 steps", steps / 10_000_000),
            Kind::Cpu,
            Ok(work(&["spin", &steps.to_string()])),
        ),
        case("(b) 1 GiB", Kind::Memory, work(&["hold", "1024"])),
        long(
            format!("(b) {kept} GiB, {touched} times"),
            Kind::Memory,
            Ok(work(&["hold", &kept_mib, &touched.to_string()])),
        ),
    ];
    for (letter, mib, kib, mode) in [
        ("c", 1, 4, "cached"),
        ("c", 1024, 4, "cached"),
        ("c", 4096, 4, "cached"),
        ("c", 32, 4, "direct"),
        ("d", 1024, 8, "cached"),
        ("d", 1024, 16, "cached"),
        ("d", 1024, 32, "cached"),
        ("d", 64, 8, "direct"),
        ("d", 128, 16, "direct"),
        ("d", 256, 32, "direct"),
    ] {
        let file = file(dir, mode);
        let words = [&mib.to_string(), &kib.to_string(), &*file.display().to_string()];
        let mut program = work(&["io", words[0], words[1], words[2], mode]);
        program.file = Some(file);
        let size = if mib < 1024 { format!("{mib} MiB") } else { format!("{} GiB", mib / 1024) };
        let name = format!("({letter}) {size} by {kib} KiB, {mode}");
        cases.push(Case { is_long: mib > 1024, ..case(&name, Kind::Io(kib), program) });
    }
    cases.push(case("(e) 2,000 processes", Kind::Processes, work(&["start", "2000"])));
    cases.push(long("(f) a compile, make -j2".to_owned(), Kind::Real, real::compile(dir)));
    cases.push(long("(g) a pipeline of a shell".to_owned(), Kind::Real, real::pipeline(dir)));
    cases
}

/// The file that is written and read. With the cache it lies in memory: on disk, the write-back of one
/// run would slow down the next.
fn file(dir: &Path, mode: &str) -> PathBuf {
    match mode {
        "cached" => PathBuf::from(format!("/dev/shm/skopos-bench-task-{}", std::process::id())),
        _ => dir.join("file"),
    }
}

/// The memory that is touched at once: at most 4 GiB, a share of the free memory; in GiB, and as text in
/// MiB.
fn kept(memory_mib: u64) -> (u64, String) {
    let gib = (memory_mib / 3 / 1024).clamp(1, 4);
    (gib, (1024 * gib).to_string())
}

/// Number of repetitions after which a program takes long enough, by its fastest run; 1 if it does not
/// run.
fn times(program: &Program, dir: &Path) -> u64 {
    let seconds = |_| {
        let mut command = std::process::Command::new(&program.command[0]);
        command.args(&program.command[1..]).current_dir(dir);
        let begun = Instant::now();
        command.output().map_or(f64::INFINITY, |_| begun.elapsed().as_secs_f64())
    };
    let fastest = (0..TIMED).map(seconds).fold(f64::INFINITY, f64::min);
    (WANTED_SECONDS / fastest).ceil().clamp(1.0, MOST_TIMES) as u64
}

impl Case {
    /// True if a run of this time without a monitor is long enough for a share; for a shorter run the
    /// fixed cost counts.
    pub(super) fn tells_share(&self, bare_seconds: f64) -> bool {
        match self.kind {
            Kind::Cpu | Kind::Memory => bare_seconds >= LONG_SECONDS,
            Kind::Io(_) => bare_seconds >= IO_SECONDS,
            Kind::Processes | Kind::Real => true,
        }
    }

    /// The greatest overhead, in per cent of the time.
    pub(super) fn most_percent(&self, ours: Ours) -> Option<f64> {
        match (self.kind, ours.level) {
            (Kind::Cpu | Kind::Memory, _) | (Kind::Io(_), 2) => Some(1.0),
            (Kind::Io(4), 3) => Some(if ours.by == Some("seccomp") { 3.0 } else { 8.0 }),
            (Kind::Processes, 2) => Some(20.0),
            _ => None,
        }
    }

    /// The values of the report that are compared with the truth.
    pub(super) fn checked(&self) -> Vec<Check> {
        match self.kind {
            Kind::Cpu => vec![("processor time", |t| t.cpu_seconds, |s| s.cpu_seconds, 1.0)],
            Kind::Memory => {
                vec![("resident memory", |t| t.resident_bytes, |s| s.resident_bytes, 0.1)]
            }
            Kind::Io(_) => vec![("bytes read", |t| t.read_bytes, |s| s.read_bytes, 0.0)],
            Kind::Processes => vec![("processes", |t| t.processes, |s| s.processes, 0.0)],
            Kind::Real => Vec::new(),
        }
    }
}
