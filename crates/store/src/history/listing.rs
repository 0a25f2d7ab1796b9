//! The files of a folder of history.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use super::seal::PartName;
use crate::log::{self, Disk, Error, Listed, io_at};

/// The files of a folder, by generation.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Parts, with their lengths.
    pub(super) parts: BTreeMap<u64, (PartName, u64)>,
    /// Logs, with their lengths.
    pub(super) logs: BTreeMap<u64, u64>,
    /// Names of unfinished files that a killed writer left.
    pub(super) temporary: Vec<String>,
    /// Damaged files that were moved aside.
    pub(super) quarantined: Vec<Listed>,
}

pub(super) fn log_name(generation: u64) -> String {
    format!("log-{generation:08}")
}

/// Returns the generation of a log or part with this name.
pub(super) fn generation_of(name: &str) -> Option<u64> {
    let part = || PartName::parse(name).map(|part| part.generation);
    name.strip_prefix("log-").and_then(|number| number.parse().ok()).or_else(part)
}

fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp") && (name.starts_with("part-") || name.starts_with("log-"))
}

impl Listing {
    pub(super) fn of(disk: &dyn Disk, folder: &Path) -> Result<Self, Error> {
        let list =
            |folder: &Path| disk.list(folder).map_err(io_at(folder, "the folder cannot be listed"));
        let mut listing = Self::default();
        for file in list(folder)? {
            if let Some(part) = PartName::parse(&file.name) {
                listing.parts.insert(part.generation, (part, file.bytes));
            } else if let Some(generation) = generation_of(&file.name) {
                listing.logs.insert(generation, file.bytes);
            } else if is_temporary(&file.name) {
                listing.temporary.push(file.name);
            }
        }
        listing.quarantined = list(&folder.join(log::FOLDER))?;
        listing.quarantined.sort();
        Ok(listing)
    }

    /// Returns the last generation that a file has.
    pub(super) fn last(&self) -> Option<u64> {
        let aside = self.quarantined.iter().filter_map(|file| generation_of(&file.name));
        self.parts.keys().chain(self.logs.keys()).copied().chain(aside).max()
    }

    /// Returns the generations between the first and the last one of which no file is left. Retention leaves no such
    /// gap, because it removes the first ones.
    pub(super) fn gaps(&self) -> Vec<RangeInclusive<u64>> {
        let mut known: Vec<u64> = self.parts.keys().chain(self.logs.keys()).copied().collect();
        known.extend(self.quarantined.iter().filter_map(|file| generation_of(&file.name)));
        known.sort_unstable();
        let gap = |pair: &[u64]| (pair[1] > pair[0] + 1).then(|| pair[0] + 1..=pair[1] - 1);
        known.windows(2).filter_map(gap).collect()
    }

    /// Returns true if a generation can have had samples of these times, as far as the parts around it show.
    pub(super) fn may_overlap(&self, generation: u64, times: &RangeInclusive<i64>) -> bool {
        let before = self.parts.range(..generation).next_back().map_or(i64::MIN, |(_, p)| p.0.to);
        let after = self.parts.range(generation + 1..).next().map_or(i64::MAX, |(_, p)| p.0.from);
        // After a step back of the clock the two may be in the other order.
        *times.end() >= before.min(after) && *times.start() <= before.max(after)
    }
}
