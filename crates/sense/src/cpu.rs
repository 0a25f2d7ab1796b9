//! `cpu`: time of the cores and the scheduler's work, from `/proc/stat` (proc(5)).
//!
//! `busy_ratio = (all - idle - iowait) / all`, over the first eight columns and the time since the
//! last poll. The columns `guest` and `guest_nice` are parts of `user` and `nice`.
//!
//! A machine with more than [`MAX_CORES_APART`] cores has a list of each metric in place of facts of
//! each core (see `cores`). Ratios in lists are rounded to four digits: a tick of a second has a
//! hundred clock ticks.
//!
//! On a machine with many interrupt lines the kernel takes long to make this file (its line `intr`
//! has a number for each), so it is read once for all sensors that need it.

use std::io;

use skopos_model::schema::cpu::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::cores::{CoreLists, MAX_CORES, MAX_CORES_APART};
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::sensor::{Sensor, Skip, Tick};
use crate::shared::{Shareable, SharedFile};

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

/// The metrics that have lists, in the order of [`Core::list`].
static LISTED: [&Metric; 10] = [
    &USER_SECONDS_TOTAL,
    &NICE_SECONDS_TOTAL,
    &SYSTEM_SECONDS_TOTAL,
    &IDLE_SECONDS_TOTAL,
    &IOWAIT_SECONDS_TOTAL,
    &IRQ_SECONDS_TOTAL,
    &SOFTIRQ_SECONDS_TOTAL,
    &STEAL_SECONDS_TOTAL,
    &GUEST_SECONDS_TOTAL,
    &BUSY_RATIO,
];
const BUSY: usize = LISTED.len() - 1;

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
    /// Shared with `interrupts` and `softirqs`.
    file: SharedFile,
    /// `total`, and each core unless there are lists.
    cores: Instances<Core>,
    /// The lists, once there were more than [`MAX_CORES_APART`] cores.
    lists: Option<(CoreLists, Vec<Core>)>,
    ticks_per_second: f64,
}

/// A line of a core, or of all together.
#[derive(Clone, Copy, Default)]
struct Core {
    /// Clock ticks at the last poll.
    last: Option<Ticks>,
    /// The latest ratio.
    busy: Option<f64>,
}

impl Cpu {
    pub(crate) fn open(stat: &mut Shareable) -> Result<Self, Skip> {
        Ok(Self {
            file: stat.open_or_skip("cpu")?,
            cores: Instances::new(&cpu::FAMILY, MAX_CORES_APART + 1),
            lists: None,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
        })
    }

    fn take(&mut self, text: &[u8], tick: &mut Tick<'_>) {
        let Self { cores, lists, ticks_per_second, .. } = self;
        if lists.is_none() && count_of_cores(text) > MAX_CORES_APART {
            *lists = Some((CoreLists::new(&cpu::FAMILY, &LISTED), Vec::new()));
        }
        cores.begin();
        if let Some((lists, _)) = lists {
            lists.begin();
        }
        for line in parse::lines(text) {
            let Some((name, rest)) = parse::split_once(line, b' ') else { continue };
            if let Some(core) = name.strip_prefix(b"cpu") {
                let read = Columns::of(rest);
                if let (Some((lists, known)), Some(number)) = (&mut *lists, parse::u64(core)) {
                    let number = usize::try_from(number).unwrap_or(usize::MAX);
                    if number < MAX_CORES && known.len() <= number {
                        known.resize(number + 1, Core::default());
                    }
                    let mut beyond = Core::default();
                    let known = known.get_mut(number).unwrap_or(&mut beyond);
                    known.list(&read, number, lists, *ticks_per_second);
                    continue;
                }
                let label: &[u8] = if core.is_empty() { b"total" } else { core };
                if let Some(core) = cores.see(tick.sink, label, Core::default) {
                    set_core(core, tick, &read, *ticks_per_second);
                }
            } else if let Some((_, metric)) = NODE_LINES.iter().find(|(n, _)| *n == name)
                && let Some(value) = parse::u64(rest)
                && let Some(total) = cores.see(tick.sink, b"total", Core::default)
            {
                total.set(tick, metric, value);
            }
        }
        cores.end(tick.sink);
        if let Some((lists, _)) = lists {
            lists.end(tick);
        }
    }
}

/// Returns the number of lines of cores, which come first in the file.
fn count_of_cores(text: &[u8]) -> usize {
    let after_cpu = parse::lines(text).map_while(|line| line.strip_prefix(b"cpu"));
    after_cpu.filter(|rest| rest.first().is_some_and(u8::is_ascii_digit)).count()
}

impl Sensor for Cpu {
    fn family(&self) -> &'static Family {
        &cpu::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let file = self.file.clone();
        file.with(tick.monotonic, |text| self.take(text, tick))
    }

    fn skips(&self) -> Vec<Skip> {
        let lists = self.lists.iter().flat_map(|(lists, _)| lists.skips());
        self.cores.skips().into_iter().chain(lists).collect()
    }
}

/// The columns of a line, of which old kernels have fewer.
struct Columns {
    ticks: Ticks,
    known: usize,
}

impl Columns {
    fn of(text: &[u8]) -> Self {
        let mut read = Self { ticks: [0; GUEST_NICE + 1], known: 0 };
        for (column, ticks) in read.ticks.iter_mut().zip(parse::numbers(text)) {
            *column = ticks;
            read.known += 1;
        }
        read
    }

    /// Returns the ticks of the columns that are part of the whole time.
    fn parts(&self) -> impl Iterator<Item = u64> {
        self.ticks.into_iter().take(COLUMNS.len().min(self.known))
    }

    fn guest(&self) -> Option<u64> {
        (self.known > GUEST).then(|| self.ticks[GUEST].saturating_add(self.ticks[GUEST_NICE]))
    }
}

impl Core {
    /// Returns the ratio since the last poll, if time has passed.
    fn ratio(&mut self, read: &Columns) -> Option<f64> {
        if read.known <= IDLE {
            return None;
        }
        let last = self.last.replace(read.ticks)?;
        busy_ratio(&last, &read.ticks)
    }

    /// Adds the values of a core to the lists.
    fn list(&mut self, read: &Columns, number: usize, lists: &mut CoreLists, per_second: f64) {
        for (column, ticks) in read.parts().enumerate() {
            lists.set(number, column, ticks as f64 / per_second);
        }
        if let Some(guest) = read.guest() {
            lists.set(number, GUEST, guest as f64 / per_second);
        }
        self.busy = self.ratio(read).map(four_digits).or(self.busy);
        if let Some(busy) = self.busy {
            lists.set(number, BUSY, busy);
        }
    }
}

fn four_digits(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

fn set_core(core: &mut Instance<Core>, tick: &mut Tick<'_>, read: &Columns, ticks_per_second: f64) {
    for (metric, ticks) in COLUMNS.into_iter().zip(read.parts()) {
        core.set(tick, metric, ticks as f64 / ticks_per_second);
    }
    if let Some(guest) = read.guest() {
        core.set(tick, &GUEST_SECONDS_TOTAL, guest as f64 / ticks_per_second);
    }
    if let Some(ratio) = core.state.ratio(read) {
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
