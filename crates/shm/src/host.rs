//! Everything that is published on this machine, whoever publishes it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, Topic, TopicPattern};

use crate::dir;
use crate::error::Error;
use crate::segment::Segment;
use crate::subscribe::{LONGEST_SLEEP, wait_for_any};
use crate::sys::{MAX_WORDS, sleep_on_any};
use crate::vertex::Vertex;
use crate::wait::{Bell, settle};

/// How long to sleep between two looks where the kernel cannot sleep on all segments at once.
const ROUND: Duration = Duration::from_millis(2);

/// The live segments of the runtime directories.
#[derive(Debug)]
pub struct Host {
    dirs: Vec<PathBuf>,
    segments: Vec<Segment>,
    refused: Vec<Error>,
    /// Names of segments that are not looked at.
    left_out: Vec<String>,
}

/// The segments of a [`Host`] and the version of each one's directory, as [`Host::changes`] last
/// returned them. The default is that of a host without segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentVersions(Vec<(PathBuf, Timestamp, u64)>);

impl SegmentVersions {
    fn is_of(&self, segments: &[Segment]) -> bool {
        let same =
            |(segment, (path, created_at, version)): (&Segment, &(PathBuf, Timestamp, u64))| {
                segment.directory_version() == *version
                    && segment.created_at() == *created_at
                    && segment.path() == path
            };
        segments.len() == self.0.len() && segments.iter().zip(&self.0).all(same)
    }
}

impl Host {
    /// Opens what is published in the directories of [`crate::search_path`].
    ///
    /// # Errors
    /// As [`Host::open_dirs`].
    pub fn open() -> Result<Self, Error> {
        Self::open_dirs(dir::search_path())
    }

    /// Opens what is published in these directories. A directory that is not there holds nothing.
    ///
    /// # Errors
    /// With one directory, [`Error::Owner`] or [`Error::Permissions`] if it cannot be trusted and
    /// [`Error::Io`] if it cannot be listed. With several, those are among the
    /// [`refused`](Self::refused).
    pub fn open_dirs(dirs: Vec<PathBuf>) -> Result<Self, Error> {
        let mut host =
            Self { dirs, segments: Vec::new(), refused: Vec::new(), left_out: Vec::new() };
        host.refresh()?;
        Ok(host)
    }

