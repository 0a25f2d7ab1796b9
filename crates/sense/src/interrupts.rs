//! `interrupts`: interrupts in total, from the line `intr` of `/proc/stat`, and by core and by line,
//! from `/proc/interrupts` (proc(5)).
//!
//! A line is `36: 0 64495 PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0` for a device (the instance is
//! its last word and its number, `virtio1-req.0@36`), or `LOC: 19024 16972 Local timer interrupts`
//! for a line of the kernel itself (`loc`).
//!
//! `/proc/interrupts` has a number for each line and core. The kernel and we take milliseconds for
//! it on a big node, so it is read every [`TABLE_EVERY`], and the sum, which is the kernel's own,
//! at each poll.
//!
//! A big node has thousands of lines. Only the [`MAX_LINES`] busiest have facts of their own: those
//! that counted most since the last choice. They are chosen every [`CHOOSE_READS`] reads.

use std::cmp::Reverse;
use std::io::{self, Write as _};
use std::time::Duration;

use skopos_model::core_list::PER_CPU;
use skopos_model::escape_segment;
use skopos_model::schema::interrupts::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::cores::{CoreLists, MAX_CORES, MAX_CORES_APART};
use crate::facts::Facts;
use crate::file::KernelFile;
use crate::instances::Instances;
use crate::parse;
use crate::rarely::Rarely;
use crate::root::Root;
use crate::sensor::{Sensor, Sink, Skip, Tick};
use crate::shared::{Shareable, SharedFile};

/// The number of lines with facts: enough for the queues of one fast interface on one socket.
const MAX_LINES: usize = 32;

/// The time between two reads of `/proc/interrupts`, and that time on a machine with lists, where a
/// read takes the kernel up to 15 ms: 0.03 % of a core then.
const TABLE_EVERY: Duration = Duration::from_secs(10);
const LARGE_TABLE_EVERY: Duration = HANDLED_TOTAL.read_every();

/// The number of reads between two choices of the busiest lines, which is several minutes, because
/// facts that come and go are of little use.
const CHOOSE_READS: u32 = 50;

/// A count of zero as the kernel writes it: ten wide, after a space. On a machine with many cores
/// most counts are zero.
const ZERO: &[u8; 11] = b"          0";

/// The metric that has a list, if there are lists.
static LISTED: [&Metric; 1] = [&HANDLED_TOTAL];

pub(crate) struct Interrupts {
    /// Shared with `cpu` and `softirqs`.
    stat: SharedFile,
    total: Facts,
    table: KernelFile,
    table_due: Rarely,
    /// The cores, unless there are lists.
    cores: Instances<()>,
    /// The lists, once there were more than [`MAX_CORES_APART`] cores.
    lists: Option<CoreLists>,
    /// The number of each core that is online, and its sum.
    by_core: Vec<(u64, u64)>,
    lines: Vec<Line>,
    reads_to_choice: u32,
    /// Indexes of `lines`, busiest first.
    ranking: Vec<usize>,
}

struct Line {
    /// The text before the colon: the number, or the kernel's abbreviation.
    key: Box<[u8]>,
    /// The text after the numbers.
    description: Box<[u8]>,
    total: u64,
    total_when_chosen: u64,
    chosen: bool,
    facts: Facts,
}

impl Interrupts {
    pub(crate) fn open(root: &Root, stat: &mut Shareable) -> Result<Self, Skip> {
        Ok(Self {
            stat: stat.open_or_skip("interrupts")?,
            total: Facts::of(&interrupts::FAMILY, "total"),
            table: KernelFile::open_or_skip(&root.proc.join("interrupts"), "interrupts")?,
            table_due: Rarely::every(TABLE_EVERY),
            cores: Instances::new(&interrupts::FAMILY, MAX_CORES_APART),
            lists: None,
            by_core: Vec::new(),
            lines: Vec::new(),
            reads_to_choice: 0,
            ranking: Vec::new(),
        })
    }

    /// Reads `/proc/interrupts` into `by_core` and `lines`.
    fn take(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let Self { table, by_core, lines, reads_to_choice, .. } = self;
        by_core.clear();
        let mut is_first = true;
        let mut at = 0;
        table.read_lines(|line| {
            // The first line names the cores that are online: "CPU0 CPU1".
            if std::mem::take(&mut is_first) {
                let number = |name: &[u8]| parse::u64(name.strip_prefix(b"CPU")?);
                let cores = parse::words(line).map_while(number);
                by_core.extend(cores.take(MAX_CORES).map(|core| (core, 0)));
                return;
            }
            let Some((key, rest)) = parse::split_once(line, b':') else { return };
            let key = parse::trim(key);
            // Counts of errors, one for the whole machine.
            if matches!(key, b"ERR" | b"MIS") {
                return;
            }
            let (total, description) = sum(rest, by_core);
            if let Some(line) = find(lines, at, (key, description), reads_to_choice, sink) {
                line.total = total;
                at += 1;
            }
        })?;
        lines.drain(at..).for_each(|mut line| line.facts.unregister(sink));
        Ok(())
    }

    /// Sets the sum of each core.
    fn set_cores(&mut self, tick: &mut Tick<'_>) {
        let Self { cores, lists, by_core, .. } = self;
        if lists.is_none() && by_core.len() > MAX_CORES_APART {
            *lists = Some(CoreLists::new(&interrupts::FAMILY, &LISTED));
            self.table_due.set(LARGE_TABLE_EVERY);
        }
        cores.begin();
        if let Some(lists) = lists {
            lists.begin();
            for (core, count) in by_core {
                lists.set(usize::try_from(*core).unwrap_or(usize::MAX), 0, *count);
            }
            lists.end(tick);
        } else {
            let mut name = [0; 32];
            for (core, count) in by_core {
                let mut unwritten = &mut name[..];
                if write!(unwritten, "cpu{core}").is_err() {
                    continue;
                }
                let left = unwritten.len();
                let name = &name[..name.len() - left];
                if let Some(core) = cores.see(tick.sink, name, || ()) {
                    core.set(tick, &HANDLED_TOTAL, *count);
                }
            }
        }
        cores.end(tick.sink);
    }

