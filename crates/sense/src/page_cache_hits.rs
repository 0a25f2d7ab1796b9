//! `page_cache_hits`: the pages that programs ask the page cache for, and those that had to be read into it, by file
//! system. BPF programs count them (`bpf/page_cache_hits.bpf.c`).
//!
//! - *Requested* are pages of `read` and its like (tracepoint `mm_filemap_get_pages`), a page each time it is asked for.
//! - *Faulted* are accesses to mapped files that the kernel had to handle one by one (`mm_filemap_fault`). Accesses to
//!   pages that are mapped already, or that are mapped along with a neighbour, are seen by no kernel code.
//! - *Added* are pages that came into the cache (`mm_filemap_add_to_page_cache`), *written* those of them that a write
//!   made at once (`writeback_dirty_folio` of the page that the same core added last); the rest was *read* from the device.
//!
//! The hit ratio is 1 − read / (requested + faulted). Pages that read-ahead brings count as read when they come, so a file
//! that is read once from start to end has a ratio near 0, though its reader found most pages in the cache. File systems
//! without pages of files in the page cache of Linux (ZFS, tmpfs) and reads past it (`O_DIRECT`) are not seen.
//!
//! A page costs about 50 ns, so the family is off unless [`HostSettings`](crate::HostSettings) switch it on.

use std::io;

use skopos_bpf::{At, Loaded, Program};
use skopos_model::schema::page_cache_hits::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::KernelFile;
use crate::in_kernel;
use crate::instances::Instances;
use crate::mounts;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::slots::{SLOTS, Slots};

/// Compiled from `bpf/page_cache_hits.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/page_cache_hits.bpf.o"));

const PROGRAMS: [Program<'static>; 4] = [
    Program { name: "requested", at: At::Typed("mm_filemap_get_pages") },
    Program { name: "faulted", at: At::Typed("mm_filemap_fault") },
    Program { name: "added", at: At::Typed("mm_filemap_add_to_page_cache") },
    Program { name: "dirtied", at: At::Typed("writeback_dirty_folio") },
];

/// Words of a slot, in pages.
const REQUESTED: usize = 0;
const FAULTED: usize = 1;
const ADDED: usize = 2;
const WRITTEN: usize = 3;
const WORDS: usize = 4;

static TOTALS: [&Metric; WORDS] =
    [&REQUESTED_BYTES_TOTAL, &FAULTED_BYTES_TOTAL, &ADDED_BYTES_TOTAL, &WRITTEN_BYTES_TOTAL];

/// The file system in a slot.
struct FileSystem {
    number: u32,
    /// The folder at which it is mounted; `None` if it is not mounted where this process sees it.
    point: Option<Vec<u8>>,
    last: [u32; WORDS],
    pages: [u64; WORDS],
}

pub(crate) struct PageCacheHits {
    /// Keeps the programs attached.
    _programs: Loaded,
    slots: Slots,
    file_systems: [Option<FileSystem>; SLOTS],
    facts: Instances<()>,
    mountinfo: KernelFile,
    /// File systems at the last read of the mounts: number and mount point.
    mounted: Vec<(u32, Vec<u8>)>,
    page_bytes: u64,
}

impl PageCacheHits {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let open = || {
            if !root.page_cache_hits {
                return Err("it is off, for it costs about 50 ns a page".to_owned());
            }
            let mut programs = in_kernel::open(root, OBJECT, &PROGRAMS, &[])?;
            let mountinfo = KernelFile::open(&root.proc.join("self/mountinfo"));
            let mut opened = Self {
                slots: Slots::new(programs.memory("SHARE").map_err(|e| e.to_string())?)?,
                _programs: programs,
                file_systems: [const { None }; SLOTS],
                facts: Instances::new(&page_cache_hits::FAMILY, SLOTS),
                mountinfo: mountinfo.map_err(|e| format!("/proc/self/mountinfo: {e}"))?,
                mounted: Vec::new(),
                page_bytes: rustix::param::page_size() as u64,
            };
            opened.read_mounts().map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
            Ok(opened)
        };
        open().map_err(|reason: String| {
            let instead = "`vmstat` has paging of the whole node";
            Skip::new("page_cache_hits", format!("{reason}; {instead}"))
        })
    }

    /// Reads the mounts, and frees the slots of file systems that are mounted elsewhere than before, or nowhere.
    fn read_mounts(&mut self) -> io::Result<()> {
        self.mounted = mounted(self.mountinfo.read()?);
        for (slot, known) in self.file_systems.iter_mut().enumerate() {
            let point = known.as_ref().and_then(|f| point_of(&self.mounted, f.number));
            if known.as_ref().is_some_and(|file_system| file_system.point != point) {
                *known = None;
                self.slots.free(slot);
            }
        }
        Ok(())
    }
}

impl FileSystem {
    /// Takes the counts of a file system that is not mounted where this process sees it. Returns true if its slot is
    /// not needed: it has no facts, and had no page since the last poll. It gets a slot again with its next page.
    fn is_left(&mut self, words: [u32; WORDS]) -> bool {
        if self.point.is_some() {
            return false;
        }
        std::mem::replace(&mut self.last, words) == words
    }
}