    /// Without the segments of this name, now and later. May be said of several.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.segments.retain(|segment| segment.name() != name);
        self.left_out.push(name.to_owned());
        self
    }

    /// Looks again: new segments appear, dead ones go. Handles of vertices stay as they are.
    ///
    /// # Errors
    /// As [`Host::open_dirs`].
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.refused.clear();
        let alone = self.dirs.len() == 1;
        self.segments.retain(Segment::is_alive);
        for dir in &self.dirs {
            if !dir.exists() {
                continue;
            }
            // A directory that cannot be trusted is no reason to keep this user from the others:
            // anybody can make one where the system agent's would be.
            let files = match dir::check_owner(dir).and_then(|_| dir::segment_files(dir)) {
                Ok(files) => files,
                Err(e) if alone => return Err(e),
                Err(e) => {
                    self.refused.push(e);
                    continue;
                }
            };
            for path in files {
                let is_known = self.segments.iter().any(|s| s.path() == path);
                let is_left_out = |name: &String| path == dir::segment_path(dir, name);
                if is_known || self.left_out.iter().any(is_left_out) {
                    continue;
                }
                match Segment::open(&path) {
                    Ok(segment) if segment.is_alive() => self.segments.push(segment),
                    Ok(_) => {}
                    Err(e) => self.refused.push(e),
                }
            }
        }
        self.segments.sort_by_key(Segment::created_at);
        Ok(())
    }

    /// The live segments, the oldest first.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the versions of the segments if they differ from `since`: a segment came or went at
    /// the last [`refresh`](Self::refresh), or a vertex was registered or unregistered since.
    ///
    /// A reader that keeps a list of vertices starts from the default, and makes its list anew
    /// whenever this is not `None`. Costs a load a segment and no system call; allocates only if
    /// there is a change.
    ///
    /// ```
    /// # use skopos_shm::{Host, Publisher, SegmentVersions};
    /// # let dir = std::env::temp_dir().join(format!("skopos-doc-changes-{}", std::process::id()));
    /// # let publisher = Publisher::builder("my-service").dir(&dir).create()?;
    /// let mut host = Host::open_dirs(vec![dir.clone()])?;
    /// let mut seen = SegmentVersions::default();
    /// let mut topics = Vec::new();
    /// // … once a second:
    /// host.refresh()?;
    /// if let Some(versions) = host.changes(&seen) {
    ///     seen = versions;
    ///     topics = host.segments().iter().flat_map(|segment| segment.vertices()).collect();
    /// }
    /// # assert!(topics.is_empty() && host.changes(&seen).is_none());
    /// # drop(publisher); std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), skopos_shm::Error>(())
    /// ```
    pub fn changes(&self, since: &SegmentVersions) -> Option<SegmentVersions> {
        if since.is_of(&self.segments) {
            return None;
        }
        let version = |s: &Segment| (s.path().to_path_buf(), s.created_at(), s.directory_version());
        Some(SegmentVersions(self.segments.iter().map(version).collect()))
    }

    /// Files that look like segments and cannot be read, and directories that cannot be trusted,
    /// each with its reason.
    pub fn refused(&self) -> &[Error] {
        &self.refused
    }

    /// The vertex of `topic`; if several segments have it, the oldest one's.
    ///
    /// # Errors
    /// [`Error::NoVertex`].
    pub fn find(&self, topic: &Topic) -> Result<Vertex, Error> {
        self.segments
            .iter()
            .find_map(|segment| segment.find(topic).ok())
            .ok_or_else(|| Error::NoVertex(topic.clone()))
    }

    /// The vertices that `pattern` selects, by topic; as [`find`](Self::find), one a topic.
    pub fn select(&self, pattern: &TopicPattern) -> Vec<Vertex> {
        let mut found: Vec<Vertex> = self
            .segments
            .iter()
            .flat_map(Segment::vertices)
            .filter(|vertex| pattern.matches(vertex.topic()))
            .collect();
        // Stable, so the oldest segment's comes first.
        found.sort_by(|a, b| a.topic().cmp(b.topic()));
        found.dedup_by(|later, first| later.topic() == first.topic());
        found
    }

    /// Sleeps until `ready` finds something or `timeout` passes; `ready` is asked whenever anything
    /// is published, registered or unregistered. True if `ready` did find something.
    pub fn wait(&self, timeout: Duration, mut ready: impl FnMut() -> bool) -> bool {
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return ready();
            }
            match self.segments.as_slice() {
                [] => {
                    std::thread::sleep(left.min(ROUND));
                    if ready() {
                        return true;
                    }
                }
                [only] => {
                    if wait_for_any(only, left, &mut ready) {
                        return true;
                    }
                }
                several => {
                    if wait_for_one_of(several, left.min(LONGEST_SLEEP), &mut ready) {
                        return true;
                    }
                }
            }
        }
    }
}

/// True as soon as `ready` is; false after a time-out or for no reason at all.
fn wait_for_one_of(
    segments: &[Segment],
    timeout: Duration,
    mut ready: impl FnMut() -> bool,
) -> bool {
    let bell =
        |segment| Some(Bell { flag: Segment::flag(segment, None)?, epoch: &segment.live().epoch });
    let bells: Option<Vec<Bell<'_>>> = segments.iter().map(bell).collect();
    let Some(bells) = bells.filter(|bells| bells.len() <= MAX_WORDS) else {
        // Somebody in this company cannot wake anybody.
        std::thread::sleep(timeout.min(ROUND));
        return ready();
    };
    let words: Vec<_> = bells.iter().map(|bell| (bell.epoch, bell.raise())).collect();
    settle();
    if ready() {
        return true;
    }
    if !sleep_on_any(&words, timeout) {
        std::thread::sleep(timeout.min(ROUND));
    }
    ready()
}
