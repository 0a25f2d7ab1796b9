//! `interrupts`: interrupts in total, by core and by line, from `/proc/interrupts` (proc(5)).
//!
//! A line is `36: 0 64495 PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0` for a device (the instance is
//! its last word and its number, `virtio1-req.0@36`), or `LOC: 19024 16972 Local timer interrupts`
//! for a line of the kernel itself (`loc`).
//!
//! A big node has thousands of lines. Only the [`MAX_LINES`] busiest have facts of their own: those
//! that counted most since the last choice. They are chosen every [`CHOOSE_POLLS`] polls.

use std::cmp::Reverse;
use std::io::{self, Write as _};

use skopos_model::escape_segment;
use skopos_model::schema::Family;
use skopos_model::schema::interrupts::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::instances::Instances;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Sink, Skip, Tick};

/// The number of lines with facts: enough for the queues of one fast interface on one socket.
const MAX_LINES: usize = 32;

/// The number of polls between two choices of the busiest lines. It is large, because facts that
/// come and go are of little use.
const CHOOSE_POLLS: u32 = 512;

/// The most cores with facts of their own, as in the family `cpu`.
const MAX_CORES: usize = 2048;

pub(crate) struct Interrupts {
    file: KernelFile,
    /// `total` and the cores.
    sums: Instances<()>,
    /// The number of each core that is online, and its sum.
    by_core: Vec<(u64, u64)>,
    lines: Vec<Line>,
    polls_to_choice: u32,
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
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            file: KernelFile::open_or_skip(&root.proc.join("interrupts"), "interrupts")?,
            sums: Instances::new(&interrupts::FAMILY, MAX_CORES + 1),
            by_core: Vec::new(),
            lines: Vec::new(),
            polls_to_choice: 0,
            ranking: Vec::new(),
        })
    }

    /// Reads the file into `by_core` and `lines`.
    fn take(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let Self { file, by_core, lines, polls_to_choice, .. } = self;
        let text = file.read()?;
        let mut text_lines = parse::lines(text);
        // The first line names the cores that are online: "CPU0 CPU1".
        let names = text_lines.next().into_iter().flat_map(parse::words);
        let cores = names.map_while(|name| parse::u64(name.strip_prefix(b"CPU")?));
        by_core.clear();
        by_core.extend(cores.take(MAX_CORES).map(|core| (core, 0)));
        let mut at = 0;
        for line in text_lines {
            let Some((key, rest)) = parse::split_once(line, b':') else { continue };
            let key = parse::trim(key);
            // Counts of errors, one for the whole machine.
            if matches!(key, b"ERR" | b"MIS") {
                continue;
            }
            let mut total = 0u64;
            let mut rest = rest;
            for (_, sum) in by_core.iter_mut() {
                let Some((count, after)) = parse::leading_u64(rest) else { break };
                *sum = sum.wrapping_add(count);
                total = total.wrapping_add(count);
                rest = after;
            }
            if lines.get(at).is_none_or(|known| !known.is(key, rest)) {
                // A device came, or the lines between went.
                let gone = match lines[at..].iter().position(|known| known.is(key, rest)) {
                    Some(ahead) => at..at + ahead,
                    None => {
                        let line = Line::new(key, rest);
                        if is_taken(line.facts.instance(), lines) {
                            continue;
                        }
                        lines.insert(at, line);
                        *polls_to_choice = 0;
                        at..at
                    }
                };
                lines.drain(gone).for_each(|mut line| line.facts.unregister(sink));
            }
            lines[at].total = total;
            at += 1;
        }
        lines.drain(at..).for_each(|mut line| line.facts.unregister(sink));
        Ok(())
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
        self.take(tick.sink)?;
        self.sums.begin();
        if let Some(total) = self.sums.see(tick.sink, b"total", || ()) {
            let sum = self.by_core.iter().fold(0u64, |sum, &(_, n)| sum.wrapping_add(n));
            total.set(tick, &HANDLED_TOTAL, sum);
        }
        let mut name = [0; 32];
        for (core, count) in &self.by_core {
            let mut unwritten = &mut name[..];
            if write!(unwritten, "cpu{core}").is_err() {
                continue;
            }
            let left = unwritten.len();
            let name = &name[..name.len() - left];
            if let Some(core) = self.sums.see(tick.sink, name, || ()) {
                core.set(tick, &HANDLED_TOTAL, *count);
            }
        }
        self.sums.end(tick.sink);
        match self.polls_to_choice.checked_sub(1) {
            Some(left) => self.polls_to_choice = left,
            None => {
                self.choose(tick.sink);
                self.polls_to_choice = CHOOSE_POLLS;
            }
        }
        for line in self.lines.iter_mut().filter(|line| line.chosen) {
            line.facts.set(tick, &HANDLED_TOTAL, line.total);
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let quiet = self.lines.iter().filter(|line| line.total > 0 && !line.chosen).count();
        let mut skips = self.sums.skips();
        if quiet > 0 {
            let reason = format!(
                "{quiet} lines have no facts of their own; only the {MAX_LINES} busiest have"
            );
            skips.push(Skip::new("interrupts/*", reason));
        }
        skips
    }
}
