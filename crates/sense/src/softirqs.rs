//! `softirqs`: deferred interrupt work by type, from `/proc/softirqs` (proc(5)).

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::softirqs::{self, *};

use crate::file::KernelFile;
use crate::instances::Instances;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The kernel has ten types; the word in which it marks the pending ones has room for 32.
const MAX_TYPES: usize = 32;

pub(crate) struct Softirqs {
    file: KernelFile,
    types: Instances<()>,
    name: Vec<u8>,
}

impl Softirqs {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            file: KernelFile::open_or_skip(&root.proc.join("softirqs"), "softirqs")?,
            types: Instances::new(&softirqs::FAMILY, MAX_TYPES),
            name: Vec::new(),
        })
    }
}

impl Sensor for Softirqs {
    fn family(&self) -> &'static Family {
        &softirqs::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.types.begin();
        // A line of cores, then "NET_RX: 2220 2675" for each type.
        for line in parse::lines(self.file.read_record()?) {
            let Some((name, counts)) = parse::split_once(line, b':') else { continue };
            self.name.clear();
            self.name.extend(parse::trim(name).iter().map(u8::to_ascii_lowercase));
            if let Some(of_type) = self.types.see(tick.sink, &self.name, || ()) {
                let sum = parse::numbers(counts).fold(0, u64::wrapping_add);
                of_type.set(tick, &HANDLED_TOTAL, sum);
            }
        }
        self.types.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.types.skips()
    }
}
