//! The programs with and without faults: a worker that does one thing for some seconds.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::worker::{Line, Role};
use skopos_term::Failure;

/// A page: memory is touched once in each.
const PAGE: usize = 4096;

/// Pause between two steps of memory.
const STEP: Duration = Duration::from_millis(20);

/// The most bytes of a file that is written; then it is written again from its start.
const MAX_FILE: u64 = 64 << 20;

/// An activity of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Doing {
    /// Threads that compute, each for a share of the time.
    Compute { threads: usize, share: f64 },
    /// Memory of `mib` over time.
    Memory { shape: Shape, mib: f64 },
    /// Writes of `bytes` to a file, at most so many a second (0: as fast as possible).
    Write { bytes: usize, rate: f64 },
    /// Reads of `bytes` from a file.
    Read { bytes: usize, rate: f64 },
    /// New files of `bytes`, at most so many a second.
    Files { bytes: usize, rate: f64 },
    /// Opens of existing files, of which there are `files`.
    Open { files: usize },
    /// Short processes, one after another.
    Spawn { rate: f64 },
    /// Many processes at one time.
    Fork { processes: usize },
    /// Nothing.
    Sleep,
}

/// The memory of a program over its time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// All of it from the start.
    Hold,
    /// Grows in the first share of the time, and stays.
    Load(f64),
    /// Grows until the end in so many steps.
    Leak(f64),
    /// Grows until the end on top of a base of as much again, times a factor.
    LeakOver(f64),
    /// Goes up and down so many times.
    Wave(f64),
    /// Grows until the end, with waves on top.
    LeakWave(f64),
    /// Grows at once, at this share of the time.
    StepAt(f64),
    /// Approaches its size like a cache that fills up.
    Cache,
    /// Is released at the end of its growth, again and again.
    Saw(f64),
}

impl Shape {
    /// Returns the share of the memory that is held at a share of the time.
    fn at(self, time: f64) -> f64 {
        let wave = |times: f64| 0.5 + 0.5 * (std::f64::consts::TAU * times * time).sin();
        match self {
            Self::Hold => 1.0,
            Self::Load(until) => (time / until).min(1.0),
            Self::Leak(steps) => (time * steps).floor() / steps,
            Self::LeakOver(base) => (base + time) / (base + 1.0),
            Self::Wave(times) => 0.3 + 0.7 * wave(times),
            Self::LeakWave(times) => 0.9 * time + 0.1 * wave(times),
            Self::StepAt(at) => {
                if time < at {
                    0.3
                } else {
                    1.0
                }
            }
            Self::Cache => 1.0 - (-6.0 * time).exp(),
            Self::Saw(times) => 0.2 + 0.8 * (time * times).fract(),
        }
    }
}

/// A program: it does several things one after another, each for a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) doing: Vec<(Doing, f64)>,
    /// A folder of its own for files.
    pub(crate) folder: PathBuf,
    /// Exit status.
    pub(crate) status: i32,
}

impl Role for Work {
    const NAME: &'static str = "job";

    fn work(self, _line: &Line) -> Result<(), Failure> {
        for (doing, seconds) in &self.doing {
            let until = Instant::now() + Duration::from_secs_f64(*seconds);
            doing.act(&self.folder, *seconds, until)?;
        }
        match self.status {
            0 => Ok(()),
            // The failure has the exit code 2.
            _ => Err(Failure::new("this job fails on purpose")),
        }
    }
}

impl Doing {
    fn act(&self, folder: &Path, seconds: f64, until: Instant) -> std::io::Result<()> {
        match self {
            Self::Compute { threads, share } => {
                std::thread::scope(|scope| {
                    (0..*threads).for_each(|_| drop(scope.spawn(|| compute(*share, until))));
                });
                Ok(())
            }
            Self::Memory { shape, mib } => {
                hold(*shape, *mib, seconds, until);
                Ok(())
            }
            Self::Write { bytes, rate } => write(&folder.join("data"), *bytes, *rate, until),
            Self::Read { bytes, rate } => read(&folder.join("data"), *bytes, *rate, until),
            Self::Files { bytes, rate } => files(folder, *bytes, *rate, until),
            Self::Open { files } => open(folder, *files, until),
            Self::Spawn { rate } => paced(*rate, until, |_| {
                Command::new("true").stdin(Stdio::null()).status().map(drop)
            }),
            Self::Fork { processes } => {
                let sleep = || Command::new("sleep").arg(seconds.to_string()).spawn();
                let children: Vec<_> = (0..*processes).filter_map(|_| sleep().ok()).collect();
                children.into_iter().try_for_each(|mut child| child.wait().map(drop))
            }
            Self::Sleep => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Ok(())
            }
        }
    }
}

/// Computes for a share of each 50 ms.
fn compute(share: f64, until: Instant) {
    const PERIOD: Duration = Duration::from_millis(50);
    let mut sum = 0_u64;
    while Instant::now() < until {
        let begun = Instant::now();
        while begun.elapsed() < PERIOD.mul_f64(share) {
            (0..10_000_u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(31) ^ n));
        }
        if share < 1.0 {
            std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
        }
    }
    std::hint::black_box(sum);
}

fn hold(shape: Shape, mib: f64, seconds: f64, until: Instant) {
    /// The parts in which memory is allocated and released.
    const CHUNK: usize = 1 << 20;
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_secs_f64();
        let wanted = (mib * shape.at(1.0 - left / seconds)) as usize;
        while held.len() < wanted {
            let mut chunk = vec![0_u8; CHUNK];
            chunk.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            held.push(std::hint::black_box(chunk));
        }
        held.truncate(wanted);
        if left <= 0.0 {
            return;
        }
        std::thread::sleep(STEP);
    }
}

/// Calls `act` with ascending numbers, at most so many times a second.
fn paced(
    rate: f64,
    until: Instant,
    mut act: impl FnMut(u64) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let begun = Instant::now();
    let mut number = 0;
    while Instant::now() < until {
        act(number)?;
        number += 1;
        if rate > 0.0 {
            let next = Duration::from_secs_f64(number as f64 / rate);
            std::thread::sleep(next.saturating_sub(begun.elapsed()));
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: usize, rate: f64, until: Instant) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let (buffer, mut written) = (vec![b'x'; bytes], 0);
    paced(rate, until, |_| {
        if written > MAX_FILE {
            file.seek(SeekFrom::Start(0))?;
            written = 0;
        }
        written += bytes as u64;
        file.write_all(&buffer)
    })
}

fn read(path: &Path, bytes: usize, rate: f64, until: Instant) -> std::io::Result<()> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.write_all(&vec![b'x'; 16 << 20])?;
    file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; bytes];
    paced(rate, until, |_| {
        if file.read(&mut buffer)? == 0 {
            file.seek(SeekFrom::Start(0))?;
        }
        Ok(())
    })
}

fn files(folder: &Path, bytes: usize, rate: f64, until: Instant) -> std::io::Result<()> {
    paced(rate, until, |number| fs::write(folder.join(format!("f{number}")), vec![b'x'; bytes]))
}

fn open(folder: &Path, count: usize, until: Instant) -> std::io::Result<()> {
    for number in 0..count {
        fs::write(folder.join(format!("f{number}")), b"x")?;
    }
    paced(0.0, until, |number| {
        File::open(folder.join(format!("f{}", number as usize % count))).map(drop)
    })
}
