//! `psi`: pressure stall information, from `/proc/pressure/*` (Documentation/accounting/psi.rst).
//!
//! A line is `some avg10=0.13 avg60=0.21 avg300=0.20 total=2247431`: percentages, and microseconds.

use std::io;

use skopos_model::schema::psi::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// Every resource that the kernel knows; `irq` since 6.1 and only if built in.
static RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];

/// The names of the averages, in the order of the facts of a line.
const AVERAGES: [&[u8]; 3] = [b"avg10", b"avg60", b"avg300"];

/// The facts of a line by its first word: the averages, and the total.
static LINES: [(&[u8], [&Metric; 3], &Metric); 2] = [
    (
        b"some",
        [&SOME_AVG10_RATIO, &SOME_AVG60_RATIO, &SOME_AVG300_RATIO],
        &SOME_STALL_SECONDS_TOTAL,
    ),
    (
        b"full",
        [&FULL_AVG10_RATIO, &FULL_AVG60_RATIO, &FULL_AVG300_RATIO],
        &FULL_STALL_SECONDS_TOTAL,
    ),
];

pub(crate) struct Psi {
    resources: Vec<Resource>,
    skips: Vec<Skip>,
}

struct Resource {
    file: KernelFile,
    facts: Facts,
}

impl Psi {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let mut resources = Vec::new();
        let mut skips = Vec::new();
        for name in RESOURCES {
            let path = root.proc.join("pressure").join(name);
            // A kernel started with `psi=0` has the files but refuses to read them.
            let opened = KernelFile::open(&path).and_then(|mut file| {
                file.read_record()?;
                Ok(file)
            });
            match opened {
                Ok(file) => {
                    resources.push(Resource { file, facts: Facts::of(&psi::FAMILY, name) });
                }
                Err(e) => {
                    skips
                        .push(Skip::new(format!("psi/{name}"), format!("{}: {e}", path.display())));
                }
            }
        }
        if resources.is_empty() {
            let reason = skips.swap_remove(0).reason;
            return Err(Skip::new("psi", format!("{reason}; kernel option `psi=1` turns it on")));
        }
        Ok(Self { resources, skips })
    }
}

impl Sensor for Psi {
    fn family(&self) -> &'static Family {
        &psi::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let mut outcome = Ok(());
        for Resource { file, facts } in &mut self.resources {
            match file.read_record() {
                Ok(text) => parse::lines(text).for_each(|line| set_line(facts, tick, line)),
                Err(e) => outcome = Err(e),
            }
        }
        outcome
    }

    fn skips(&self) -> Vec<Skip> {
        self.skips.clone()
    }
}

fn set_line(facts: &mut Facts, tick: &mut Tick<'_>, line: &[u8]) {
    let mut words = parse::words(line);
    let kind = words.next();
    let Some((kind, averages, total)) = LINES.iter().find(|(name, ..)| Some(*name) == kind) else {
        return;
    };
    // The kernel keeps this line only for programs that expect it.
    if *kind == b"full" && facts.instance() == "cpu" {
        return;
    }
    for word in words {
        match parse::split_once(word, b'=') {
            Some((b"total", micros)) => {
                if let Some(micros) = parse::u64(micros) {
                    facts.set(tick, total, micros as f64 / 1e6);
                }
            }
            Some((name, percent)) => {
                let average = AVERAGES.iter().zip(averages).find(|(known, _)| **known == name);
                if let (Some((_, metric)), Some(percent)) = (average, parse::f64(percent)) {
                    facts.set(tick, metric, percent / 100.0);
                }
            }
            None => {}
        }
    }
}
