//! All segments that are published on this machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, Topic, TopicPattern};

use crate::dir::{self, DirStamp};
use crate::error::Error;
use crate::segment::Segment;
use crate::subscribe::{LONGEST_SLEEP, wait_for_any};
use crate::sys::{MAX_WORDS, Naps, sleep_on_any};
use crate::vertex::Vertex;
use crate::wait::Bell;

/// The live segments of the runtime directories.
#[derive(Debug)]
pub struct Host {
    dirs: Vec<PathBuf>,
    segments: Vec<Segment>,
    refused: Vec<Error>,
    /// Names of segments that are ignored.
    left_out: Vec<String>,
    /// The state of each directory that needs no other look while it is the same.
    settled: Vec<Option<DirStamp>>,
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
    /// Opens the segments in the directories of [`crate::search_path`].
    ///
    /// # Errors
    /// The errors of [`Host::open_dirs`].
    pub fn open() -> Result<Self, Error> {
        Self::open_dirs(dir::search_path())
    }

    /// Opens the segments in these directories. A directory that does not exist counts as empty.
    ///
    /// # Errors
    /// With one directory, [`Error::Owner`] or [`Error::Permissions`] if it cannot be trusted and
    /// [`Error::Io`] if it cannot be listed. With several, [`refused`](Self::refused) returns these
    /// errors.
    pub fn open_dirs(dirs: Vec<PathBuf>) -> Result<Self, Error> {
        let settled = vec![None; dirs.len()];
        let (segments, refused, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut host = Self { dirs, segments, refused, left_out, settled };
        host.refresh()?;
        Ok(host)
    }

    /// Leaves out the segments of this name, now and later. May be called for several names.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.segments.retain(|segment| segment.name() != name);
        self.left_out.push(name.to_owned());
        self
    }

    /// Reads the directories again, if files came or went: adds new segments and removes dead ones. Handles of vertices
    /// stay valid.
    ///
    /// # Errors
    /// The errors of [`Host::open_dirs`].
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.refused.clear();
        let alone = self.dirs.len() == 1;
        let before = self.segments.len();
        self.segments.retain(Segment::is_alive);
        if self.segments.len() < before {
            // A segment that only seemed dead is found again.
            self.settled.iter_mut().for_each(|settled| *settled = None);
        }
        for (dir, settled) in self.dirs.iter().zip(&mut self.settled) {
            // Taken before the files are listed: a file that comes meanwhile changes it.
            let before = settled.take();
            let Some(stamp) = DirStamp::of(dir) else { continue };
            if before == Some(stamp) {
                *settled = before;
                continue;
            }
            // A directory that cannot be trusted must not keep this user from the others: any user can
            // make a directory at the path of the system agent's.
            let files = match dir::check_owner(dir).and_then(|_| dir::segment_files(dir)) {
                Ok(files) => files,
                Err(e) if alone => return Err(e),
                Err(e) => {
                    self.refused.push(e);
                    continue;
                }
            };
            let mut is_settled = stamp.is_old();
            for path in files {
                let is_known = self.segments.iter().any(|s| s.path() == path);
                let is_left_out = |name: &String| path == dir::segment_path(dir, name);
                if is_known || self.left_out.iter().any(is_left_out) {
                    continue;
                }
                match Segment::open(&path) {
                    Ok(segment) if segment.is_alive() => self.segments.push(segment),
                    // Looked at again: its publisher may not be ready.
                    Ok(_) => is_settled = false,
                    Err(e) => {
                        is_settled = false;
                        self.refused.push(e);
                    }
                }
            }
            *settled = is_settled.then_some(stamp);
        }
        self.segments.sort_by_key(Segment::created_at);
        Ok(())
    }

    /// Returns the live segments, the oldest first.
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

    /// Returns the reasons for files that look like segments and cannot be read, and for directories that
    /// cannot be trusted.
    pub fn refused(&self) -> &[Error] {
        &self.refused
    }

    /// Returns the vertex of `topic`; if several segments have the topic, the vertex of the oldest segment.
    ///
    /// # Errors
    /// [`Error::NoVertex`].
    pub fn find(&self, topic: &Topic) -> Result<Vertex, Error> {
        self.segments
            .iter()
            .find_map(|segment| segment.find(topic).ok())
            .ok_or_else(|| Error::NoVertex(topic.clone()))
    }

    /// Returns the vertex of `topic`, which may lack the name of the node: `mem/available_bytes` finds
    /// `n01/mem/available_bytes` on node `n01`. A whole topic comes first, then the oldest segment.
    ///
    /// # Errors
    /// [`Error::NoVertex`]; [`Error::Model`] if `topic` is not a topic.
    pub fn lookup(&self, topic: &str) -> Result<Vertex, Error> {
        let whole: Topic = topic.parse()?;
        if let Ok(vertex) = self.find(&whole) {
            return Ok(vertex);
        }
        let below = |segment: &Segment| {
            let topic = format!("{}/{topic}", segment.node()).parse().ok()?;
            segment.find(&topic).ok()
        };
        self.segments.iter().find_map(below).ok_or(Error::NoVertex(whole))
    }

    /// Returns the vertex that [`lookup`](Self::lookup) finds, also if its publisher starts or registers it within
    /// `timeout`.
    ///
    /// # Errors
    /// The errors of [`lookup`](Self::lookup) and [`refresh`](Self::refresh).
    pub fn wait_for(&mut self, topic: &str, timeout: Duration) -> Result<Vertex, Error> {
        let mut found = self.lookup(topic);
        let is_missing = |found: &Result<Vertex, Error>| matches!(found, Err(Error::NoVertex(_)));
        if is_missing(&found) {
            self.wait_and_look(timeout, |host| {
                found = host.lookup(topic);
                !is_missing(&found)
            })?;
        }
        found
    }

    /// Like [`wait`](Self::wait), and looks for new publishers and dead ones meanwhile, ten times a second.
    ///
    /// # Errors
    /// The errors of [`refresh`](Self::refresh).
    pub fn wait_and_look(
        &mut self,
        timeout: Duration,
        mut ready: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Error> {
        let started = Instant::now();
        loop {
            self.refresh()?;
            let left = timeout.saturating_sub(started.elapsed());
            if self.wait(left.min(LONGEST_SLEEP), || ready(self)) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Returns the vertices that `pattern` selects, sorted by topic; one for each topic, chosen as by
    /// [`find`](Self::find).
    pub fn select(&self, pattern: &TopicPattern) -> Vec<Vertex> {
        let mut found: Vec<Vertex> = self
            .segments
            .iter()
            .flat_map(Segment::vertices)
            .filter(|vertex| pattern.matches(vertex.topic()))
            .collect();
        // The sort is stable, so the vertex of the oldest segment comes first.
        found.sort_by(|a, b| a.topic().cmp(b.topic()));
        found.dedup_by(|later, first| later.topic() == first.topic());
        found
    }

    /// Sleeps until `ready` returns true or `timeout` passes; calls `ready` whenever anything is published,
    /// registered or unregistered. Returns the last result of `ready`.
    pub fn wait(&self, timeout: Duration, ready: impl FnMut() -> bool) -> bool {
        self.wait_with_naps(timeout, LONGEST_SLEEP, ready)
    }

    /// Waits as [`wait`](Self::wait) does, but calls `ready` only when it is woken, and not ten times a second. A process
    /// that may raise the flag of a segment can lower it as well; then only the end of `timeout` ends this wait.
    pub fn wait_for_wake(&self, timeout: Duration, ready: impl FnMut() -> bool) -> bool {
        self.wait_with_naps(timeout, Duration::MAX, ready)
    }

    fn wait_with_naps(
        &self,
        timeout: Duration,
        longest: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let (started, mut naps) = (Instant::now(), Naps::new());
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return ready();
            }
            match self.segments.as_slice() {
                [] => {
                    // Nothing can be published.
                    std::thread::sleep(left.min(LONGEST_SLEEP));
                    if ready() {
                        return true;
                    }
                }
                [only] => {
                    if wait_for_any(only, (left.min(longest), &mut naps), &mut ready) {
                        return true;
                    }
                }
                several => {
                    if wait_for_one_of(several, (left.min(longest), &mut naps), &mut ready) {
                        return true;
                    }
                }
            }
        }
    }
}

