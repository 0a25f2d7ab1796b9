//! The files of a trace in a folder.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::analysis::loader::Loader;
use crate::error::Error;
use crate::file::TRACE_ENDING;

/// The most files of one trace: ten thousand processes with ten parts each.
const MAX_FILES: usize = 100_000;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The traces in a folder, `NAME-PID-START.sktrace` and their further parts.
#[derive(Clone, Debug)]
pub struct Folder {
    names: Vec<String>,
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Folder {
    /// Lists the traces in `path`, or takes the one file that it is.
    ///
    /// # Errors
    /// The folder cannot be read, has no trace, or has more than 100,000.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let about = fs::metadata(path).map_err(Error::io(path, "cannot read the trace"))?;
        let mut files = Vec::new();
        if about.is_file() {
            files.push((path.to_path_buf(), about.len()));
        } else {
            let failed = Error::io(path, "cannot list the folder of the trace");
            files = list(path).map_err(failed)?;
        }
        let input = || path.display().to_string();
        if files.is_empty() {
            let why =
                format!("has no trace; a recorder writes files `NAME-PID-START.{TRACE_ENDING}`");
            return Err(Error::Input { input: input(), why });
        }
        if files.len() > MAX_FILES {
            let why = format!("has more than {MAX_FILES} traces; divide it by runs");
            return Err(Error::Input { input: input(), why });
        }
        files.sort();
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        let paths: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
        let names = paths.iter().map(|path| path.display().to_string()).collect();
        Ok(Self { names, paths, bytes })
    }
}

fn list(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_trace = path.extension().is_some_and(|ending| ending == TRACE_ENDING);
        // A pipe with the name of a trace would never end.
        if let Some(about) = fs::metadata(&path).ok().filter(|about| is_trace && about.is_file()) {
            files.push((path, about.len()));
        }
    }
    Ok(files)
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
        assert!(open().expect_err("empty").to_string().contains("has no trace"));
        for name in ["b-2-1.sktrace", "a-1-1.sktrace", "notes.txt"] {
            std::fs::write(dir.path().join(name), name).expect("written");
        }
        std::fs::create_dir(dir.path().join("c.sktrace")).expect("a folder");
        let folder = open().expect("two traces");
        let path = |name: &str| dir.path().join(name).display().to_string();
        assert_eq!(folder.names(), [path("a-1-1.sktrace"), path("b-2-1.sktrace")]);
        let mut text = String::new();
        let mut file = Loader::open(&folder, 1).expect("it is there");
        file.read_to_string(&mut text).expect("readable");
        assert_eq!((text.as_str(), folder.bytes()), ("b-2-1.sktrace", 26));
        let one = Folder::open(&dir.path().join("a-1-1.sktrace")).expect("a file");
        assert_eq!(one.names(), [path("a-1-1.sktrace")]);
        assert!(Folder::open(&dir.path().join("d")).is_err());
    }
}
