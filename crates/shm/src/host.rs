//! Everything that is published on this machine, whoever publishes it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use skopos_model::{Topic, TopicPattern};

use crate::segment::Segment;
use crate::subscribe::wait_for_any;
use crate::vertex::Vertex;
use crate::{Error, dir};

/// With several segments, how long to sleep on one before looking at the others.
const ROUND: Duration = Duration::from_millis(2);

/// The live segments of the runtime directories.
#[derive(Debug)]
pub struct Host {
    dirs: Vec<PathBuf>,
    segments: Vec<Segment>,
    refused: Vec<Error>,
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
    /// [`Error::Owner`] or [`Error::Permissions`] for a directory that cannot be trusted;
    /// [`Error::Io`] for one that cannot be listed.
    pub fn open_dirs(dirs: Vec<PathBuf>) -> Result<Self, Error> {
        let mut host = Self { dirs, segments: Vec::new(), refused: Vec::new() };
        host.refresh()?;
        Ok(host)
    }

    /// Looks again: new segments appear, dead ones go. Handles of vertices stay as they are.
    ///
    /// # Errors
    /// As [`Host::open_dirs`].
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.refused.clear();
        self.segments.retain(Segment::is_alive);
        for dir in &self.dirs {
            if !dir.exists() {
                continue;
            }
            dir::check_owner(dir)?;
            for path in dir::segment_files(dir)? {
                if self.segments.iter().any(|s| s.path() == path) {
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

    /// Files in the directories that look like segments and cannot be read, each with its reason.
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

    /// The vertices that `pattern` selects, by topic.
    pub fn select(&self, pattern: &TopicPattern) -> Vec<Vertex> {
        let mut found: Vec<Vertex> = self
            .segments
            .iter()
            .flat_map(Segment::vertices)
            .filter(|vertex| pattern.matches(vertex.topic()))
            .collect();
        found.sort_by(|a, b| a.topic().cmp(b.topic()));
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
                    for segment in several {
                        if wait_for_any(segment, left.min(ROUND), &mut ready) {
                            return true;
                        }
                    }
                }
            }
        }
    }
}
