//! Raw runs: `bench/runs/DAY-HOST/NAME.json`, as `skopos-bench NAME --json` prints them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::figure::Figure;
use crate::tree::Tree;

const FOLDER: &str = "bench/runs/";

/// Runs by path below `bench/runs`, without the ending: `2026-11-21-vm/score`.
pub(super) struct Runs(BTreeMap<String, Run>);

/// One run of a benchmark.
#[derive(Deserialize)]
pub(super) struct Run {
    /// Path from the root of the repository.
    #[serde(skip)]
    pub(super) path: String,
    bench: String,
    pub(super) date: String,
    pub(super) machine: Machine,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    quick: bool,
    /// Number of rounds, if it is the same for all rows.
    #[serde(default)]
    pub(super) rounds: Option<u32>,
    pub(super) rows: Vec<Row>,
}

/// The machine of a run.
#[derive(Deserialize)]
pub(super) struct Machine {
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) cpu: String,
    pub(super) cores: u32,
    pub(super) memory_bytes: u64,
    /// Version of Skopos and of each peer.
    #[serde(default)]
    pub(super) versions: BTreeMap<String, String>,
}

/// One number with its peers and its goal.
#[derive(Deserialize)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: Figure,
    #[serde(default)]
    pub(super) peers: BTreeMap<String, Figure>,
    #[serde(default)]
    pub(super) ratio: Option<f64>,
    #[serde(default)]
    pub(super) goal: Option<String>,
    #[serde(default)]
    pub(super) met: Option<bool>,
}

impl Runs {
    /// Reads all runs. An error is the path of the first that cannot be read, and why.
    pub(super) fn read(tree: &Tree) -> Result<Self, (String, String)> {
        let mut runs = BTreeMap::new();
        for file in &tree.files {
            let name = file.path.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".json"));
            let Some(name) = name else { continue };
            let mut run: Run = serde_json::from_str(&file.text)
                .map_err(|error| (file.path.clone(), error.to_string()))?;
            run.path.clone_from(&file.path);
            runs.insert(name.to_owned(), run);
        }
        Ok(Self(runs))
    }

    /// The newest full run of `bench`, or the one in `folder`, which may name another file in it:
    /// `2026-11-21-vm` or `2026-11-21-vm/agent-slow-host`.
    pub(super) fn find(&self, bench: &str, folder: Option<&str>) -> Result<&Run, String> {
        if let Some(folder) = folder {
            let name =
                if folder.contains('/') { folder.to_owned() } else { format!("{folder}/{bench}") };
            let run = self.0.get(&name).filter(|run| run.bench == bench);
            return run
                .ok_or_else(|| format!("there is no run of `{bench}` in {FOLDER}{name}.json"));
        }
        let in_own_file = |(name, run): &(&String, &Run)| {
            run.bench == bench && !run.quick && name.ends_with(&format!("/{bench}"))
        };
        let runs = self.0.iter().filter(in_own_file).map(|(_, run)| run);
        runs.max_by(|a, b| a.date.cmp(&b.date))
            .ok_or_else(|| format!("there is no full run of `{bench}` in {FOLDER}"))
    }
}

impl Run {
    /// The day of the run: `2026-11-21`.
    pub(super) fn day(&self) -> &str {
        self.date.get(..10).unwrap_or(&self.date)
    }
}
