//! Traces in folders: the files `*.sktrace` of a folder, or of one run.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::loader::Loader;
use crate::error::Error;
use crate::file::TRACE_ENDING;

/// The most files of a trace: ten parts of each of ten thousand processes. Analyses read every file several times.
pub const MAX_FILES: usize = 100_000;

/// Read at once from a file: a block of records.
const BUFFER_BYTES: usize = 256 << 10;

/// The files of a trace on disk, by name.
#[derive(Clone, Debug)]
pub struct Folder {
    paths: Vec<PathBuf>,
    names: Vec<String>,
    bytes: u64,
}

impl Folder {
    /// Lists the traces in `path`, which is a folder or one file. Folders in a folder are not read.
    ///
    /// # Errors
    /// `path` cannot be read, has no trace, or has more than [`MAX_FILES`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let about = path.metadata().map_err(Error::io(path, "the trace cannot be read"))?;
        let mut paths = match about.is_dir() {
            true => traces_in(path)?,
            false => vec![path.to_path_buf()],
        };
        let refuse = |why: String| Error::Input { input: path.display().to_string(), why };
        if paths.is_empty() {
            return Err(refuse(format!(
                "it has no trace; recorders write files `NAME-PID-START.{TRACE_ENDING}`"
            )));
        }
        if paths.len() > MAX_FILES {
            return Err(refuse(format!(
                "it has {} traces, and an analysis reads at most {MAX_FILES}; move older ones away",
                paths.len()
            )));
        }
        paths.sort();
        let names = paths.iter().map(|path| name_of(path)).collect();
        // A file that was removed since is an error when it is opened.
        let bytes =
            paths.iter().filter_map(|path| path.metadata().ok()).map(|about| about.len()).sum();
        Ok(Self { paths, names, bytes })
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn traces_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let io = |source| Error::io(folder, "the folder cannot be listed")(source);
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|ending| ending == TRACE_ENDING) && path.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

impl Loader for Folder {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, index: usize) -> io::Result<Box<dyn Read + '_>> {
        let path = self.paths.get(index).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?)))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_its_traces_by_name_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = || Folder::open(dir.path());
        assert!(open().expect_err("empty").to_string().contains("it has no trace"));
        for name in ["b-2-1.sktrace", "a-1-1.sktrace", "notes.txt"] {
            std::fs::write(dir.path().join(name), name).expect("written");
        }
        std::fs::create_dir(dir.path().join("c.sktrace")).expect("a folder");
        let folder = open().expect("two traces");
        assert_eq!(folder.names(), ["a-1-1.sktrace", "b-2-1.sktrace"]);
        let mut text = String::new();
        let mut file = Loader::open(&folder, 1).expect("it is there");
        file.read_to_string(&mut text).expect("readable");
        assert_eq!((text.as_str(), folder.bytes()), ("b-2-1.sktrace", 26));
        let one = Folder::open(&dir.path().join("a-1-1.sktrace")).expect("a file");
        assert_eq!(one.names(), ["a-1-1.sktrace"]);
        assert!(Folder::open(&dir.path().join("d")).is_err());
    }
}
