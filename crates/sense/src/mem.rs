//! `mem`: physical memory, from `/proc/meminfo` (Documentation/filesystems/proc.rst, "meminfo").

use std::io;

use skopos_model::schema::{self, Family, Metric};

use crate::file::KernelFile;
use crate::{FactId, Root, Sensor, Skip, Tick, parse};

pub(crate) struct Mem {
    file: KernelFile,
    facts: Option<[FactId; FIELDS.len()]>,
}

/// The kernel's name of each line, and the metric that it feeds.
static FIELDS: [(&[u8], &Metric); 3] = [
    (b"MemTotal", &schema::mem::TOTAL_BYTES),
    (b"MemFree", &schema::mem::FREE_BYTES),
    (b"MemAvailable", &schema::mem::AVAILABLE_BYTES),
];

impl Mem {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("meminfo"), "mem")?;
        Ok(Self { file, facts: None })
    }
}

impl Sensor for Mem {
    fn family(&self) -> &'static Family {
        &schema::mem::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let facts =
            *self.facts.get_or_insert_with(|| FIELDS.map(|(_, m)| tick.sink.register(m, "")));
        for line in parse::lines(self.file.read()?) {
            let Some((name, rest)) = parse::split_once(line, b':') else { continue };
            let Some(at) = FIELDS.iter().position(|(field, _)| *field == name) else { continue };
            if let Some(kib) = parse::words(rest).next().and_then(parse::u64) {
                tick.set(facts[at], kib * 1024);
            }
        }
        Ok(())
    }
}
