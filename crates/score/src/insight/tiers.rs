//! The file `tiers`: which file systems make up a tier of storage, and how many copies devices
//! keep where neither the array nor the file system tells. TOML; `docs/reference/tiers.md` is for users.
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

/// The most tiers. A hierarchy of storage has a handful; each is a vertex that looks at all file
/// systems.
pub const MAX_TIERS: usize = 32;

/// The most mounts of one tier: as many file systems as there are facts of.
pub const MAX_MOUNTS: usize = 128;

/// The most copies of a datum. More is a slip of the finger: file systems that replicate stop at 4.
pub const MAX_REPLICATION: u32 = 1000;

/// The file as it was read. [`Tiers::default`] stands for no file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    /// The tiers, in the order of the file.
    #[serde(default, rename = "tier")]
    tiers: Vec<Tier>,
    /// What the machine does not tell about its devices.
    #[serde(default, rename = "device")]
    devices: Vec<Replication>,
}

/// File systems whose space counts as one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Its name, in topics too.
    pub name: String,
    /// Where its file systems are mounted: absolute paths.
    pub mounts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replication {
    name: String,
    replication: u32,
}

/// What can be wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TiersError {
    /// Not TOML, or a field that is unknown, missing or of another type.
    #[error("line {line}: {what}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// A name that cannot be a segment of a topic.
    #[error("`{0}` is no name of a tier")]
    TierName(String),
    /// Two tiers with one name.
    #[error("there are two tiers `{0}`")]
    TierTwice(String),
    /// A tier without file systems.
    #[error("the tier `{0}` has no mounts")]
    NoMounts(String),
    /// A mount that is no absolute path.
    #[error("tier `{tier}`: `{mount}` is no mount point")]
    Mount {
        /// Whose.
        tier: String,
        /// As it is written.
        mount: String,
    },
    /// A mount that would be counted twice.
    #[error("`{mount}` is in `{first}` and in `{second}`")]
    MountTwice {
        /// The mount point.
        mount: String,
        /// The tier that has it first.
        first: String,
        /// The tier that has it again; may be the same.
        second: String,
    },
    /// More than [`MAX_TIERS`], or than [`MAX_MOUNTS`] in one.
    #[error("{what}: {found}, the most is {most}")]
    TooMany {
        /// Of what.
        what: String,
        /// How many the file has.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// A device that is named as a path, or twice.
    #[error("{0}")]
    Device(String),
    /// Copies below 1 or above [`MAX_REPLICATION`].
    #[error("device `{device}`: a replication of {replication}")]
    Replication {
        /// Whose.
        device: String,
        /// As it is written.
        replication: u32,
    },
}

impl TiersError {
    /// What the user can do.
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
    /// Reads the text of the file and checks it.
    ///
    /// # Errors
    /// The first thing that is wrong with it; see [`TiersError`].
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

    /// The tiers, in the order of the file; none if there is no file.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// The tier of this name.
    pub fn tier(&self, name: &str) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.name == name)
    }

    /// The devices of which the file says something, as it names them.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|entry| &*entry.name)
    }

    /// Copies of each datum on this device, as the file says. `device` is an instance of topics.
    pub fn replication(&self, device: &str) -> Option<u32> {
        let is_it = |entry: &&Replication| instance_of(&entry.name) == device;
        self.devices.iter().find(is_it).map(|entry| entry.replication)
    }
}

/// The segment of topics that stands for a device or a mount point.
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
            return Err(TiersError::Device(format!("`{name}` is no name of a device")));
        }
        if devices[..at].iter().any(|other| other.name == *name) {
            return Err(TiersError::Device(format!("there are two devices `{name}`")));
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
