//! The files of a folder of history.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use super::seal::PartName;
use crate::log::{self, Disk, Error, Listed, io_at};

/// The files of a folder, by generation.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Parts by their first generations, with their lengths. Each generation is in one of them.
    pub(super) parts: BTreeMap<u64, (PartName, u64)>,
    /// Parts of which another part has all generations, because it was merged from them. They are not read, and are
    /// removed once the other part is known to be whole.
    pub(super) replaced: Vec<PartName>,
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

/// Returns the generations of a log or part with this name.
pub(super) fn generations_of(name: &str) -> Option<RangeInclusive<u64>> {
    match name.strip_prefix("log-").and_then(|number| number.parse().ok()) {
        Some(generation) => Some(generation..=generation),
        None => PartName::parse(name).map(|part| part.generations()),
    }
}

fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp") && (name.starts_with("part-") || name.starts_with("log-"))
}

impl Listing {
    pub(super) fn of(disk: &dyn Disk, folder: &Path) -> Result<Self, Error> {
        let list =
            |folder: &Path| disk.list(folder).map_err(io_at(folder, "the folder cannot be listed"));
        let mut listing = Self::default();
        let mut parts = Vec::new();
        for file in list(folder)? {
            if let Some(part) = PartName::parse(&file.name) {
                parts.push((part, file.bytes));
            } else if let Some(generations) = generations_of(&file.name) {
                listing.logs.insert(*generations.start(), file.bytes);
            } else if is_temporary(&file.name) {
                listing.temporary.push(file.name);
            }
        }
        // A part that has the generations of others comes before them.
        parts.sort_by_key(|(part, _)| (part.first, Reverse(part.last)));
        for (part, bytes) in parts {
            if listing.part_of(part.first).is_some_and(|other| other.contains(&part)) {
                listing.replaced.push(part);
            } else {
                listing.parts.insert(part.first, (part, bytes));
            }
        }
        listing.quarantined = list(&folder.join(log::FOLDER))?;
        listing.quarantined.sort();
        Ok(listing)
    }

    /// Returns the part that has a generation.
    pub(super) fn part_of(&self, generation: u64) -> Option<&PartName> {
        let (_, (part, _)) = self.parts.range(..=generation).next_back()?;
        (part.last >= generation).then_some(part)
    }

    /// Returns true if other parts have all generations of a part that was merged from them.
    pub(super) fn has(&self, merged: &PartName) -> bool {
        let mut next = merged.first;
        for (part, _) in self.parts.values().filter(|(part, _)| part.last >= merged.first) {
            if part.first > next || next > merged.last {
                break;
            }
            next = part.last.saturating_add(1);
        }
        merged.count() > 1 && next > merged.last
    }

    /// Returns the generations of logs, which their parts may have to replace again, and of damaged files, which answers
    /// name by the times of the parts around them.
    pub(super) fn held(&self) -> Vec<RangeInclusive<u64>> {
        let logs = self.logs.keys().map(|generation| *generation..=*generation);
        logs.chain(self.quarantined.iter().filter_map(|it| generations_of(&it.name))).collect()
    }

    /// Returns the parts that `part` was merged from and that were not removed yet.
    pub(super) fn replaced_by(&self, part: &PartName) -> Vec<PartName> {
        self.replaced.iter().filter(|replaced| part.contains(replaced)).cloned().collect()
    }

    /// Returns the other files with samples of a damaged part: the parts that it replaced, and the logs of its other
    /// generations.
    pub(super) fn instead_of(&self, part: &PartName) -> (Vec<PartName>, Vec<u64>) {
        let mut older: Vec<PartName> = Vec::new();
        let is_older = |other: &&PartName| part.contains(other) && other.count() < part.count();
        for replaced in self.replaced.iter().filter(is_older) {
            // Parts that were merged twice come after the part that has their generations.
            if !older.iter().any(|other| other.contains(replaced)) {
                older.push(replaced.clone());
            }
        }
        let logs = self.logs.range(part.generations()).map(|(generation, _)| *generation);
        let is_elsewhere = |log: &u64| older.iter().any(|other| other.generations().contains(log));
        let logs = logs.filter(|log| !is_elsewhere(log)).collect();
        (older, logs)
    }

    /// Returns the names of all parts, and the generations of all logs.
    pub(super) fn files(&self) -> (Vec<PartName>, Vec<u64>) {
        let parts = self.parts.values().map(|(part, _)| part).chain(&self.replaced);
        (parts.cloned().collect(), self.logs.keys().copied().collect())
    }

    /// Returns the last generation that a file has.
    pub(super) fn last(&self) -> Option<u64> {
        self.generations().iter().map(|generations| *generations.end()).max()
    }

    /// Returns the generations of each part, log and quarantined file.
    fn generations(&self) -> Vec<RangeInclusive<u64>> {
        let mut all = self.held();
        all.extend(self.parts.values().map(|(part, _)| part.generations()));
        all
    }

    /// Returns the generations between the first and the last one of which no file is left. Retention leaves no such
    /// gap, because it removes the first ones.
    pub(super) fn gaps(&self) -> Vec<RangeInclusive<u64>> {
        let mut known = self.generations();
        known.sort_unstable_by_key(|generations| *generations.start());
        let (mut gaps, mut next) = (Vec::new(), None::<u64>);
        for generations in known {
            let (first, last) = generations.into_inner();
            if let Some(next) = next.filter(|next| *next < first) {
                gaps.push(next..=first - 1);
            }
            next = next.max(Some(last.saturating_add(1)));
        }
        gaps
    }

    /// Returns true if a generation can have had samples of these times, as far as the parts around it show.
    pub(super) fn may_overlap(&self, generation: u64, times: &RangeInclusive<i64>) -> bool {
        let own = self.part_of(generation).map_or(generation..=generation, PartName::generations);
        let (first, last) = own.into_inner();
        let before = self.parts.range(..first).next_back().map_or(i64::MIN, |(_, p)| p.0.to);
        let after = self.parts.range(last..).find(|(first, _)| **first > last);
        let after = after.map_or(i64::MAX, |(_, p)| p.0.from);
        // After a step back of the clock the two may be in the other order.
        *times.end() >= before.min(after) && *times.start() <= before.max(after)
    }
}