/// Returns number and mount point of each file system: of its root folder if that is mounted, and the shortest one.
fn mounted(text: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut mounts = mounts::visible(text);
    mounts.sort_by_key(|mount| (mount.root != b"/", mount.point.len()));
    let mut found: Vec<(u32, Vec<u8>)> = Vec::new();
    for mount in mounts {
        let Some(number) = number_of(mount.device) else { continue };
        if point_of(&found, number).is_none() {
            found.push((number, mount.point));
        }
    }
    found
}

/// Returns the kernel's own dev_t of `MAJOR:MINOR`.
fn number_of(device: &[u8]) -> Option<u32> {
    let (major, minor) = crate::parse::split_once(device, b':')?;
    let number = crate::parse::u64(major)?.checked_mul(1 << 20)?;
    u32::try_from(number.checked_add(crate::parse::u64(minor)?)?).ok()
}

fn point_of(mounted: &[(u32, Vec<u8>)], number: u32) -> Option<Vec<u8>> {
    mounted.iter().find(|(known, _)| *known == number).map(|(_, point)| point.clone())
}

/// Returns the part of the requested pages that was in the cache; `None` if none was requested.
fn hit_ratio(grown: &[u32; WORDS]) -> Option<f64> {
    let asked = f64::from(grown[REQUESTED]) + f64::from(grown[FAULTED]);
    let read = f64::from(grown[ADDED].saturating_sub(grown[WRITTEN]));
    (asked > 0.0).then(|| (1.0 - read / asked).max(0.0))
}

impl Sensor for PageCacheHits {
    fn family(&self) -> &'static Family {
        &page_cache_hits::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if mounts::changed(&self.mountinfo)? {
            self.read_mounts()?;
        }
        let Self { slots, file_systems, facts, mounted, page_bytes, .. } = self;
        facts.begin();
        for (slot, known) in file_systems.iter_mut().enumerate() {
            let Some(number) = slots.number(slot) else { continue };
            let file_system = match known {
                Some(file_system) if file_system.number == number => file_system,
                _ => known.insert(FileSystem {
                    number,
                    point: point_of(mounted, number),
                    last: [0; WORDS],
                    pages: [0; WORDS],
                }),
            };
            if file_system.is_left(std::array::from_fn(|word| slots.word(slot, word))) {
                *known = None;
                slots.free(slot);
                continue;
            }
            let Some(point) = &file_system.point else { continue };
            let Some(facts) = facts.see(tick.sink, point, || ()) else { continue };
            let mut grown = [0; WORDS];
            for (word, metric) in TOTALS.iter().enumerate() {
                let now = slots.word(slot, word);
                grown[word] = now.wrapping_sub(std::mem::replace(&mut file_system.last[word], now));
                file_system.pages[word] += u64::from(grown[word]);
                facts.set(tick, metric, file_system.pages[word].saturating_mul(*page_bytes));
            }
            if let Some(ratio) = hit_ratio(&grown) {
                facts.set(tick, &HIT_RATIO, ratio);
            }
        }
        facts.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let skips = self.slots.skips("page_cache_hits", "file systems").into_iter();
        skips.chain(self.facts.skips()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_pages_that_were_asked_for_and_read() {
        for (grown, expected) in [
            ([100, 0, 0, 0], Some(1.0)),
            ([100, 0, 25, 0], Some(0.75)),
            ([60, 40, 50, 25], Some(0.75)),
            // Read-ahead of pages that are never asked for.
            ([10, 0, 32, 0], Some(0.0)),
            // Only writes.
            ([0, 0, 32, 32], None),
            // A page that was added before the interval is written in it.
            ([10, 0, 0, 1], Some(1.0)),
        ] {
            assert_eq!(hit_ratio(&grown), expected, "{grown:?}");
        }
    }

    #[test]
    fn a_file_system_that_is_gone_or_idle_elsewhere_gives_its_slot_back() {
        let mut gone = FileSystem { number: 7, point: None, last: [0; WORDS], pages: [0; WORDS] };
        assert!(!gone.is_left([5, 0, 5, 0]), "its pages came since the last poll");
        assert!(!gone.is_left([5, 0, 5, 1]));
        assert!(gone.is_left([5, 0, 5, 1]));
        let mut mounted = FileSystem { point: Some(b"/m".to_vec()), ..gone };
        assert!(!mounted.is_left([5, 0, 5, 1]), "an idle one keeps its facts");
    }

    #[test]
    fn a_file_system_has_the_mount_point_of_its_root() {
        let text =
            b"1 0 254:0 /a /b rw - ext4 /dev/vda rw\n2 0 254:0 / /long rw - ext4 /dev/vda rw\n\
            3 0 0:40 / /n rw - nfs4 s:/ rw\n4 0 x:1 / /m rw - ext4 /dev/vdb rw\n";
        let mut found = mounted(text);
        found.sort();
        assert_eq!(found, [(40, b"/n".to_vec()), (254 << 20, b"/long".to_vec())]);
    }
}
