//! The layers below a block device, md arrays and device mapper volumes, from `slaves` in sysfs.

use crate::root::Root;
use crate::{disk, raid};

/// The deepest stack. Encryption on LVM on RAID on partitions is four layers.
const MAX_DEPTH: usize = 8;

/// The spread of data over devices. Unknown numbers are `None`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) level: Option<String>,
    pub(super) devices: Option<u64>,
    pub(super) copies: Option<u64>,
    pub(super) failures_tolerated: Option<u64>,
    /// The md array that decides. Its state may change.
    pub(super) array: Option<Box<[u8]>>,
}

impl Spread {
    /// Returns the spread of data without copies, on this many devices.
    pub(super) fn single(devices: Option<u64>) -> Self {
        Self {
            level: Some("none".to_owned()),
            devices,
            copies: Some(1),
            failures_tolerated: Some(0),
            array: None,
        }
    }
}

/// Returns the spread of the data on the whole device `name`.
pub(super) fn spread(root: &Root, name: &str, mdstat: &[u8]) -> Spread {
    let mut name = name.to_owned();
    for _ in 0..MAX_DEPTH {
        if let Some(spread) = array(&name, mdstat) {
            return spread;
        }
        let mut below = disk::names_in(&disk::folder(root, &name).join("slaves"));
        match below.len() {
            0 => return Spread::single(Some(1)),
            1 => {
                let member = below.remove(0);
                name = disk::whole(root, &member).unwrap_or(member);
            }
            _ => {
                let mut disks: Vec<_> = below
                    .into_iter()
                    .map(|member| disk::whole(root, &member).unwrap_or(member))
                    .collect();
                disks.sort();
                disks.dedup();
                return Spread { devices: Some(disks.len() as u64), ..Spread::default() };
            }
        }
    }
    Spread::default()
}

fn array(name: &str, mdstat: &[u8]) -> Option<Spread> {
    let mut found = None;
    raid::each(mdstat, |array| {
        if array.name == name.as_bytes() {
            found = Some(Spread {
                level: Some(String::from_utf8_lossy(array.level).into_owned())
                    .filter(|level| !level.is_empty()),
                devices: Some(array.devices()),
                copies: array.copies(),
                failures_tolerated: array.failures_tolerated(),
                array: Some(name.as_bytes().into()),
            });
        }
    });
    found
}
