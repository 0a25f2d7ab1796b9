//! The `tiers` file: the file systems of each storage tier, and the number of copies on devices
//! where neither the array nor the file system reports it. TOML; `docs/reference/tiers.md` is for users.
//!
//! ```toml
//! [[tier]]
//! name = "nvme"
//! mounts = ["/scratch"]
//!
//! [[device]]
//! name = "vda"
//! replication = 2
//! ```

use std::collections::HashMap;

use serde::Deserialize;
use skopos_model::escape_segment;
use thiserror::Error;

/// The most tiers. A storage hierarchy has a handful; each is a vertex that reads all file systems.
pub const MAX_TIERS: usize = 32;

/// The most mounts of one tier: as many as there are file systems with facts.
pub const MAX_MOUNTS: usize = 128;

/// The most copies of a datum. A greater number is a typing error: file systems replicate at most 4
/// times.
pub const MAX_REPLICATION: u32 = 1000;

/// The parsed file. [`Tiers::default`] stands for no file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    /// The tiers, in the order of the file.
    #[serde(default, rename = "tier")]
    tiers: Vec<Tier>,
    /// The replication of devices that do not report it.
    #[serde(default, rename = "device")]
    devices: Vec<Replication>,
}

/// File systems whose space counts as one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The name, which is also a segment of topics.
    pub name: String,
    /// The mount points of its file systems: absolute paths.
    pub mounts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replication {
    name: String,
    replication: u32,
}

/// An error in the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TiersError {
    /// The file is not TOML, or a field is unknown, missing or of another type.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// The message of the parser.
        what: String,
    },
    /// A name cannot be a segment of a topic.
    #[error("`{0}` is not a valid name of a tier")]
    TierName(String),
    /// Two tiers have the same name.
    #[error("two tiers have the name `{0}`")]
    TierTwice(String),
    /// A tier has no file systems.
    #[error("the tier `{0}` has no mounts")]
    NoMounts(String),
    /// A mount is not an absolute path.
    #[error("tier `{tier}`: `{mount}` is not a mount point")]
    Mount {
        /// The tier.
        tier: String,
        /// The mount as written.
        mount: String,
    },
    /// A mount would be counted twice.
    #[error("`{mount}` is in `{first}` and in `{second}`")]
    MountTwice {
        /// The mount point.
        mount: String,
        /// The tier that lists it first.
        first: String,
        /// The tier that lists it again; may be the same.
        second: String,
    },
    /// The file has more than [`MAX_TIERS`] tiers, or a tier more than [`MAX_MOUNTS`] mounts.
    #[error("{what}: {found}, but at most {most} are allowed")]
    TooMany {
        /// The counted things.
        what: String,
        /// The number in the file.
        found: usize,
        /// The greatest number.
        most: usize,
    },
    /// A device is named as a path, or twice.
    #[error("{0}")]
    Device(String),
    /// The number of copies is below 1 or above [`MAX_REPLICATION`].
    #[error("device `{device}`: a replication of {replication} is not possible")]
    Replication {
        /// The device.
        device: String,
        /// The number as written.
        replication: u32,
    },
}

impl TiersError {
    /// Returns a hint on how the user can mend the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => {
                "a tier is `[[tier]]` with `name = \"nvme\"` and `mounts = [\"/scratch\"]`; a device \
                 is `[[device]]` with `name = \"vda\"` and `replication = 2`"
            }
            Self::TierName(_) => "a name has at most 64 of the characters a-z 0-9 _ - .",
            Self::TierTwice(_) => "put the mounts of both into one",
            Self::NoMounts(_) => "name at least one: `mounts = [\"/scratch\"]`; `df` lists them",
            Self::Mount { .. } => "an absolute path, as the last column of `df` shows it",
            Self::MountTwice { .. } => "a file system counts in one tier, once",
            Self::TooMany { .. } => {
                "one tier may have many mounts; leave out what nobody places data on"
            }
            Self::Device(_) => "the kernel's name, once: `vda`, as in `skopos ls '*/device/**'`",
            Self::Replication { .. } => "the number of copies of each datum: 1 without replication",
        }
    }
}

impl Tiers {
    /// Parses and checks the text of the file.
    ///
    /// # Errors
    /// Returns a [`TiersError`] for the first error in the text.
    pub fn parse(text: &str) -> Result<Self, TiersError> {
        let tiers: Self = toml::from_str(text).map_err(|e| {
            let start = e.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..start].iter().filter(|&&b| b == b'\n').count();
            TiersError::Syntax { line, what: e.message().to_owned() }
        })?;
        check_tiers(&tiers.tiers)?;
        check_devices(&tiers.devices)?;
        Ok(tiers)
    }

    /// Returns the tiers in the order of the file; empty without a file.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Returns the tier of this name.
    pub fn tier(&self, name: &str) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.name == name)
    }

    /// Returns the devices in the file, with the names as written.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|entry| &*entry.name)
    }

    /// Returns the number of copies on a device according to the file. `device` is an instance of
    /// topics.
    pub fn replication(&self, device: &str) -> Option<u32> {
        let is_it = |entry: &&Replication| instance_of(&entry.name) == device;
        self.devices.iter().find(is_it).map(|entry| entry.replication)
    }
}

/// Returns the segment of topics for a device or a mount point.
pub(super) fn instance_of(name: &str) -> String {
    let mut segment = String::new();
    escape_segment(name.as_bytes(), &mut segment);
    segment
}

fn check_tiers(tiers: &[Tier]) -> Result<(), TiersError> {
    at_most("tiers", tiers.len(), MAX_TIERS)?;
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for (at, tier) in tiers.iter().enumerate() {
        let Tier { name, mounts } = tier;
        let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(TiersError::TierName(name.clone()));
        }
        if tiers[..at].iter().any(|other| other.name == *name) {
            return Err(TiersError::TierTwice(name.clone()));
        }
        if mounts.is_empty() {
            return Err(TiersError::NoMounts(name.clone()));
        }
        at_most(&format!("mounts of `{name}`"), mounts.len(), MAX_MOUNTS)?;
        for mount in mounts {
            let is_plain = mount == "/" || (mount.starts_with('/') && !mount.ends_with('/'));
            if !is_plain || mount.split('/').any(|part| part == "..") {
                return Err(TiersError::Mount { tier: name.clone(), mount: mount.clone() });
            }
            if let Some(first) = owners.insert(mount, name) {
                return Err(TiersError::MountTwice {
                    mount: mount.clone(),
                    first: first.to_owned(),
                    second: name.clone(),
                });
            }
        }
    }
    Ok(())
}

fn check_devices(devices: &[Replication]) -> Result<(), TiersError> {
    for (at, device) in devices.iter().enumerate() {
        let Replication { name, replication } = device;
        if name.is_empty() || name.contains('/') {
            return Err(TiersError::Device(format!("`{name}` is not a name of a device")));
        }
        if devices[..at].iter().any(|other| other.name == *name) {
            return Err(TiersError::Device(format!("two devices have the name `{name}`")));
        }
        if !(1..=MAX_REPLICATION).contains(replication) {
            let (device, replication) = (name.clone(), *replication);
            return Err(TiersError::Replication { device, replication });
        }
    }
    Ok(())
}

fn at_most(what: &str, found: usize, most: usize) -> Result<(), TiersError> {
    if found <= most {
        return Ok(());
    }
    Err(TiersError::TooMany { what: what.to_owned(), found, most })
}
