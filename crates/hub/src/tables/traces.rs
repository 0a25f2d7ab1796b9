//! The trace behind `spans` and `callpaths`.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skopos_access::{Action, may};
use skopos_query::{BoxError, Scan};
use skopos_rpc::analysis::loader::Loader;
use skopos_rpc::folder::Folder;

/// Opens the traces in `folder` for the caller of a scan; `None` if nothing was collected yet.
///
/// A trace names no user, so all traces belong to the owner of the hub.
pub(super) fn folder(scan: &Scan, folder: Option<&Path>) -> Result<Option<Folder>, BoxError> {
    may(scan.caller(), Action::ReadJob { owner: None, project: None })?;
    let is_there = |folder: &&Path| {
        folder.read_dir().is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()))
    };
    Ok(folder.filter(is_there).map(Folder::open).transpose()?)
}

/// Files of a trace that end at once when nobody wants the rest of them.
pub(super) struct Stoppable {
    files: Box<dyn Loader + Send>,
    is_stopped: Arc<AtomicBool>,
}

impl Stoppable {
    /// Wraps `files`, which end once the flag is true.
    pub(super) fn new(files: impl Loader + Send + 'static) -> (Self, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(false));
        (Self { files: Box::new(files), is_stopped: flag.clone() }, flag)
    }
}

struct File<'f> {
    file: Box<dyn Read + 'f>,
    is_stopped: &'f AtomicBool,
}

impl Read for File<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => Ok(0),
            false => self.file.read(buffer),
        }
    }
}

impl Loader for Stoppable {
    fn names(&self) -> &[String] {
        self.files.names()
    }

    fn open(&self, index: usize) -> io::Result<Box<dyn Read + '_>> {
        let file = self.files.open(index)?;
        Ok(Box::new(File { file, is_stopped: &self.is_stopped }))
    }

    fn bytes(&self) -> u64 {
        self.files.bytes()
    }
}
