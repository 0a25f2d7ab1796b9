//! The spread of btrfs data, from `/sys/fs/btrfs/UUID`: its devices, and the profiles of its data
//! (btrfs(5), "PROFILES").

use std::path::Path;

use super::stack::Spread;
use crate::disk;

/// Profiles, with the number of copies and of devices that may fail. Both copies of `dup` lie on
/// one device.
static PROFILES: [(&str, u64, u64); 9] = [
    ("single", 1, 0),
    ("dup", 2, 0),
    ("raid0", 1, 0),
    ("raid1", 2, 1),
    ("raid1c3", 3, 2),
    ("raid1c4", 4, 3),
    ("raid10", 2, 1),
    ("raid5", 1, 1),
    ("raid6", 1, 2),
];

/// Returns the spread of the file system that has the device `name` (a partition or a whole
/// device). During a conversion it has two profiles, and only the number of its devices is known.
pub(super) fn spread(folder: &Path, name: Option<&str>) -> Spread {
    let Some(name) = name else { return Spread::default() };
    let mut systems = disk::names_in(folder).into_iter().map(|uuid| folder.join(uuid));
    let Some(system) = systems.find(|s| s.join("devices").join(name).exists()) else {
        return Spread::default();
    };
    let devices = disk::names_in(&system.join("devices")).len() as u64;
    let devinfo = system.join("devinfo");
    let missing = disk::names_in(&devinfo)
        .iter()
        .filter(|id| disk::number_of(&devinfo.join(id).join("missing")) == Some(1))
        .count() as u64;
    let data = system.join("allocation/data");
    let mut profiles = PROFILES.iter().filter(|(profile, ..)| data.join(profile).is_dir());
    let (profile, others) = (profiles.next(), profiles.next());
    let only = profile.filter(|_| others.is_none());
    Spread {
        level: only.map(|(level, ..)| (*level).to_owned()),
        devices: Some(devices),
        copies: only.map(|(_, copies, _)| *copies),
        failures_tolerated: only.map(|(_, _, failures)| failures.saturating_sub(missing)),
        array: None,
    }
}
