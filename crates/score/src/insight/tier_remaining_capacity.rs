//! Tier remaining capacity (Table 1, row 10): how much more data a tier of storage can take.
//!
//! ```text
//! RemainingCapacity = Σ (DeviceCapacity_i - CapacityUsed_i), over the devices of the tier
//! ```
//!
//! Devices are file systems here, since those are what data is placed on. What root has reserved for
//! itself nobody else can fill, so it is no capacity: `DeviceCapacity - CapacityUsed` is
//! `available_bytes`, and 0 of one that is mounted read-only. Each file system counts once. Those in
//! memory (tmpfs, ramfs) have limits that say nothing of each other: together they have no more than
//! what memory is available.
//!
//! Which file systems make a tier is told by the `tiers` file (`docs/tiers.md`). Without one they are
//! grouped by the kind of device that holds them (`nvme`, `ssd`, `hdd`, ...), those in memory as
//! `memory`; what lies on a loop device is space of another file system and does not count again.
//!
//! Bytes. Unknown if a mount of the file is not there, since the sum of the others would look like
//! the tier, and if the space of one is not known.

use std::collections::BTreeSet;

use skopos_model::schema::{device, fs, fsinfo, insight, mem};

use super::definition::{cells, instance, number, of_instance, text};
use super::*;

/// The most mounts that are told to whoever wrote one that is not there.
const MAX_MOUNTS_TOLD: usize = 8;

/// Types that lie in memory, less `devtmpfs`, where nobody places data.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::TIER_REMAINING_CAPACITY_BYTES,
    row: 10,
    name: "tier remaining capacity",
    formula: "sum(available, 0 if readonly) over the file systems of the tier: those of its mounts \
              (mount_point), else those whose device is of its kind; those in memory by their type \
              have no more than memory together",
    source: "Apollo, Table 1, row 10: sum of DeviceCapacity_i - CapacityUsed_i",
    instances: Instances::Tiers,
    inputs: &[
        Wanted::needed("available", Which::Every(&fs::AVAILABLE_BYTES)),
        Wanted::optional("readonly", Which::Every(&fs::READONLY)),
        Wanted::optional("mount_point", Which::Every(&fsinfo::MOUNT_POINT)),
        Wanted::optional("type", Which::Every(&fsinfo::TYPE)),
        Wanted::optional("device", Which::Every(&fsinfo::DEVICE)),
        Wanted::optional("kind", Which::Every(&device::KIND)),
        Wanted::optional("memory", Which::Of(&mem::AVAILABLE_BYTES, "")),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    inputs.one(0)?;
    let members = if subject.tiers.tiers().is_empty() {
        of_kind(&subject.instance, inputs)
    } else {
        of_file(subject, inputs)?
    };
    if members.is_empty() {
        let kind = &subject.instance;
        return Err(Unknown::new(format!("there is no file system on a device of kind {kind}")));
    }
    let (mut on_devices, mut in_memory) = (0.0, None);
    for member in members {
        let Some(available) = of_instance(inputs, 0, member) else {
            return Err(Unknown::new(format!("the space of {member} is not measured")));
        };
        let readonly = of_instance(inputs, 1, member).and_then(|cell| cell.number().ok());
        let available = if readonly == Some(1.0) { 0.0 } else { available.number()? };
        let fs_type = of_instance(inputs, 3, member).and_then(text).unwrap_or_default();
        if IN_MEMORY.contains(&fs_type) {
            *in_memory.get_or_insert(0.0) += available;
        } else {
            on_devices += available;
        }
    }
    let in_memory = match in_memory {
        Some(limits) => inputs.number(6)?.min(limits),
        None => 0.0,
    };
    number(on_devices + in_memory)
}

/// The file systems of a tier of the file.
fn of_file<'a>(subject: &Subject, inputs: &Inputs<'a>) -> Result<BTreeSet<&'a str>, Unknown> {
    let Subject { tiers, instance: name, .. } = subject;
    let Some(tier) = tiers.tier(name) else {
        return Err(Unknown::new(format!("the tiers file has no tier {name}")));
    };
    tier.mounts.iter().map(|mount| mounted_at(mount, inputs)).collect()
}

fn mounted_at<'a>(mount: &str, inputs: &Inputs<'a>) -> Result<&'a str, Unknown> {
    if let Some(cell) = cells(inputs, 2).find(|cell| text(cell) == Some(mount)) {
        return Ok(instance(cell));
    }
    let there: Vec<&str> = cells(inputs, 2).filter_map(text).take(MAX_MOUNTS_TOLD).collect();
    Err(match inputs.one(2) {
        Ok(_) => Unknown::new(format!(
            "no local file system is mounted at {mount}; there are {}",
            there.join(", ")
        )),
        Err(unknown) => unknown,
    })
}

/// The file systems of a tier that stands for a kind of device.
fn of_kind<'a>(tier: &str, inputs: &Inputs<'a>) -> BTreeSet<&'a str> {
    let of_tier = |cell: &&Cell| {
        let kind = of_instance(inputs, 4, instance(cell)).and_then(text).and_then(|device| {
            let device = tiers::instance_of(device);
            of_instance(inputs, 5, &device).and_then(text)
        });
        default_tier(text(cell).unwrap_or_default(), kind) == Some(tier)
    };
    cells(inputs, 3).filter(of_tier).map(instance).collect()
}

/// The tier of a file system where no file says: by its type, and by the kind of its device.
pub(super) fn default_tier<'k>(fs_type: &str, kind: Option<&'k str>) -> Option<&'k str> {
    match kind {
        _ if IN_MEMORY.contains(&fs_type) => Some("memory"),
        Some("zram" | "ram") => Some("memory"),
        Some("loop") => None,
        kind => kind,
    }
}
