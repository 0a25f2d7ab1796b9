//! `softirqs`: deferred interrupt work by type, from the line `softirq` of `/proc/stat` (proc(5)).
//!
//! The line has a sum over all cores for each type, in the order of the lines of `/proc/softirqs`,
//! from which the names are.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::softirqs::{self, *};

use crate::file::KernelFile;
use crate::instances::Instances;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::shared::{Shareable, SharedFile};

/// The kernel has ten types; the word in which it marks the pending ones has room for 32.
const MAX_TYPES: usize = 32;

pub(crate) struct Softirqs {
    /// Shared with `cpu` and `interrupts`.
    stat: SharedFile,
    types: Instances<()>,
    /// The names of the types, in the kernel's order.
    names: Vec<Vec<u8>>,
}

impl Softirqs {
    pub(crate) fn open(root: &Root, stat: &mut Shareable) -> Result<Self, Skip> {
        let mut file = KernelFile::open_or_skip(&root.proc.join("softirqs"), "softirqs")?;
        let mut names = Vec::new();
        // A line of cores, then "NET_RX: 2220 2675" for each type.
        let take = |line: &[u8]| {
            if let Some((name, _)) = parse::split_once(line, b':') {
                names.push(parse::trim(name).to_ascii_lowercase());
            }
        };
        file.read_lines(take).map_err(|e| Skip::new("softirqs", format!("/proc/softirqs: {e}")))?;
        Ok(Self {
            stat: stat.open_or_skip("softirqs")?,
            types: Instances::new(&softirqs::FAMILY, MAX_TYPES),
            names,
        })
    }
}

impl Sensor for Softirqs {
    fn family(&self) -> &'static Family {
        &softirqs::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { stat, types, names } = self;
        stat.with(tick.monotonic, |text| {
            types.begin();
            // "softirq 127833 0 12236 4 ...": all types together, then each.
            let line = parse::lines(text).find_map(|line| line.strip_prefix(b"softirq "));
            let sums = line.into_iter().flat_map(parse::numbers).skip(1);
            for (name, sum) in names.iter().zip(sums) {
                if let Some(of_type) = types.see(tick.sink, name, || ()) {
                    of_type.set(tick, &HANDLED_TOTAL, sum);
                }
            }
            types.end(tick.sink);
        })
    }

    fn skips(&self) -> Vec<Skip> {
        self.types.skips()
    }
}
