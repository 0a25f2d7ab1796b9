//! `page_cache`: the part of watched files that is in memory, by cachestat(2) (Linux 6.5).
//!
//! A file is kept open. When another file has its name, that one is opened instead. The kernel answers for files that the
//! agent owns or may write. A file that cannot be opened or asked is a skip, and is tried again every minute.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::schema::Family;
use skopos_model::schema::page_cache::{self, *};

use crate::host_settings::MAX_WATCHED;
use crate::instances::Instances;
use crate::rarely::Rarely;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::sys::cached_pages;

/// The time after which a file that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(60);

pub(crate) struct PageCache {
    files: Vec<Watched>,
    left_out: usize,
    facts: Instances<()>,
    page_bytes: u64,
}

struct Watched {
    path: PathBuf,
    state: Result<File, String>,
    due: Rarely,
}

impl PageCache {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if root.watched.is_empty() {
            return Err(Skip::new("page_cache", "no files are watched"));
        }
        let paths = root.watched.iter().take(MAX_WATCHED);
        let watch = |path: &PathBuf| Watched {
            path: path.clone(),
            state: Err("not opened yet".to_owned()),
            due: Rarely::every(RETRY),
        };
        Ok(Self {
            files: paths.map(watch).collect(),
            left_out: root.watched.len().saturating_sub(MAX_WATCHED),
            facts: Instances::new(&page_cache::FAMILY, MAX_WATCHED),
            page_bytes: rustix::param::page_size() as u64,
        })
    }
}

impl Watched {
    /// Returns the open file, with its size. Opens it if that is due, or if another file has its name now.
    fn file(&mut self, now: Duration) -> Option<(&File, u64)> {
        let named = rustix::fs::stat(&self.path);
        let same = |file: &File| {
            let opened = file.metadata().ok()?;
            let named = named.as_ref().ok()?;
            Some(opened.ino() == named.st_ino && opened.dev() == named.st_dev)
        };
        match &self.state {
            Ok(file) if same(file) == Some(true) => {}
            Err(_) if !self.due.is_due(now) => return None,
            _ => {
                self.due.was_read(now);
                let opened = File::open(&self.path);
                self.state = opened.map_err(|e| format!("{}: {e}", self.path.display()));
            }
        }
        let file = self.state.as_ref().ok()?;
        let size = file.metadata().ok()?.len();
        Some((file, size))
    }
}

impl Sensor for PageCache {
    fn family(&self) -> &'static Family {
        &page_cache::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { files, facts, page_bytes, .. } = self;
        facts.begin();
        for watched in files {
            let Some((file, size)) = watched.file(tick.monotonic) else { continue };
            let pages = match cached_pages(file) {
                Ok(pages) => pages,
                Err(e) => {
                    watched.state = Err(format!("{}: cachestat: {e}", watched.path.display()));
                    continue;
                }
            };
            let name = watched.path.as_os_str().as_bytes();
            let Some(file) = facts.see(tick.sink, name, || ()) else { continue };
            let bytes = |pages: u64| pages.saturating_mul(*page_bytes);
            let all = size.div_ceil(*page_bytes);
            file.set(tick, &SIZE_BYTES, size);
            file.set(tick, &RESIDENT_BYTES, bytes(pages.resident));
            file.set(tick, &DIRTY_BYTES, bytes(pages.dirty));
            file.set(tick, &WRITEBACK_BYTES, bytes(pages.writeback));
            file.set(tick, &EVICTED_BYTES, bytes(pages.evicted));
            file.set(tick, &RECENTLY_EVICTED_BYTES, bytes(pages.recently_evicted));
            let ratio = (all > 0).then(|| (pages.resident as f64 / all as f64).min(1.0));
            file.set_or_unset(tick, &RESIDENT_RATIO, ratio);
        }
        facts.end(tick.sink);
        Ok(())
    }

    /// A file may lie on a file system that hangs.
    fn may_block(&self) -> bool {
        true
    }

    fn skips(&self) -> Vec<Skip> {
        let unread = self.files.iter().filter_map(|watched| watched.state.as_ref().err());
        let mut skips: Vec<Skip> =
            unread.map(|reason| Skip::new("page_cache/*", reason.as_str())).collect();
        if self.left_out > 0 {
            let reason = format!("{} files beyond the first {MAX_WATCHED}", self.left_out);
            skips.push(Skip::new("page_cache/*", reason));
        }
        skips.extend(self.facts.skips());
        skips
    }
}
