//! A kernel file that several sensors need, such as `/proc/stat`: the first sensor of a tick reads
//! it, and the others use the same text.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::unpoisoned;

use crate::file::KernelFile;
use crate::sensor::Skip;

/// The path of a file that sensors may share. The first sensor that wants it opens it.
pub(crate) struct Shareable {
    path: PathBuf,
    opened: Option<SharedFile>,
}

impl Shareable {
    /// Returns a file that is not open yet.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), opened: None }
    }

    /// Returns the open file. If it cannot be opened, returns a skip of `what` with the reason.
    pub(crate) fn open_or_skip(&mut self, what: &str) -> Result<SharedFile, Skip> {
        if let Some(file) = &self.opened {
            return Ok(file.clone());
        }
        let file = KernelFile::open_or_skip(&self.path, what)?;
        let file = SharedFile(Arc::new(Mutex::new(Content { file, read_at: None })));
        Ok(self.opened.insert(file).clone())
    }
}

/// A file that the kernel makes in one go (see [`read_record`](crate::file::read_record)), shared by
/// sensors.
#[derive(Clone)]
pub(crate) struct SharedFile(Arc<Mutex<Content>>);

struct Content {
    file: KernelFile,
    /// The time of the tick that read it.
    read_at: Option<Duration>,
}

impl SharedFile {
    /// Passes the content to `take`: as it is now for the first call with the time `monotonic`, and
    /// the same text for further calls with that time. Sensors that are polled together have the
    /// same time.
    pub(crate) fn with<T>(
        &self,
        monotonic: Duration,
        take: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let mut content = unpoisoned(self.0.lock());
        if content.read_at != Some(monotonic) {
            content.read_at = None;
            content.file.read_record()?;
            content.read_at = Some(monotonic);
        }
        Ok(take(content.file.last()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_that_are_polled_together_see_the_same_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stat");
        std::fs::write(&path, "1\n").expect("writable");
        let mut shareable = Shareable::at(&path);
        let [first, second] = ["a", "b"].map(|what| shareable.open_or_skip(what).expect("open"));
        let read = |file: &SharedFile, at| {
            file.with(Duration::from_secs(at), <[u8]>::to_vec).expect("readable")
        };
        assert_eq!(read(&first, 1), b"1\n");
        std::fs::write(&path, "2\n").expect("writable");
        assert_eq!(read(&second, 1), b"1\n");
        assert_eq!((read(&second, 2), read(&first, 2)), (b"2\n".into(), b"2\n".into()));
        std::fs::remove_file(&path).expect("writable");
        let gone = Shareable::at(&path).open_or_skip("cpu").err().expect("it is gone");
        assert!(gone.what == "cpu" && gone.reason.contains("No such file"), "{gone:?}");
    }
}
