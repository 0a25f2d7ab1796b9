//! Tier remaining capacity (Table 1, row 10): the amount of data that a tier of storage can still
//! take.
//!
//! ```text
//! RemainingCapacity = Σ (DeviceCapacity_i - CapacityUsed_i), over the devices of the tier
//! ```
//!
//! Skopos sums over file systems instead of devices, because data is placed on file systems. Space
//! that is reserved for root does not count, because no other user can fill it:
//! `DeviceCapacity - CapacityUsed` is `available_bytes`, and 0 for a file system that is mounted
//! read-only. Each file system counts once. The limits of file systems in memory (tmpfs, ramfs) do
//! not add up: together they count for at most the available memory.
//!
//! The `tiers` file (`docs/reference/tiers.md`) lists the file systems of a tier. Without it, local file
//! systems are grouped by the kind of their device (`nvme`, `ssd`, `hdd`, ...), those in memory as
//! `memory`, and those of other machines by their type (`lustre`, `nfs`, `fuse`, ...). A file
//! system on a loop device is space of another file system and does not count again.
//!
//! The unit is bytes. The insight is unknown if a listed mount is missing, because the sum of the
//! others would look like the whole tier. It is also unknown if the space of a file system is
//! unknown or its server does not answer, because it cannot be written now. The age of the insight
//! is that of the local file systems alone, so a server that hangs does not make other tiers old.

use std::collections::BTreeSet;

use skopos_model::schema::{device, fs, fsinfo, insight, mem, remote_fs};

use super::definition::{cells, instance, number, of_instance, text};
use super::*;

/// The most mounts that an error lists when a configured mount is missing.
const MAX_MOUNTS_LISTED: usize = 8;

/// Types of file systems in memory, without `devtmpfs`, which holds no data.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::TIER_REMAINING_CAPACITY_BYTES,
    row: 10,
    name: "tier remaining capacity",
    formula: "sum(available, 0 if readonly) over the file systems of the tier: those of its mounts \
              (mount_point), else those whose device is of its kind; those in memory by their type \
              have no more than memory together; those that others serve (remote_available, \
              remote_readonly, remote_mount_point, remote_type) only while remote_responding",
    source: "Apollo, Table 1, row 10: sum of DeviceCapacity_i - CapacityUsed_i",
    instances: Instances::Tiers,
    inputs: &[
        InputSpec::needed("available", FactSelector::Every(&fs::AVAILABLE_BYTES)),
        InputSpec::optional("readonly", FactSelector::Every(&fs::READONLY)),
        InputSpec::optional("mount_point", FactSelector::Every(&fsinfo::MOUNT_POINT)),
        InputSpec::optional("type", FactSelector::Every(&fsinfo::TYPE)),
        InputSpec::optional("device", FactSelector::Every(&fsinfo::DEVICE)),
        InputSpec::optional("kind", FactSelector::Every(&device::KIND)),
        InputSpec::optional("memory", FactSelector::Named(&mem::AVAILABLE_BYTES, "")),
        InputSpec::optional("remote_available", FactSelector::Every(&remote_fs::AVAILABLE_BYTES)),
        InputSpec::optional("remote_readonly", FactSelector::Every(&remote_fs::READONLY)),
        InputSpec::optional("remote_mount_point", FactSelector::Every(&remote_fs::MOUNT_POINT)),
        InputSpec::optional("remote_type", FactSelector::Every(&remote_fs::TYPE)),
        InputSpec::optional("remote_responding", FactSelector::Every(&remote_fs::RESPONDING)),
    ],
    compute,
};

/// The places of one family's facts in the inputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slots {
    available: usize,
    readonly: usize,
    mount_point: usize,
    fs_type: usize,
    /// For a family with servers that may not answer.
    responding: Option<usize>,
}

const LOCAL: Slots =
    Slots { available: 0, readonly: 1, mount_point: 2, fs_type: 3, responding: None };

const REMOTE: Slots =
    Slots { available: 7, readonly: 8, mount_point: 9, fs_type: 10, responding: Some(11) };

