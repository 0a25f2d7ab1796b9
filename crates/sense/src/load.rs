//! `load`: load averages and the run queue, from `/proc/loadavg` (proc(5)).

use std::io;

use skopos_model::schema::{self, Family, Metric};

use crate::file::KernelFile;
use crate::{FactId, Root, Sensor, Skip, Tick, parse};

pub(crate) struct Load {
    file: KernelFile,
    facts: Option<[FactId; 5]>,
}

static METRICS: [&Metric; 5] = [
    &schema::load::LOAD_1M,
    &schema::load::LOAD_5M,
    &schema::load::LOAD_15M,
    &schema::load::RUNNABLE_TASKS,
    &schema::load::TASKS,
];

impl Load {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("loadavg"), "load")?;
        Ok(Self { file, facts: None })
    }
}

impl Sensor for Load {
    fn family(&self) -> &'static Family {
        &schema::load::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let facts =
            *self.facts.get_or_insert_with(|| METRICS.map(|m| tick.sink.register(m, "")));
        // "0.20 0.18 0.12 1/80 11206": three averages, runnable/existing, the last pid.
        let mut words = parse::words(self.file.read()?);
        for id in &facts[..3] {
            if let Some(average) = words.next().and_then(parse::f64) {
                tick.set(*id, average);
            }
        }
        if let Some((runnable, existing)) = words.next().and_then(|w| parse::split_once(w, b'/')) {
            for (id, word) in facts[3..].iter().zip([runnable, existing]) {
                if let Some(count) = parse::u64(word) {
                    tick.set(*id, count);
                }
            }
        }
        Ok(())
    }
}
