//! The file of the learned weights of a profile, with which the next start of the agent goes on.
//!
//! # Layout
//! `PROFILE.json` in the folder of the node's ranks: a JSON object with `version`, `metrics` (their names, in the order of
//! the weights) and `experience`. `PROFILE.json.new` is the next one while it is written. `PROFILE.json.unread` is the last one
//! that could not be read.
//!
//! # Invariants
//! - The file is replaced as a whole, on a thread of its own, once in [`SAVE_EVERY`] and at the end of the agent.
//! - A file that cannot be read leaves the weights at their start, and is counted. The first write moves it aside, because a
//!   newer program, or a disk that works again, can read it. Other metrics in the configuration leave the weights at their
//!   start too; this is not counted, and the file is replaced.
//! - A write that fails is tried again after [`SAVE_EVERY`] and at the end of the agent, also without new outcomes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_steer::rank::{Experience, Ranker};

use super::background::Background;

/// The version of the layout.
const VERSION: u32 = 1;

/// Time between two writes: `kill -9` loses the outcomes of a minute, and weights follow the last thousands.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(60);

/// Largest file that is read: 32 metrics have two numbers and a name each, some kilobytes in all.
const MAX_BYTES: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    metrics: Vec<String>,
    experience: Experience,
}

/// The file of a profile whose weights are learned.
pub(super) struct LearnedFile {
    metrics: Vec<String>,
    writer: Background,
    /// Number of outcomes at the last attempt to write.
    saved: f64,
    save_at: Duration,
    /// The reason why the file could not be read.
    unread: Option<String>,
}

impl LearnedFile {
    /// Has `ranker` go on with the weights of the file at `path`, if there is one, and keeps them there; `None` if its method
    /// does not learn.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn open(path: &Path, ranker: &mut Ranker) -> io::Result<Option<Self>> {
        if ranker.experience().is_none() {
            return Ok(None);
        }
        let metrics: Vec<String> =
            ranker.profile().metrics.iter().map(|m| m.name.clone()).collect();
        let restored = read(path).and_then(|content| match content {
            Some(content) if content.metrics == metrics => {
                ranker.restore(&content.experience).map_err(|e| e.to_string())
            }
            _ => Ok(()),
        });
        let unread = restored.err().map(|reason| format!("{}: {reason}", path.display()));
        let saved = ranker.experience().map_or(0.0, |experience| experience.outcomes);
        let (path, mut is_unread) = (path.to_path_buf(), unread.is_some());
        let writer = Background::start(move |text| {
            if is_unread {
                move_aside(&path)?;
                is_unread = false;
            }
            replace(&path, text)
        })?;
        Ok(Some(Self { metrics, writer, saved, save_at: Duration::ZERO, unread }))
    }

    /// Returns the reason why the file could not be read at the start.
    pub(super) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }

    /// Returns how often the file could not be read or written.
    pub(super) fn failures(&self) -> u64 {
        u64::from(self.unread.is_some()) + self.writer.left_out()
    }

    /// Has the weights written if it is time, `now` on the monotonic clock.
    pub(super) fn save_when_due(&mut self, ranker: &Ranker, now: Duration) {
        if now >= self.save_at {
            self.save_at = now + SAVE_EVERY;
            self.save(ranker);
        }
    }

    /// Has the weights written if there were outcomes since the last attempt, or it failed.
    pub(super) fn save(&mut self, ranker: &Ranker) {
        let Some(experience) = ranker.experience() else { return };
        if experience.outcomes <= self.saved && self.writer.error().is_none() {
            return;
        }
        self.saved = experience.outcomes;
        let content = Content { version: VERSION, metrics: self.metrics.clone(), experience };
        // Names and numbers always have a JSON form.
        if let Ok(text) = serde_json::to_string(&content) {
            self.writer.push(text);
        }
    }

    /// Ends the file: what waits is still written.
    pub(super) fn close(&mut self) {
        self.writer.close();
    }

    /// Waits for a file that is closed, until a point in time. Returns false if the last weights are not written then.
    pub(super) fn end(&self, until: Instant) -> bool {
        self.writer.end(until) == 0
    }
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Content>, String> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| e.to_string())?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    let content: Content = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    match content.version {
        VERSION => Ok(Some(content)),
        other => Err(format!("it has version {other}; this program reads version {VERSION}")),
    }
}

/// Moves a file that could not be read aside. An earlier one there is lost.
fn move_aside(path: &Path) -> io::Result<()> {
    match fs::rename(path, beside(path, ".unread")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

/// Returns the path with a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Replaces the file as a whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let new = beside(path, ".new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
