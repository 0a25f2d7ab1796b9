//! `runqueue`: the time that tasks wait for a processor although they could run.
//!
//! With BPF (`bpf/runqueue.bpf.c`), one program where processors change their tasks makes a histogram of the waits. It
//! needs nothing at wake-ups and keeps nothing for a task: the scheduler itself knows since when a task is in a queue. A
//! task that moves to the queue of another processor begins a new wait there, as in the scheduler's own sums.
//!
//! Without BPF, `/proc/schedstat` (Documentation/scheduler/sched-stats.rst) has the sum of all waits, hence their mean.
//! Kernels without `CONFIG_SCHEDSTATS` do not have the file.
//!
//! The program costs a task switch some 13 ns where switches are frequent. Beyond [`MAX_MEASURED`] waits a second, one in 2,
//! 4, 8, … is measured and counts as that many.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use skopos_bpf::{At, Loaded, Memory, Program};
use skopos_model::schema::Family;
use skopos_model::schema::runqueue::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::histogram::{BUCKETS, Histogram, Percentiles};
use crate::in_kernel;
use crate::parse;
use crate::root::Root;
use crate::sampling::mask_for;
use crate::sensor::{Sensor, Skip, Tick};

/// Compiled from `bpf/runqueue.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/runqueue.bpf.o"));

const PROGRAMS: [Program<'static>; 1] =
    [Program { name: "switched", at: At::Typed("sched_switch") }];

/// The most waits a second that are measured. A second of 20,000 times has 200 above its 99th percentile.
const MAX_MEASURED: f64 = 20_000.0;

/// The words of a processor: its histogram, and the number of its waits after it.
const PROCESSOR_WORDS: usize = BUCKETS + 8;

static PERCENTILES: Percentiles =
    Percentiles { p50: &WAIT_SECONDS_P50, p99: &WAIT_SECONDS_P99, max: &WAIT_SECONDS_MAX };

/// The columns of a processor in `/proc/schedstat`, its name being the first: nanoseconds of all waits, and number of waits.
const DELAY_COLUMN: usize = 8;
const WAITS_COLUMN: usize = 9;

pub(crate) struct Runqueue {
    source: Source,
    facts: Facts,
    waits: u64,
    /// The reason why there are no percentiles.
    lost: Option<Skip>,
}

enum Source {
    Programs(Measured),
    Sums { file: KernelFile, last: Option<(u64, u64)> },
}

/// The memory of the running program.
struct Measured {
    /// Keeps the program attached.
    _programs: Loaded,
    processors: Memory,
    settings: Memory,
    histogram: Histogram,
    /// The number of waits at the last poll, modulo 2^32.
    waited: u32,
    last: Option<Duration>,
}

impl Runqueue {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let (source, lost) = match Measured::open(root) {
            Ok(measured) => (Source::Programs(measured), None),
            Err(reason) => {
                let file = KernelFile::open(&root.proc.join("schedstat"));
                let file = file.map_err(|e| {
                    Skip::new(
                        "runqueue",
                        format!("{reason}; nor has this kernel /proc/schedstat: {e}"),
                    )
                })?;
                let lost = format!("{reason}; the mean is that of /proc/schedstat");
                (
                    Source::Sums { file, last: None },
                    Some(Skip::new("runqueue/wait_seconds_p99", lost)),
                )
            }
        };
        Ok(Self { source, facts: Facts::of_node(&runqueue::FAMILY), waits: 0, lost })
    }
}

impl Measured {
    fn open(root: &Root) -> Result<Self, String> {
        let mut programs = in_kernel::open(root, OBJECT, &PROGRAMS, &[])?;
        let processors = programs.memory("PROCESSORS").map_err(|e| e.to_string())?;
        let settings = programs.memory("SETTINGS").map_err(|e| e.to_string())?;
        Ok(Self {
            _programs: programs,
            processors,
            settings,
            histogram: Histogram::default(),
            waited: 0,
            last: None,
        })
    }

    /// Takes the waits since the last call into the histogram and returns their number.
    fn advance(&mut self, now: Duration) -> u64 {
        let word = |word: &AtomicU32| word.load(Relaxed);
        let sum = |at: usize| {
            let each = self.processors.chunks_exact(PROCESSOR_WORDS);
            each.map(|processor| word(&processor[at])).fold(0, u32::wrapping_add)
        };
        self.histogram.advance((0..BUCKETS).map(sum));
        let waited = sum(BUCKETS);
        let grown = u64::from(waited.wrapping_sub(std::mem::replace(&mut self.waited, waited)));
        let passed = now.saturating_sub(self.last.unwrap_or(now));
        self.last = Some(now);
        if let Some(mask) = self.settings.first() {
            mask.store(mask_for(grown, passed, MAX_MEASURED), Relaxed);
        }
        grown
    }
}

/// Returns the nanoseconds of all waits and their number: the sums over `cpu0 0 0 0 0 0 0 RUNNING DELAY WAITS`.
fn sums(text: &[u8]) -> Option<(u64, u64)> {
    let lines = parse::lines(text).filter(|line| line.starts_with(b"cpu"));
    let each = lines.filter_map(|line| {
        let mut numbers = parse::words(line).skip(DELAY_COLUMN).map_while(parse::u64);
        Some((numbers.next()?, numbers.nth(WAITS_COLUMN - DELAY_COLUMN - 1)?))
    });
    each.reduce(|(delay, waits), (more, count)| {
        (delay.wrapping_add(more), waits.wrapping_add(count))
    })
}

impl Sensor for Runqueue {
    fn family(&self) -> &'static Family {
        &runqueue::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { source, facts, waits, .. } = self;
        match source {
            Source::Programs(measured) => {
                *waits += measured.advance(tick.monotonic);
                facts.set(tick, &WAITS_TOTAL, *waits);
                if let Some(mean) = measured.histogram.mean() {
                    facts.set(tick, &WAIT_SECONDS_MEAN, mean);
                }
                measured
                    .histogram
                    .tell(&PERCENTILES, |metric, value| facts.set(tick, metric, value));
            }
            Source::Sums { file, last } => {
                let now = sums(file.read()?).ok_or(io::ErrorKind::InvalidData)?;
                facts.set(tick, &WAITS_TOTAL, now.1);
                let before = last.replace(now);
                let grown =
                    before.and_then(|b| Some((now.0.checked_sub(b.0)?, now.1.checked_sub(b.1)?)));
                if let Some((delay, count @ 1..)) = grown {
                    facts.set(tick, &WAIT_SECONDS_MEAN, delay as f64 / 1e9 / count as f64);
                }
            }
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.lost.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_of_all_processors_are_summed_and_cut_lines_are_left_out() {
        let text = b"version 15\ntimestamp 4295\ncpu0 0 0 0 0 0 0 111 2000 30\n\
            domain0 3 1 2 3 4 5 6 7 8 9\ncpu1 0 0 0 0 0 0 111 500 4\ncpu2 0 0 0 0 0 0 111 9\n";
        assert_eq!(sums(text), Some((2500, 34)));
        assert_eq!(sums(b"version 15\ncpu0 0 0\n"), None);
    }
}
