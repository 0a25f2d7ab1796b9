//! `cpu`: time of the cores and the scheduler's work, from `/proc/stat` (proc(5)).
//!
//! `busy_ratio = (all - idle - iowait) / all`, over the first eight columns and the time since the
//! last poll. The columns `guest` and `guest_nice` are parts of `user` and `nice`.
//!
//! On a machine with many interrupt lines the kernel takes long to make this file (its line `intr`
//! has a number for each), so everything that Skopos needs from it is read here, at once.

use std::io;

use skopos_model::schema::cpu::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most cores with facts of their own. The largest nodes on sale have 2,048 threads.
const MAX_CORES: usize = 2048;

/// The columns whose sum is the whole time. `guest` and `guest_nice` follow them.
static COLUMNS: [&Metric; 8] = [
    &USER_SECONDS_TOTAL,
    &NICE_SECONDS_TOTAL,
    &SYSTEM_SECONDS_TOTAL,
    &IDLE_SECONDS_TOTAL,
    &IOWAIT_SECONDS_TOTAL,
    &IRQ_SECONDS_TOTAL,
    &SOFTIRQ_SECONDS_TOTAL,
    &STEAL_SECONDS_TOTAL,
];
const IDLE: usize = 3;
const IOWAIT: usize = 4;
const GUEST: usize = COLUMNS.len();
const GUEST_NICE: usize = GUEST + 1;

/// Lines of the whole node.
static NODE_LINES: [(&[u8], &Metric); 4] = [
    (b"ctxt", &CONTEXT_SWITCHES_TOTAL),
    (b"processes", &FORKS_TOTAL),
    (b"procs_running", &RUNNING_TASKS),
    (b"procs_blocked", &BLOCKED_TASKS),
];

/// Clock ticks of one line, by column.
type Ticks = [u64; GUEST_NICE + 1];

pub(crate) struct Cpu {
    file: KernelFile,
    /// Each core's ticks at the last poll.
    cores: Instances<Option<Ticks>>,
    ticks_per_second: f64,
}

impl Cpu {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            file: KernelFile::open_or_skip(&root.proc.join("stat"), "cpu")?,
            cores: Instances::new(&cpu::FAMILY, MAX_CORES + 1),
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
        })
    }
}

impl Sensor for Cpu {
    fn family(&self) -> &'static Family {
        &cpu::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let text = self.file.read_record()?;
        self.cores.begin();
        for line in parse::lines(text) {
            let Some((name, rest)) = parse::split_once(line, b' ') else { continue };
            if let Some(core) = name.strip_prefix(b"cpu") {
                let label: &[u8] = if core.is_empty() { b"total" } else { core };
                if let Some(core) = self.cores.see(tick.sink, label, || None) {
                    set_core(core, tick, rest, self.ticks_per_second);
                }
            } else if let Some((_, metric)) = NODE_LINES.iter().find(|(n, _)| *n == name)
                && let Some(value) = parse::u64(rest)
                && let Some(total) = self.cores.see(tick.sink, b"total", || None)
            {
                total.set(tick, metric, value);
            }
        }
        self.cores.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.cores.skips()
    }
}

fn set_core(
    core: &mut Instance<Option<Ticks>>,
    tick: &mut Tick<'_>,
    columns: &[u8],
    ticks_per_second: f64,
) {
    let mut now: Ticks = [0; GUEST_NICE + 1];
    let mut known = 0;
    for (column, ticks) in now.iter_mut().zip(parse::numbers(columns)) {
        *column = ticks;
        known += 1;
    }
    for (metric, ticks) in COLUMNS.into_iter().zip(now).take(known) {
        core.set(tick, metric, ticks as f64 / ticks_per_second);
    }
    if known > GUEST {
        let guest = now[GUEST].saturating_add(now[GUEST_NICE]);
        core.set(tick, &GUEST_SECONDS_TOTAL, guest as f64 / ticks_per_second);
    }
    if known <= IDLE {
        return;
    }
    if let Some(last) = core.state.replace(now)
        && let Some(ratio) = busy_ratio(&last, &now)
    {
        core.set(tick, &BUSY_RATIO, ratio);
    }
}

fn busy_ratio(last: &Ticks, now: &Ticks) -> Option<f64> {
    let mut all = 0u64;
    let mut idle = 0u64;
    for column in 0..COLUMNS.len() {
        let passed = now[column].checked_sub(last[column])?;
        all = all.checked_add(passed)?;
        if column == IDLE || column == IOWAIT {
            idle += passed;
        }
    }
    (all > 0).then(|| (all - idle) as f64 / all as f64)
}
