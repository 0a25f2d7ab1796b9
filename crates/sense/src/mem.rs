//! `mem`: physical memory, from `/proc/meminfo` (Documentation/filesystems/proc.rst, "meminfo").
//!
//! `used_ratio = 1 - MemAvailable / MemTotal`, so page cache that can be dropped counts as free.
//! Kernels before 3.14 do not have `MemAvailable`, so the ratio is absent there.

use std::io;

use skopos_model::schema::mem::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::table::{Field, Keyed, kib, plain};

pub(crate) struct Mem {
    file: KernelFile,
    table: Keyed,
    facts: Facts,
}

static FIELDS: [Field; 32] = [
    kib("MemTotal", &TOTAL_BYTES),
    kib("MemFree", &FREE_BYTES),
    kib("MemAvailable", &AVAILABLE_BYTES),
    kib("Buffers", &BUFFERS_BYTES),
    kib("Cached", &CACHED_BYTES),
    kib("SwapCached", &SWAP_CACHED_BYTES),
    kib("Active", &ACTIVE_BYTES),
    kib("Inactive", &INACTIVE_BYTES),
    kib("Unevictable", &UNEVICTABLE_BYTES),
    kib("Mlocked", &MLOCKED_BYTES),
    kib("Dirty", &DIRTY_BYTES),
    kib("Writeback", &WRITEBACK_BYTES),
    kib("AnonPages", &ANONYMOUS_BYTES),
    kib("Mapped", &MAPPED_BYTES),
    kib("Shmem", &SHARED_BYTES),
    kib("Slab", &SLAB_BYTES),
    kib("SReclaimable", &SLAB_RECLAIMABLE_BYTES),
    kib("SUnreclaim", &SLAB_UNRECLAIMABLE_BYTES),
    kib("KernelStack", &KERNEL_STACK_BYTES),
    kib("PageTables", &PAGE_TABLE_BYTES),
    kib("Percpu", &PER_CPU_BYTES),
    kib("VmallocUsed", &VMALLOC_USED_BYTES),
    kib("CommitLimit", &COMMIT_LIMIT_BYTES),
    kib("Committed_AS", &COMMITTED_BYTES),
    kib("HardwareCorrupted", &CORRUPTED_BYTES),
    kib("AnonHugePages", &ANONYMOUS_HUGE_BYTES),
    plain("HugePages_Total", &HUGE_PAGES),
    plain("HugePages_Free", &HUGE_PAGES_FREE),
    plain("HugePages_Rsvd", &HUGE_PAGES_RESERVED),
    plain("HugePages_Surp", &HUGE_PAGES_SURPLUS),
    kib("Hugepagesize", &HUGE_PAGE_SIZE_BYTES),
    kib("Hugetlb", &HUGE_PAGE_BYTES),
];

impl Mem {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("meminfo"), "mem")?;
        Ok(Self { file, table: Keyed::new(&FIELDS), facts: Facts::of_node(&mem::FAMILY) })
    }
}

impl Sensor for Mem {
    fn family(&self) -> &'static Family {
        &mem::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.table.take(self.file.read_record()?, b"");
        self.table.hand_over(&mut self.facts, tick);
        if let (Some(total), Some(available)) =
            (self.table.get(b"MemTotal"), self.table.get(b"MemAvailable"))
            && available <= total
            && total > 0
        {
            let used_ratio: &'static Metric = &USED_RATIO;
            self.facts.set(tick, used_ratio, 1.0 - available as f64 / total as f64);
        }
        Ok(())
    }
}
