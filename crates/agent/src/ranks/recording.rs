//! The recording of a profile: reported outcomes with the values behind the choice, for `skopos rank replay`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use skopos_steer::rank::replay::{Header, Record, VERSION};
use skopos_steer::rank::{Outcome, Profile, Ranking};

/// Most outcomes that are recorded of one ranking: a line with a thousand candidates has some hundred kilobytes.
const MAX_OF_A_RANKING: u32 = 64;

/// Least cost of a failed request in seconds, the usual patience of a client. A connection that is refused at once is not a
/// fast answer.
const FAILURE_SECONDS: f64 = 1.0;

/// A file of outcomes, which begins again when it is full. The file before it is kept.
pub(super) struct Recording {
    path: PathBuf,
    max_bytes: u64,
    header: String,
    file: Option<File>,
    bytes: u64,
    /// Outcomes of the present ranking.
    of_ranking: u32,
    /// The reason why the file cannot be written.
    error: Option<String>,
}

impl Recording {
    /// Makes a recording at `path`. The file is opened with the first outcome.
    pub(super) fn new(path: &Path, max_bytes: u64, profile: &Profile) -> Self {
        let metrics = profile.metrics.iter().map(|metric| metric.name.clone()).collect();
        // Names and numbers always have a JSON form.
        let header = serde_json::to_string(&Header { version: VERSION, metrics });
        let header = header.unwrap_or_default() + "\n";
        let (path, file) = (path.to_path_buf(), None);
        Self { path, max_bytes, header, file, bytes: 0, of_ranking: 0, error: None }
    }

    /// Returns the reason why the last outcome could not be written.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Notes that there is a new ranking.
    pub(super) fn next_ranking(&mut self) {
        self.of_ranking = 0;
    }

    /// Writes the outcome of a request. Returns false if it is left out.
    pub(super) fn write(
        &mut self,
        ranking: &Ranking,
        names: &[String],
        outcome: &Outcome<'_>,
        probability: Option<f64>,
    ) -> bool {
        if self.of_ranking >= MAX_OF_A_RANKING {
            return false;
        }
        let Some(record) = record(ranking, names, outcome, probability) else { return false };
        let Ok(mut line) = serde_json::to_string(&record) else { return false };
        line.push('\n');
        self.of_ranking += 1;
        let written = self.append(&line);
        self.error = written.as_ref().err().map(|e| format!("{}: {e}", self.path.display()));
        if written.is_err() {
            // A torn line would make the rest of the file unreadable, so the next outcome begins a new one.
            self.file = None;
        }
        written.is_ok()
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64;
        if self.file.is_none() || self.bytes + length > self.max_bytes {
            self.file = Some(self.begin()?);
            self.bytes = self.header.len() as u64;
        }
        self.bytes += length;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()))
    }

    /// Keeps the present file as `PATH.1` and makes a new one.
    fn begin(&self) -> io::Result<File> {
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        match std::fs::rename(&self.path, before) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.write_all(self.header.as_bytes())?;
        Ok(file)
    }
}

/// Makes the record of an outcome; `None` if its candidate could not be chosen.
fn record(
    ranking: &Ranking,
    names: &[String],
    outcome: &Outcome<'_>,
    probability: Option<f64>,
) -> Option<Record> {
    let chosen = names.iter().position(|name| name == outcome.candidate)?;
    let entry = ranking.entries().iter().find(|entry| entry.candidate == chosen)?;
    let probability = probability.unwrap_or(entry.weight);
    if !(probability > 0.0 && probability <= 1.0) {
        return None;
    }
    let cost = if outcome.failed { outcome.seconds.max(FAILURE_SECONDS) } else { outcome.seconds };
    let values = (0..names.len()).map(|at| ranking.values(at).collect()).collect();
    let at = ranking.at().as_nanos();
    Some(Record { at, candidates: names.to_vec(), values, chosen, probability, cost })
}
