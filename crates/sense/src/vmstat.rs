//! `vmstat`: the work of the memory manager, from `/proc/vmstat`.
//!
//! The kernel does not document these lines; their meaning is in `mm/vmstat.c`. Lines that are
//! split by memory zone are summed. Kernels before 4.8 split more of them, and yield fewer facts.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::vmstat::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::table::{Field, Keyed, kib, plain};

pub(crate) struct Vmstat {
    file: KernelFile,
    table: Keyed,
    facts: Facts,
}

static FIELDS: [Field; 40] = [
    plain("pgfault", &PAGE_FAULTS_TOTAL),
    plain("pgmajfault", &PAGE_FAULTS_MAJOR_TOTAL),
    kib("pgpgin", &PAGED_IN_BYTES_TOTAL),
    kib("pgpgout", &PAGED_OUT_BYTES_TOTAL),
    plain("nr_dirtied", &DIRTIED_PAGES_TOTAL),
    plain("nr_written", &WRITTEN_PAGES_TOTAL),
    plain("pgalloc_dma", &ALLOCATED_PAGES_TOTAL),
    plain("pgalloc_dma32", &ALLOCATED_PAGES_TOTAL),
    plain("pgalloc_normal", &ALLOCATED_PAGES_TOTAL),
    plain("pgalloc_movable", &ALLOCATED_PAGES_TOTAL),
    plain("pgalloc_device", &ALLOCATED_PAGES_TOTAL),
    plain("pgfree", &FREED_PAGES_TOTAL),
    plain("allocstall", &ALLOCATION_STALLS_TOTAL),
    plain("allocstall_dma", &ALLOCATION_STALLS_TOTAL),
    plain("allocstall_dma32", &ALLOCATION_STALLS_TOTAL),
    plain("allocstall_normal", &ALLOCATION_STALLS_TOTAL),
    plain("allocstall_movable", &ALLOCATION_STALLS_TOTAL),
    plain("allocstall_device", &ALLOCATION_STALLS_TOTAL),
    plain("pgscan_kswapd", &SCANNED_PAGES_KSWAPD_TOTAL),
    plain("pgscan_direct", &SCANNED_PAGES_DIRECT_TOTAL),
    plain("pgsteal_kswapd", &RECLAIMED_PAGES_KSWAPD_TOTAL),
    plain("pgsteal_direct", &RECLAIMED_PAGES_DIRECT_TOTAL),
    plain("workingset_refault_anon", &REFAULTED_PAGES_ANONYMOUS_TOTAL),
    plain("workingset_refault_file", &REFAULTED_PAGES_FILE_TOTAL),
    plain("workingset_refault", &REFAULTED_PAGES_FILE_TOTAL),
    plain("slabs_scanned", &SCANNED_SLAB_OBJECTS_TOTAL),
    plain("oom_kill", &OOM_KILLS_TOTAL),
    plain("pgmigrate_success", &MIGRATED_PAGES_TOTAL),
    plain("numa_pages_migrated", &NUMA_MIGRATED_PAGES_TOTAL),
    plain("numa_hint_faults", &NUMA_HINT_FAULTS_TOTAL),
    plain("compact_stall", &COMPACTION_STALLS_TOTAL),
    plain("compact_success", &COMPACTION_SUCCESSES_TOTAL),
    plain("compact_fail", &COMPACTION_FAILURES_TOTAL),
    plain("thp_fault_alloc", &THP_FAULT_ALLOCATIONS_TOTAL),
    plain("thp_fault_fallback", &THP_FAULT_FALLBACKS_TOTAL),
    plain("thp_collapse_alloc", &THP_COLLAPSES_TOTAL),
    plain("thp_split_page", &THP_SPLITS_TOTAL),
    plain("thp_split", &THP_SPLITS_TOTAL),
    plain("thp_zero_page_alloc", &THP_ZERO_PAGE_ALLOCATIONS_TOTAL),
    plain("drop_pagecache", &PAGE_CACHE_DROPS_TOTAL),
];

impl Vmstat {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("vmstat"), "vmstat")?;
        Ok(Self { file, table: Keyed::new(&FIELDS), facts: Facts::of_node(&vmstat::FAMILY) })
    }
}

impl Sensor for Vmstat {
    fn family(&self) -> &'static Family {
        &vmstat::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.table.take(self.file.read()?, b"");
        self.table.hand_over(&mut self.facts, tick);
        Ok(())
    }
}
