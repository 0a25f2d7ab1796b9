//! Segments whose publishers ended without closing them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::dir::{DirLock, segment_files};
use crate::error::Error;
use crate::layout::{STATE_CLOSED, STATE_OFFSET};
use crate::segment::Segment;
use crate::sys;

/// Removes the segments of dead publishers and incomplete files in `dir`. Returns the number of segments.
/// The caller holds the directory's lock, so no process makes a segment meanwhile.
pub(crate) fn remove_dead(dir: &Path, _lock: &DirLock) -> Result<u32, Error> {
    let mut removed = 0;
    for path in segment_files(dir)? {
        let Ok(file) = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
        else {
            continue;
        };
        let segment = Segment::open(&path);
        let is_held = match &segment {
            // A publisher that is closing its segment removes the file by itself. If it were removed here as well, a
            // new one could get the name in between, and the old publisher would remove that.
            Ok(segment) => segment.is_held(),
            // Of another layout, or damaged: the lock means the same in all of them.
            Err(_) => sys::is_locked(&file).map_err(Error::io(&path, "cannot query its lock"))?,
        };
        if !is_held {
            if let Ok(segment) = segment {
                close(&segment, &file);
            }
            let _ = fs::remove_file(&path);
            removed += 1;
        }
    }
    for entry in fs::read_dir(dir).map_err(Error::io(dir, "cannot list it"))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "new") {
            let _ = fs::remove_file(path);
        }
    }
    Ok(removed)
}

/// Closes a dead segment in place of its publisher: readers that still map it find its vertices gone. They
/// are written through the file, so that a damaged offset is an error here and not a signal.
fn close(segment: &Segment, file: &File) {
    for vertex in segment.vertices() {
        let _ = file.write_all_at(&0u64.to_le_bytes(), vertex.owner_offset());
    }
    let _ = file.write_all_at(&STATE_CLOSED.to_le_bytes(), STATE_OFFSET);
}
