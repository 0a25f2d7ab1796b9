//! `raid`: software RAID arrays (md), from `/proc/mdstat` (md(4)).
//!
//! The failures that an array withstands follow from its level and the number of missing devices:
//!
//! | level | `copies` | failures that a whole array tolerates, whichever devices they hit |
//! |---|---|---|
//! | raid1 | devices | devices - 1 |
//! | raid10 | near x far or offset copies, from its line | copies - 1 |
//! | raid4, raid5 | 1 | 1 (parity) |
//! | raid6 | 1 | 2 |
//! | raid0, linear | 1 | 0 |
//!
//! `failures_tolerated` is this number less the devices that are missing or not in sync, but at
//! least 0. Levels without data of their own (container, multipath, faulty) have neither fact.

use std::io;
use std::time::Duration;

use skopos_model::Structured;
use skopos_model::schema::Family;
use skopos_model::schema::raid::{self, *};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most arrays with facts. md numbers them up to 511 unless they have names.
const MAX_ARRAYS: usize = 256;

/// A rebuild takes hours and a failed device stays failed, so twice a minute is often enough.
const INTERVAL: Duration = Duration::from_secs(30);

pub(crate) struct Raid {
    file: KernelFile,
    arrays: Instances<Level>,
}

/// The level's name as it is published, kept as long as it stays the same.
#[derive(Default)]
struct Level {
    name: Box<[u8]>,
    text: Option<Structured>,
}

/// One array of mdstat.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Array<'a> {
    pub(crate) name: &'a [u8],
    /// Empty while the array is not active.
    pub(crate) level: &'a [u8],
    /// KiB.
    blocks: Option<u64>,
    /// Devices of the whole array and those in sync: `[4/3]`.
    state: Option<(u64, u64)>,
    /// Listed devices that are neither failed nor spare.
    members: u64,
    failed: u64,
    spares: u64,
    /// Copies of a raid10.
    layout_copies: Option<u64>,
    sync_ratio: Option<f64>,
    /// KiB a second.
    sync_speed: Option<u64>,
}

impl Array<'_> {
    /// Returns the number of devices of the whole array. For levels without redundancy the kernel
    /// does not give it, and the members are counted.
    pub(crate) fn devices(&self) -> u64 {
        self.state.map_or(self.members, |(devices, _)| devices)
    }

    fn active(&self) -> u64 {
        self.state.map_or(self.members, |(_, active)| active)
    }

    fn degraded(&self) -> u64 {
        self.devices().saturating_sub(self.active())
    }

    /// Returns the number of copies of each block in the whole array.
    pub(crate) fn copies(&self) -> Option<u64> {
        match self.level {
            b"raid1" => Some(self.devices()),
            b"raid10" => self.layout_copies,
            b"raid0" | b"linear" | b"raid4" | b"raid5" | b"raid6" => Some(1),
            _ => None,
        }
    }

    /// Returns the number of further devices, whichever they are, that may fail now.
    pub(crate) fn failures_tolerated(&self) -> Option<u64> {
        let whole = match self.level {
            b"raid4" | b"raid5" => 1,
            b"raid6" => 2,
            b"raid0" | b"linear" => 0,
            _ => self.copies()?.saturating_sub(1),
        };
        Some(whole.saturating_sub(self.degraded()))
    }
}

impl Raid {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open(&root.proc.join("mdstat"))
            .map_err(|e| Skip::new("raid", format!("the kernel has no software RAID (md): {e}")))?;
        Ok(Self { file, arrays: Instances::new(&raid::FAMILY, MAX_ARRAYS) })
    }
}

impl Sensor for Raid {
    fn family(&self) -> &'static Family {
        &raid::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let text = self.file.read()?;
        let arrays = &mut self.arrays;
        arrays.begin();
        each(text, |array| {
            if let Some(instance) = arrays.see(tick.sink, array.name, Level::default) {
                set_facts(instance, tick, array);
            }
        });
        arrays.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn skips(&self) -> Vec<Skip> {
        self.arrays.skips()
    }
}

