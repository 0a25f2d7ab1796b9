//! `load`: load averages and the run queue, from `/proc/loadavg` (proc(5)).

use std::io;

use skopos_model::schema::{self, Family, Metric};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

pub(crate) struct Load {
    file: KernelFile,
    facts: Facts,
}

static AVERAGES: [&Metric; 3] =
    [&schema::load::LOAD_1M, &schema::load::LOAD_5M, &schema::load::LOAD_15M];

static TASKS: [&Metric; 2] = [&schema::load::RUNNABLE_TASKS, &schema::load::TASKS];

impl Load {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("loadavg"), "load")?;
        Ok(Self { file, facts: Facts::of_node(&schema::load::FAMILY) })
    }
}

impl Sensor for Load {
    fn family(&self) -> &'static Family {
        &schema::load::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        // "0.20 0.18 0.12 1/80 11206": three averages, runnable/existing, the last pid.
        let Some(line) = parse::lines(self.file.read_record()?).next() else { return Ok(()) };
        let mut words = parse::words(line);
        for metric in AVERAGES {
            if let Some(average) = words.next().and_then(parse::f64) {
                self.facts.set(tick, metric, average);
            }
        }
        if let Some((runnable, existing)) = words.next().and_then(|w| parse::split_once(w, b'/')) {
            for (metric, word) in TASKS.into_iter().zip([runnable, existing]) {
                if let Some(count) = parse::u64(word) {
                    self.facts.set(tick, metric, count);
                }
            }
        }
        Ok(())
    }
}
