//! The tiers of an engine.

use std::path::PathBuf;

use crate::Error;
use crate::place::{MAX_COPIES, MAX_TIERS, sets};

/// A tier: a folder with a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// Its name, in messages and statistics.
    pub name: String,
    /// Its folder, which is made if it does not exist. The folder above it must exist, or a tier that is not mounted
    /// would be made on the file system below its mount point.
    pub folder: PathBuf,
    /// Bytes that the engine may have there.
    pub capacity_bytes: u64,
    /// Tiers with one domain fail together, so replicas are in different domains. Without it, a tier is its own domain.
    pub domain: Option<String>,
}

impl TierSpec {
    /// Makes a tier with a domain of its own.
    pub fn new(name: &str, folder: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self { name: name.to_owned(), folder: folder.into(), capacity_bytes, domain: None }
    }
}

/// The tiers of an engine, the fastest first. The last one is the backing store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The tiers.
    pub tiers: Vec<TierSpec>,
}

impl Settings {
    /// Checks the number of tiers and their names.
    pub(super) fn check(&self) -> Result<(), Error> {
        let count = self.tiers.len();
        if count == 0 || count > MAX_TIERS {
            return Err(Error::Tiers(format!("{count} tiers; a hierarchy has 1 to {MAX_TIERS}")));
        }
        for (at, tier) in self.tiers.iter().enumerate() {
            if self.tiers[..at].iter().any(|other| other.name == tier.name) {
                return Err(Error::Tiers(format!("two tiers are named `{}`", tier.name)));
            }
            if self.tiers[..at].iter().any(|other| other.folder == tier.folder) {
                let folder = tier.folder.display();
                return Err(Error::Tiers(format!("two tiers are in the folder {folder}")));
            }
        }
        Ok(())
    }

    /// Returns the sets of tiers for each number of copies, by that number.
    pub(super) fn sets(&self) -> Vec<Vec<Vec<usize>>> {
        let domain = |tier: &TierSpec| tier.domain.clone().unwrap_or_else(|| tier.name.clone());
        let names: Vec<String> = self.tiers.iter().map(domain).collect();
        let first = |name: &String| names.iter().position(|other| other == name).unwrap_or(0);
        let domains: Vec<usize> = names.iter().map(first).collect();
        (0..=MAX_COPIES).map(|copies| sets(&domains, copies)).collect()
    }
}
