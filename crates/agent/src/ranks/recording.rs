//! The recording of a profile: reported outcomes with the values behind the choice, for `skopos rank replay`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use skopos_steer::rank::replay::{Header, Record, VERSION};
use skopos_steer::rank::{Outcome, Profile, Ranking};

use super::background::Background;
use super::record_file::RecordFile;

/// Most outcomes that are recorded of one ranking: a line with a thousand candidates has some hundred kilobytes.
const MAX_OF_A_RANKING: u32 = 64;

/// Least cost of a failed request in seconds, the usual patience of a client. A connection that is refused at once is not a
/// fast answer.
const FAILURE_SECONDS: f64 = 1.0;

/// A file of outcomes, which a thread of its own writes.
pub(super) struct Recording {
    path: PathBuf,
    lines: Background,
    /// Outcomes of the present ranking.
    of_ranking: u32,
    /// Outcomes that made no line.
    left_out: u64,
}

impl Recording {
    /// Makes a recording at `path`. The file is opened with the first outcome.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn new(path: &Path, max_bytes: u64, profile: &Profile) -> io::Result<Self> {
        let metrics = profile.metrics.iter().map(|metric| metric.name.clone()).collect();
        // Names and numbers always have a JSON form.
        let header = serde_json::to_string(&Header { version: VERSION, metrics });
        let header = header.unwrap_or_default() + "\n";
        let mut file = RecordFile::new(path, max_bytes, header);
        let lines = Background::start(move |line| file.append(line))?;
        Ok(Self { path: path.to_path_buf(), lines, of_ranking: 0, left_out: 0 })
    }

    /// Returns the reason why the last outcome could not be written.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.lines.error()?;
        Some(format!("{}: {error}", self.path.display()))
    }

    /// Returns the number of outcomes that were written.
    pub(super) fn recorded(&self) -> u64 {
        self.lines.written()
    }

    /// Returns the number of outcomes that were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out + self.lines.left_out()
    }

    /// Ends the recording: what waits is still written.
    pub(super) fn close(&mut self) {
        self.lines.close();
    }

    /// Waits for a recording that is closed, until a point in time. Returns the number of outcomes that are not written then.
    pub(super) fn end(&self, until: Instant) -> u64 {
        self.lines.end(until)
    }

    /// Notes that there is a new ranking.
    pub(super) fn next_ranking(&mut self) {
        self.of_ranking = 0;
    }

    /// Has the outcome of a request written, or leaves it out and counts it.
    pub(super) fn write(
        &mut self,
        ranking: &Ranking,
        names: &[String],
        outcome: &Outcome<'_>,
        probability: Option<f64>,
    ) {
        match self.line(ranking, names, outcome, probability) {
            Some(line) => self.lines.push(line),
            None => self.left_out += 1,
        }
    }

    fn line(
        &mut self,
        ranking: &Ranking,
        names: &[String],
        outcome: &Outcome<'_>,
        probability: Option<f64>,
    ) -> Option<String> {
        if self.of_ranking >= MAX_OF_A_RANKING {
            return None;
        }
        let record = record(ranking, names, outcome, probability)?;
        let line = serde_json::to_string(&record).ok()?;
        self.of_ranking += 1;
        Some(line + "\n")
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
