//! An entry as a catalogue stores it: the columns of its row, what it is found by, and its document.

use std::collections::{BTreeMap, BTreeSet};

use skopos_model::task::RESOURCES;

use super::super::entry::JobEntry;
use super::numbers::Numbers;
use super::row::{Columns, NEVER, NOT_ENDED, exit_name};
use super::words;

/// An entry as a catalogue stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The columns of its row.
    pub columns: Columns,
    /// Names of its nodes.
    pub hosts: BTreeSet<String>,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// Words by which it is found, each once, with a blank between two.
    pub words: String,
    /// Number of words for which there was no room.
    pub unindexed_words: u64,
    /// The numbers of its parts.
    pub parts: Numbers,
    /// The entry as JSON.
    pub document: String,
}

impl Stored {
    /// Returns the stored form of an entry.
    ///
    /// # Errors
    /// The entry cannot be written as JSON.
    pub fn of(entry: &JobEntry) -> Result<Self, serde_json::Error> {
        let (words, unindexed_words) = words::of_entry(entry);
        Ok(Self {
            columns: Columns::of(entry)?,
            hosts: entry.nodes.clone(),
            tags: entry.all_tags().into_iter().map(str::to_owned).collect(),
            words,
            unindexed_words,
            parts: Numbers::of(&entry.parts),
            document: serde_json::to_string(entry)?,
        })
    }
}

impl Columns {
    /// Returns the columns of the row of an entry.
    ///
    /// # Errors
    /// The amounts of resources cannot be written as JSON.
    pub fn of(entry: &JobEntry) -> Result<Self, serde_json::Error> {
        let start = entry.start.as_ref().map(|start| &start.value);
        let used = amounts(|name| entry.used(name));
        let requested = amounts(|name| start?.requested.get(name).copied());
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let (started, ended) = times(entry);
        Ok(Self {
            site: entry.site.clone(),
            job: entry.id.job().to_owned(),
            generation: entry.id.generation().into(),
            owner: entry.user().map(str::to_owned),
            project: entry.project().map(str::to_owned),
            name: text(start.map(|start| &start.name)),
            application: text(start.map(|start| &start.application)),
            queue: text(start.map(|start| &start.queue)),
            state: entry.state().name().to_owned(),
            exit: entry.exit_type().map(|exit| exit_name(exit).to_owned()),
            started,
            ended,
            nodes: number(entry.nodes.len() as u64),
            samples: number(entry.samples),
            lost: number(entry.lost),
            used: serde_json::to_string(&used)?,
            requested: serde_json::to_string(&requested)?,
        })
    }
}

/// Returns the times of an entry, without those that have a meaning of their own.
fn times(entry: &JobEntry) -> (i64, i64) {
    let within = |nanos: i64| nanos.clamp(NEVER + 1, NOT_ENDED - 1);
    match (entry.started(), entry.ended()) {
        (None, None) => (NEVER, NEVER),
        (started, ended) => (
            started.map_or(NEVER + 1, |at| within(at.as_nanos())),
            ended.map_or(NOT_ENDED, |at| within(at.as_nanos())),
        ),
    }
}

fn amounts(value: impl Fn(&str) -> Option<f64>) -> BTreeMap<&'static str, f64> {
    RESOURCES.iter().filter_map(|r| Some((r.name, value(r.name)?))).collect()
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
