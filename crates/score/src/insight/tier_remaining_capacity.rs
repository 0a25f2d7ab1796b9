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
//! Which file systems make a tier is told by the `tiers` file (`docs/reference/tiers.md`). Without one they are
//! grouped by the kind of device that holds them (`nvme`, `ssd`, `hdd`, ...), those in memory as
//! `memory`, those that others serve by their type (`lustre`, `nfs`, `fuse`, ...); what lies on a loop
//! device is space of another file system and does not count again.
//!
//! Bytes. Unknown if a mount of the file is not there, since the sum of the others would look like
//! the tier, and if the space of one is not known or its server does not answer: nobody can write
//! there now. So the age is that of local file systems alone, and a server that hangs makes no other
//! tier old.

use std::collections::BTreeSet;

use skopos_model::schema::{device, fs, fsinfo, insight, mem, remote_fs};

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
              have no more than memory together; those that others serve (remote_available, \
              remote_readonly, remote_mount_point, remote_type) only while remote_responding",
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
        Wanted::optional("remote_available", Which::Every(&remote_fs::AVAILABLE_BYTES)),
        Wanted::optional("remote_readonly", Which::Every(&remote_fs::READONLY)),
        Wanted::optional("remote_mount_point", Which::Every(&remote_fs::MOUNT_POINT)),
        Wanted::optional("remote_type", Which::Every(&remote_fs::TYPE)),
        Wanted::optional("remote_responding", Which::Every(&remote_fs::RESPONDING)),
    ],
    compute,
};

/// Where in the inputs facts of one family are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slots {
    available: usize,
    readonly: usize,
    mount_point: usize,
    fs_type: usize,
    /// Of a family where a server may not answer.
    responding: Option<usize>,
}

const LOCAL: Slots =
    Slots { available: 0, readonly: 1, mount_point: 2, fs_type: 3, responding: None };

const REMOTE: Slots =
    Slots { available: 7, readonly: 8, mount_point: 9, fs_type: 10, responding: Some(11) };

/// A file system: its family and its name there.
type Member<'a> = (Slots, &'a str);

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    inputs.one(LOCAL.available)?;
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

/// What still fits on one file system.
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

/// The file systems of a tier of the file.
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
    // Where neither family is measured, the reason for which the local one is not comes first.
    if points().next().is_none() {
        return Err(inputs.missing(LOCAL.mount_point));
    }
    let there: Vec<&str> =
        points().filter_map(|(_, cell)| text(cell)).take(MAX_MOUNTS_TOLD).collect();
    Err(Unknown::new(format!(
        "no file system is mounted at {mount}; there are {}",
        there.join(", ")
    )))
}

/// The file systems of a tier that stands for a kind of device, or a type that others serve.
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

/// The tier of a file system where no file says: by its type, and by the kind of its device.
pub(super) fn default_tier<'k>(fs_type: &str, kind: Option<&'k str>) -> Option<&'k str> {
    match kind {
        _ if IN_MEMORY.contains(&fs_type) => Some("memory"),
        Some("zram" | "ram") => Some("memory"),
        Some("loop") => None,
        kind => kind,
    }
}

/// The tier of a file system that others serve, where no file says: its type without the version of
/// the protocol, and whatever a process of this machine stands for as `fuse`. As in topics.
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
