//! `numa`: memory of the NUMA nodes, from `/sys/devices/system/node/nodeN/meminfo` and `numastat`
//! (Documentation/admin-guide/numastat.rst).
//!
//! The `meminfo` of a machine with one node repeats `/proc/meminfo`, which the family `mem` has: it
//! is not read.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::numa::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::table::{Field, Keyed, kib, plain};

/// The most nodes with facts. x86 kernels are built for at most 1,024; machines on sale have 32.
const MAX_NODES: usize = 64;

static MEMINFO: [Field; 10] = [
    kib("MemTotal", &TOTAL_BYTES),
    kib("MemFree", &FREE_BYTES),
    kib("MemUsed", &USED_BYTES),
    kib("FilePages", &FILE_BYTES),
    kib("AnonPages", &ANONYMOUS_BYTES),
    kib("Shmem", &SHARED_BYTES),
    kib("Slab", &SLAB_BYTES),
    kib("Dirty", &DIRTY_BYTES),
    plain("HugePages_Total", &HUGE_PAGES),
    plain("HugePages_Free", &HUGE_PAGES_FREE),
];

static NUMASTAT: [Field; 6] = [
    plain("numa_hit", &HITS_TOTAL),
    plain("numa_miss", &MISSES_TOTAL),
    plain("numa_foreign", &FOREIGN_TOTAL),
    plain("interleave_hit", &INTERLEAVE_HITS_TOTAL),
    plain("local_node", &LOCAL_TOTAL),
    plain("other_node", &REMOTE_TOTAL),
];

pub(crate) struct Numa {
    /// Listed when the sensor is opened. Memory that is plugged in later counts after a restart.
    nodes: Vec<Node>,
    left_out: usize,
}

struct Node {
    /// "Node 0 ", before each line of its `meminfo`.
    prefix: Vec<u8>,
    /// Absent if the machine has no other node.
    meminfo: Option<(KernelFile, Keyed)>,
    /// Absent in kernels without CONFIG_NUMA.
    numastat: Option<(KernelFile, Keyed)>,
    facts: Facts,
}

impl Numa {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let folder = root.sys.join("devices/system/node");
        let entries = std::fs::read_dir(&folder)
            .map_err(|e| Skip::new("numa", format!("{}: {e}", folder.display())))?;
        let mut numbers: Vec<u64> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                parse::u64(name.as_encoded_bytes().strip_prefix(b"node")?)
            })
            .collect();
        numbers.sort_unstable();
        let has_others = numbers.len() > 1;
        let mut nodes: Vec<Node> = numbers
            .into_iter()
            .filter_map(|number| {
                let file = |name| KernelFile::open(&folder.join(format!("node{number}/{name}")));
                let meminfo = file("meminfo").ok()?;
                Some(Node {
                    prefix: format!("Node {number} ").into(),
                    meminfo: has_others.then(|| (meminfo, Keyed::new(&MEMINFO))),
                    numastat: file("numastat").ok().map(|f| (f, Keyed::new(&NUMASTAT))),
                    facts: Facts::of(&numa::FAMILY, &number.to_string()),
                })
            })
            .collect();
        let left_out = nodes.len().saturating_sub(MAX_NODES);
        nodes.truncate(MAX_NODES);
        match nodes.is_empty() {
            true => Err(Skip::new("numa", format!("{}: no nodes", folder.display()))),
            false => Ok(Self { nodes, left_out }),
        }
    }
}

impl Sensor for Numa {
    fn family(&self) -> &'static Family {
        &numa::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        for Node { prefix, meminfo, numastat, facts } in &mut self.nodes {
            if let Some((file, table)) = meminfo {
                table.take(file.read_record()?, prefix);
                table.hand_over(facts, tick);
            }
            if let Some((file, table)) = numastat {
                table.take(file.read_record()?, b"");
                table.hand_over(facts, tick);
            }
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        if self.nodes.iter().all(|node| node.meminfo.is_none()) {
            let reason = "one NUMA node, whose memory is that of the machine: see the family `mem`";
            return ["numa/*/*_bytes", "numa/*/huge_pages*"].map(|w| Skip::new(w, reason)).into();
        }
        match self.left_out {
            0 => Vec::new(),
            n => vec![Skip::new("numa/*", format!("{n} nodes beyond the first {MAX_NODES}"))],
        }
    }
}