fn set_facts(instance: &mut Instance<Level>, tick: &mut Tick<'_>, array: &Array<'_>) {
    if *instance.state.name != *array.level {
        instance.state.name = array.level.into();
        instance.state.text = level_text(array.level);
    }
    match instance.state.text.take() {
        Some(text) => {
            instance.set_structured(tick, &LEVEL, &text);
            instance.state.text = Some(text);
        }
        None => instance.unset(tick, &LEVEL),
    }
    for (metric, value) in [
        (&SIZE_BYTES, array.blocks.and_then(|kib| kib.checked_mul(1024))),
        (&DEVICES, Some(array.devices())),
        (&ACTIVE, Some(array.active())),
        (&DEGRADED, Some(array.degraded())),
        (&FAILED, Some(array.failed)),
        (&SPARES, Some(array.spares)),
        (&COPIES, array.copies()),
        (&FAILURES_TOLERATED, array.failures_tolerated()),
    ] {
        instance.set_or_unset(tick, metric, value);
    }
    for (metric, value) in [
        (&SYNC_RATIO, array.sync_ratio),
        (&SYNC_BYTES_PER_SECOND, array.sync_speed.map(|kib| kib as f64 * 1024.0)),
    ] {
        instance.set_or_unset(tick, metric, value);
    }
}

fn level_text(level: &[u8]) -> Option<Structured> {
    let text = std::str::from_utf8(level).ok().filter(|text| !text.is_empty())?;
    Structured::new(text.into()).ok()
}

/// Calls `found` for each array in the text of mdstat.
pub(crate) fn each<'a>(text: &'a [u8], mut found: impl FnMut(&Array<'a>)) {
    let mut current: Option<Array<'a>> = None;
    for line in parse::lines(text) {
        if line[0] == b' ' || line[0] == b'\t' {
            if let Some(array) = &mut current {
                take_detail(array, line);
            }
            continue;
        }
        if let Some(array) = current.take() {
            found(&array);
        }
        current = head(line);
    }
    if let Some(array) = current {
        found(&array);
    }
}

/// "md0 : active (auto-read-only) raid5 sdc1[3] sdb1[1](F) sda1[0](S)".
fn head(line: &[u8]) -> Option<Array<'_>> {
    let mut words = parse::words(line);
    let name = words.next()?;
    if words.next()? != b":" || name == b"Personalities" {
        return None;
    }
    let mut array = Array { name, ..Array::default() };
    let is_active = words.next()? == b"active";
    for word in words {
        match word {
            [b'(', ..] => {}
            _ if word.contains(&b'[') => match word {
                [.., b'(', b'F', b')'] => array.failed += 1,
                [.., b'(', b'S', b')'] => array.spares += 1,
                _ => array.members += 1,
            },
            level if is_active && array.level.is_empty() => array.level = level,
            _ => {}
        }
    }
    Some(array)
}

/// Reads a line below the first:
/// "      1465151808 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/3] [UUU_]" or
/// "      [==>....]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec".
fn take_detail(array: &mut Array<'_>, line: &[u8]) {
    let mut before: &[u8] = b"";
    let mut copies: Option<u64> = None;
    for word in parse::words(line) {
        if word.starts_with(b"blocks") {
            array.blocks = parse::u64(before);
        } else if matches!(word, b"near-copies" | b"far-copies" | b"offset-copies") {
            // A layout may have both: two near copies and two far ones are four.
            let more = parse::u64(before).filter(|&n| n > 0);
            copies = more.and_then(|more| copies.unwrap_or(1).checked_mul(more));
        } else if let Some(state) = devices_and_active(word) {
            array.state = Some(state);
        } else if let Some(percent) = word.strip_suffix(b"%") {
            let percent = percent.strip_prefix(b"=").unwrap_or(percent);
            array.sync_ratio = parse::f64(percent).map(|p| (p / 100.0).clamp(0.0, 1.0));
        } else if let Some(speed) = word.strip_prefix(b"speed=") {
            array.sync_speed = speed.strip_suffix(b"K/sec").and_then(parse::u64);
        }
        before = word;
    }
    array.layout_copies = array.layout_copies.or(copies);
}

/// Reads "[4/3]". Returns `None` if the numbers are impossible.
fn devices_and_active(word: &[u8]) -> Option<(u64, u64)> {
    let inside = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let (devices, active) = parse::split_once(inside, b'/')?;
    let (devices, active) = (parse::u64(devices)?, parse::u64(active)?);
    (active <= devices).then_some((devices, active))
}