/// Sleeps on several segments. Returns true as soon as `ready` does, and false after the timeout or early
/// without a reason.
fn wait_for_one_of(
    segments: &[Segment],
    (timeout, naps): (Duration, &mut Naps),
    mut ready: impl FnMut() -> bool,
) -> bool {
    let bell =
        |segment| Some(Bell { flag: Segment::flag(segment, None)?, epoch: &segment.live().epoch });
    let bells: Option<Vec<Bell<'_>>> = segments.iter().map(bell).collect();
    let Some(bells) = bells.filter(|bells| bells.len() <= MAX_WORDS) else {
        // One of these publishers cannot wake waiters.
        naps.take(timeout);
        return ready();
    };
    let words: Vec<_> = bells.iter().map(|bell| (bell.epoch, bell.raise())).collect();
    Segment::announce(segments);
    if ready() {
        return true;
    }
    if !sleep_on_any(&words, timeout) {
        naps.take(timeout);
    }
    ready()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publisher::Publisher;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has another user id than the owner of its files")]
    fn a_directory_that_did_not_change_is_not_listed_and_a_new_segment_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = |name: &str| Publisher::builder(name).dir(dir.path()).node("n01").create();
        let _first = publisher("first").expect("a segment");
        let mut host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        assert_eq!(host.settled, [None], "another file may come in the same moment");
        let begun = Instant::now();
        while host.settled == [None] {
            assert!(begun.elapsed() < Duration::from_secs(60), "the directory is never old");
            std::thread::sleep(Duration::from_millis(50));
            host.refresh().expect("it can be read");
        }
        let settled = host.settled.clone();
        host.refresh().expect("it can be read");
        assert_eq!((&host.settled, host.segments().len()), (&settled, 1));
        let second = publisher("second").expect("a segment");
        host.refresh().expect("it can be read");
        assert_eq!((&host.settled[..], host.segments().len()), (&[None][..], 2));
        drop(second);
        host.refresh().expect("it can be read");
        assert_eq!(host.segments().len(), 1);
    }
}