/// A file system: its family and its name.
type Member<'a> = (Slots, &'a str);

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    inputs.first(LOCAL.available)?;
    let members = if subject.tiers.tiers().is_empty() {
        of_kind(&subject.instance, inputs)
    } else {
        of_file(subject, inputs)?
    };
    if members.is_empty() {
        let kind = &subject.instance;
        return Err(Unknown::new(format!("no file system lies on a device of kind {kind}")));
    }
    let (mut on_devices, mut in_memory) = (0.0, None);
    for member in members {
        let available = room(member, inputs)?;
        let (slots, name) = member;
        let fs_type = of_instance(inputs, slots.fs_type, name).and_then(text).unwrap_or_default();
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

/// Returns the space that is left on one file system.
fn room((slots, name): Member<'_>, inputs: &Inputs<'_>) -> Result<f64, Unknown> {
    let state = |slot| of_instance(inputs, slot, name).and_then(|cell| cell.number().ok());
    if slots.responding.and_then(state) == Some(0.0) {
        return Err(Unknown::new(format!("the server of {name} does not answer")));
    }
    let Some(available) = of_instance(inputs, slots.available, name) else {
        return Err(Unknown::new(format!("the space of {name} is not measured")));
    };
    if state(slots.readonly) == Some(1.0) { Ok(0.0) } else { available.number() }
}

/// Returns the file systems of a tier of the `tiers` file.
fn of_file<'a>(subject: &Subject, inputs: &Inputs<'a>) -> Result<BTreeSet<Member<'a>>, Unknown> {
    let Subject { tiers, instance: name, .. } = subject;
    let Some(tier) = tiers.tier(name) else {
        return Err(Unknown::new(format!("the tiers file has no tier {name}")));
    };
    tier.mounts.iter().map(|mount| mounted_at(mount, inputs)).collect()
}

fn mounted_at<'a>(mount: &str, inputs: &Inputs<'a>) -> Result<Member<'a>, Unknown> {
    let points = || {
        [LOCAL, REMOTE].into_iter().flat_map(|s| cells(inputs, s.mount_point).map(move |c| (s, c)))
    };
    if let Some((slots, cell)) = points().find(|(_, cell)| text(cell) == Some(mount)) {
        return Ok((slots, instance(cell)));
    }
    // If neither family is measured, the error gives the reason of the local one.
    if points().next().is_none() {
        return Err(inputs.missing(LOCAL.mount_point));
    }
    let there: Vec<&str> =
        points().filter_map(|(_, cell)| text(cell)).take(MAX_MOUNTS_LISTED).collect();
    Err(Unknown::new(format!(
        "no file system is mounted at {mount}; the mounts are {}",
        there.join(", ")
    )))
}

/// Returns the file systems of a tier that stands for a kind of device or for a type of remote file
/// system.
fn of_kind<'a>(tier: &str, inputs: &Inputs<'a>) -> BTreeSet<Member<'a>> {
    let of_tier = |cell: &&Cell| {
        let kind = of_instance(inputs, 4, instance(cell)).and_then(text).and_then(|device| {
            let device = tiers::instance_of(device);
            of_instance(inputs, 5, &device).and_then(text)
        });
        default_tier(text(cell).unwrap_or_default(), kind) == Some(tier)
    };
    let served = |cell: &&Cell| text(cell).and_then(default_remote_tier).as_deref() == Some(tier);
    let local = cells(inputs, LOCAL.fs_type).filter(of_tier).map(|cell| (LOCAL, instance(cell)));
    let remote = cells(inputs, REMOTE.fs_type).filter(served).map(|cell| (REMOTE, instance(cell)));
    local.chain(remote).collect()
}

/// Returns the tier of a local file system without a `tiers` file: by its type, and by the kind of
/// its device.
pub(super) fn default_tier<'k>(fs_type: &str, kind: Option<&'k str>) -> Option<&'k str> {
    match kind {
        _ if IN_MEMORY.contains(&fs_type) => Some("memory"),
        Some("zram" | "ram") => Some("memory"),
        Some("loop") => None,
        kind => kind,
    }
}

/// Returns the tier of a remote file system without a `tiers` file, as in topics: its type without
/// the version of the protocol, and `fuse` for every file system that a local process serves.
pub(super) fn default_remote_tier(fs_type: &str) -> Option<String> {
    let name = match fs_type {
        "" => return None,
        "nfs4" => "nfs",
        "smb3" | "smbfs" => "cifs",
        kind if kind.starts_with("fuse") => "fuse",
        kind => kind,
    };
    Some(tiers::instance_of(name))
}
