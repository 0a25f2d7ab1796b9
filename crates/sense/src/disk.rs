//! The properties of a whole block device, from `/sys/block`
//! (Documentation/ABI/stable/sysfs-block).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::root::Root;

/// The properties of a whole block device. Model, serial number and size show whether a name still
/// stands for the device that was measured under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name, as in `/proc/diskstats`: `nvme0n1`.
    pub name: String,
    /// `nvme`, `ssd`, `hdd`, `virtio` and so on; see [`kind`].
    pub kind: String,
    /// The model, as the device reports it.
    pub model: Option<String>,
    /// Serial number or world-wide name, as the device reports it.
    pub serial: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
}

impl Disk {
    /// Reads the properties of the whole device that the kernel calls `name`.
    ///
    /// # Errors
    /// The device does not exist, or sysfs does not show its size.
    pub fn look(root: &Root, name: &str) -> io::Result<Self> {
        let folder = folder(root, name);
        let size = fs::read_to_string(folder.join("size"))?;
        let sectors: u64 = size.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        let text = |files: &[&str]| files.iter().find_map(|file| text_of(&folder.join(file)));
        Ok(Self {
            name: name.to_owned(),
            kind: kind(name, number_of(&folder.join("queue/rotational")) == Some(1)).to_owned(),
            model: text(&["device/model", "device/name", "dm/name"]),
            serial: text(&["device/serial", "serial", "wwid", "device/wwid", "dm/uuid", "md/uuid"]),
            size_bytes: sectors.saturating_mul(SECTOR_BYTES),
        })
    }

    /// Returns true if `other` is the same piece of hardware, as far as both report.
    pub fn is_same_device(&self, other: &Self) -> bool {
        let serials = self.serial.as_ref().zip(other.serial.as_ref());
        self.model == other.model
            && self.size_bytes == other.size_bytes
            && serials.is_none_or(|(a, b)| a == b)
    }
}

/// sysfs counts sizes in sectors of 512 bytes, whatever the device's own sector size.
const SECTOR_BYTES: u64 = 512;

/// The longest text that is read from a device. Models have 40 characters, names of dm 128.
const MAX_TEXT_BYTES: usize = 256;

/// The part of a name after its prefix: a number, or letters.
enum Then {
    Number,
    Letters,
}
use Then::{Letters, Number};

/// The names of devices begin with a prefix of their driver.
const KINDS: [(&str, Then, &str); 17] = [
    ("nvme", Number, "nvme"),
    ("vd", Letters, "virtio"),
    ("xvd", Letters, "xen"),
    ("mmcblk", Number, "mmc"),
    ("loop", Number, "loop"),
    ("zram", Number, "zram"),
    ("ram", Number, "ram"),
    ("pmem", Number, "pmem"),
    ("nbd", Number, "nbd"),
    ("rbd", Number, "rbd"),
    ("drbd", Number, "drbd"),
    ("md", Number, "md"),
    ("md_d", Number, "md"),
    ("dm-", Number, "dm"),
    ("dasd", Letters, "dasd"),
    ("sr", Number, "optical"),
    ("fd", Number, "floppy"),
];

/// Returns the kind of the device `name`, by its driver. A disk of `sd` is `hdd` if it reports that
/// it rotates, else `ssd`. A device of a driver that is not listed here is `other`.
pub fn kind(name: &str, is_rotational: bool) -> &'static str {
    let by_driver = KINDS.iter().find(|(prefix, then, _)| {
        name.strip_prefix(prefix).is_some_and(|rest| match then {
            Number => rest.starts_with(|c: char| c.is_ascii_digit()),
            Letters => rest.starts_with(|c: char| c.is_ascii_lowercase()),
        })
    });
    match by_driver {
        Some((_, _, kind)) => kind,
        None if name.starts_with("sd") => match is_rotational {
            true => "hdd",
            false => "ssd",
        },
        None => "other",
    }
}

/// Returns the folder of the whole device `name` in sysfs, which replaces slashes in names by `!`.
pub(crate) fn folder(root: &Root, name: &str) -> PathBuf {
    root.sys.join("block").join(name.replace('/', "!"))
}

/// Returns the whole device of `name`, a device or a partition; `None` if it is not in sysfs.
pub fn whole(root: &Root, name: &str) -> Option<String> {
    // These names lead to folders of sysfs, too.
    if matches!(name, "" | "." | "..") {
        return None;
    }
    let class = root.sys.join("class/block").join(name.replace('/', "!"));
    let is_partition = class.join("partition").exists();
    if !is_partition {
        return folder(root, name).is_dir().then(|| name.to_owned());
    }
    // `/sys/class/block/vda1` leads to `.../block/vda/vda1`.
    let real = fs::canonicalize(class).ok()?;
    let parent = real.parent()?.file_name()?.to_str()?.replace('!', "/");
    folder(root, &parent).is_dir().then_some(parent)
}

/// Returns the number of requests that all hardware queues of the device `name` take at a time;
/// `None` if it does not have hardware queues.
pub fn hardware_tags(root: &Root, name: &str) -> Option<u64> {
    let queues = folder(root, name).join("mq");
    let tags =
        names_in(&queues).into_iter().filter_map(|q| number_of(&queues.join(q).join("nr_tags")));
    tags.reduce(u64::saturating_add)
}

/// Returns the names in a folder of sysfs, sorted; empty if the folder does not exist.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// Returns the start of a file's text, trimmed; `None` if it has no text.
pub(crate) fn text_of(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]);
    let printable: String = text.chars().filter(|c| !c.is_control()).collect();
    let words = printable.trim();
    (!words.is_empty()).then(|| words.to_owned())
}

/// Returns the number in a file; `None` if it does not hold a number.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    text_of(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn kinds() {
        for (name, rotational, expected) in [
            ("nvme0n1", false, "nvme"),
            ("nvram", false, "other"),
            ("sda", true, "hdd"),
            ("sdaa", false, "ssd"),
            ("vda", true, "virtio"),
            ("vdab", true, "virtio"),
            ("xvda", false, "xen"),
            ("loop11", false, "loop"),
            ("md127", true, "md"),
            ("md_d0", true, "md"),
            ("dm-3", false, "dm"),
            ("mmcblk0", false, "mmc"),
            ("zram0", false, "zram"),
            ("ram0", false, "ram"),
            ("sr0", true, "optical"),
            ("dasda", true, "dasd"),
            ("foo", true, "other"),
        ] {
            assert_eq!(kind(name, rotational), expected, "{name}");
        }
    }
}
