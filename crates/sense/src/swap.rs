//! `swap`: swap areas from `/proc/swaps`, and the pages that were swapped from `/proc/vmstat`
//! (proc(5)).
//!
//! `used_ratio = used / size`. Without an area nothing can be swapped, so `/proc/vmstat`, which
//! takes the kernel long to make, is read only while there is an area.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::swap::{self, *};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::table::{Field, Keyed, plain};

/// The kernel has at most 32 areas, some of them reserved.
const MAX_AREAS: usize = 32;

static FIELDS: [Field; 2] = [plain("pswpin", &IN_BYTES_TOTAL), plain("pswpout", &OUT_BYTES_TOTAL)];

pub(crate) struct Swap {
    swaps: KernelFile,
    vmstat: KernelFile,
    pages: Keyed,
    page_bytes: u64,
    areas: Instances<()>,
    name: Vec<u8>,
}

impl Swap {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            swaps: KernelFile::open_or_skip(&root.proc.join("swaps"), "swap")?,
            vmstat: KernelFile::open_or_skip(&root.proc.join("vmstat"), "swap")?,
            pages: Keyed::new(&FIELDS),
            page_bytes: rustix::param::page_size() as u64,
            areas: Instances::new(&swap::FAMILY, MAX_AREAS + 1),
            name: Vec::new(),
        })
    }

    fn poll_areas(&mut self, tick: &mut Tick<'_>) -> io::Result<bool> {
        let mut total = (0u64, 0u64);
        let mut any = false;
        // "Filename Type Size Used Priority", sizes in KiB.
        for line in parse::lines(self.swaps.read()?).skip(1) {
            let mut words = parse::words(line);
            let (Some(file), Some(_kind)) = (words.next(), words.next()) else { continue };
            let (Some(size), Some(used)) = (next_kib(&mut words), next_kib(&mut words)) else {
                continue;
            };
            any = true;
            total = (total.0.saturating_add(size), total.1.saturating_add(used));
            self.name.clear();
            parse::unescape_octal(file, &mut self.name);
            let label = self.name.strip_prefix(b"/dev/").unwrap_or(&self.name);
            if let Some(area) = self.areas.see_as(tick.sink, &self.name, label, || ()) {
                set_sizes(area, tick, size, used);
                if let Some(priority) = words.next().and_then(parse::i64) {
                    area.set(tick, &PRIORITY, priority);
                }
            }
        }
        if let Some(node) = self.areas.see(tick.sink, b"total", || ()) {
            set_sizes(node, tick, total.0, total.1);
        }
        Ok(any)
    }

    fn poll_traffic(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.pages.take(self.vmstat.read()?, b"");
        let Some(node) = self.areas.see(tick.sink, b"total", || ()) else { return Ok(()) };
        for field in &FIELDS {
            let pages = self.pages.get(field.name);
            if let Some(bytes) = pages.and_then(|n| n.checked_mul(self.page_bytes)) {
                node.set(tick, field.metric, bytes);
            }
        }
        Ok(())
    }
}

impl Sensor for Swap {
    fn family(&self) -> &'static Family {
        &swap::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.areas.begin();
        let any = self.poll_areas(tick)?;
        let outcome = if any { self.poll_traffic(tick) } else { Ok(()) };
        self.areas.end(tick.sink);
        outcome
    }

    fn skips(&self) -> Vec<Skip> {
        self.areas.skips()
    }
}

fn next_kib<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    words.next().and_then(parse::u64)?.checked_mul(1024)
}

fn set_sizes(area: &mut Instance<()>, tick: &mut Tick<'_>, size: u64, used: u64) {
    area.set(tick, &SIZE_BYTES, size);
    area.set(tick, &USED_BYTES, used);
    if size > 0 {
        area.set(tick, &USED_RATIO, used as f64 / size as f64);
    }
}