    fn choose(&mut self, sink: &mut dyn Sink) {
        self.ranking.clear();
        self.ranking.extend(0..self.lines.len());
        let growth = |line: &Line| line.total.saturating_sub(line.total_when_chosen);
        self.ranking.sort_unstable_by_key(|&at| {
            let line = &self.lines[at];
            Reverse((growth(line), line.total))
        });
        for (rank, &at) in self.ranking.iter().enumerate() {
            let line = &mut self.lines[at];
            line.chosen = rank < MAX_LINES && line.total > 0;
            line.total_when_chosen = line.total;
            if !line.chosen {
                line.facts.unregister(sink);
            }
        }
    }
}

/// Adds the counts of a line to those of the cores. Returns their sum, and the text after them.
fn sum<'a>(counts: &'a [u8], by_core: &mut [(u64, u64)]) -> (u64, &'a [u8]) {
    let (mut total, mut rest) = (0u64, counts);
    for (_, of_core) in by_core {
        if let Some((ZERO, after @ ([] | [b' ', ..]))) = rest.split_first_chunk() {
            rest = after;
            continue;
        }
        let Some((count, after)) = parse::leading_u64(rest) else { break };
        *of_core = of_core.wrapping_add(count);
        total = total.wrapping_add(count);
        rest = after;
    }
    (total, rest)
}

/// Returns the line with this key and description, most often that at `at`, and adds it first if it
/// is new. `None` if another line has its name.
fn find<'l>(
    lines: &'l mut Vec<Line>,
    at: usize,
    (key, description): (&[u8], &[u8]),
    reads_to_choice: &mut u32,
    sink: &mut dyn Sink,
) -> Option<&'l mut Line> {
    if lines.get(at).is_none_or(|known| !known.is(key, description)) {
        // A device came, or the lines between went.
        let gone = match lines[at..].iter().position(|known| known.is(key, description)) {
            Some(ahead) => at..at + ahead,
            None => {
                let line = Line::new(key, description);
                if is_taken(line.facts.instance(), lines) {
                    return None;
                }
                lines.insert(at, line);
                *reads_to_choice = 0;
                at..at
            }
        };
        lines.drain(gone).for_each(|mut line| line.facts.unregister(sink));
    }
    lines.get_mut(at)
}

impl Line {
    fn new(key: &[u8], description: &[u8]) -> Self {
        let mut instance = String::new();
        escape_segment(label(key, description).as_slice(), &mut instance);
        Self {
            key: key.into(),
            description: description.into(),
            total: 0,
            total_when_chosen: 0,
            chosen: false,
            facts: Facts::of(&interrupts::FAMILY, &instance),
        }
    }

    fn is(&self, key: &[u8], description: &[u8]) -> bool {
        *self.key == *key && *self.description == *description
    }
}

/// Returns true if the name of a line is taken: two facts would have the same topic.
fn is_taken(instance: &str, lines: &[Line]) -> bool {
    instance.is_empty()
        || instance == "total"
        || instance.starts_with("cpu")
        || instance.starts_with(PER_CPU)
        || lines.iter().any(|line| line.facts.instance() == instance)
}

/// Returns the name of a line in topics: `loc`, or `virtio1-req.0@36`.
fn label(key: &[u8], description: &[u8]) -> Vec<u8> {
    if parse::u64(key).is_none() {
        return key.to_ascii_lowercase();
    }
    // The chip, the kind of trigger, and the driver's name for it, if there is one.
    let mut words = parse::words(description).filter(|word| parse::u64(word).is_none());
    let name = words.next().and_then(|_chip| words.last()).unwrap_or(b"irq");
    [name, b"@", key].concat()
}

impl Sensor for Interrupts {
    fn family(&self) -> &'static Family {
        &interrupts::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let now = tick.monotonic;
        // "intr 179190 0 0 1 ...": all together, then by number. The line has up to thousands of
        // numbers, of which the first is enough.
        let total = self.stat.with(now, |text| {
            let line = parse::lines(text).find_map(|line| line.strip_prefix(b"intr "))?;
            parse::leading_u64(line).map(|(total, _)| total)
        })?;
        if let Some(total) = total {
            self.total.set(tick, &HANDLED_TOTAL, total);
        }
        if !self.table_due.is_due(now) {
            return Ok(());
        }
        self.take(tick.sink)?;
        self.table_due.was_read(now);
        self.set_cores(tick);
        match self.reads_to_choice.checked_sub(1) {
            Some(left) => self.reads_to_choice = left,
            None => {
                self.choose(tick.sink);
                self.reads_to_choice = CHOOSE_READS;
            }
        }
        for line in self.lines.iter_mut().filter(|line| line.chosen) {
            line.facts.set(tick, &HANDLED_TOTAL, line.total);
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let quiet = self.lines.iter().filter(|line| line.total > 0 && !line.chosen).count();
        let lists = self.lists.iter().flat_map(CoreLists::skips);
        let mut skips: Vec<Skip> = self.cores.skips().into_iter().chain(lists).collect();
        if quiet > 0 {
            let reason = format!(
                "{quiet} lines have no facts of their own; only the {MAX_LINES} busiest have"
            );
            skips.push(Skip::new("interrupts/*", reason));
        }
        skips
    }
}
