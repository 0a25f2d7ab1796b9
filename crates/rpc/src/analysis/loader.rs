//! Where traces come from: a loader lists the files of a trace and opens each as often as an analysis reads it.

use std::io::{self, Cursor, Read};

/// The files of one trace. Analyses read a trace several times rather than keep it in memory.
pub trait Loader {
    /// The names of the files, in an order that stays.
    fn names(&self) -> &[String];

    /// Opens a file at its beginning.
    ///
    /// # Errors
    /// The error of the file system.
    fn open(&self, index: usize) -> io::Result<Box<dyn Read + '_>>;

    /// The length of all files in bytes, if it is known. It only sizes passes, so it may be wrong.
    fn bytes(&self) -> u64;
}

/// A trace in memory: for tests, and for a trace that came over a network.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    names: Vec<String>,
    files: Vec<Vec<u8>>,
}

impl MemoryLoader {
    /// Holds files by their names.
    pub fn new(files: Vec<(String, Vec<u8>)>) -> Self {
        let (names, files) = files.into_iter().unzip();
        Self { names, files }
    }

    /// The bytes of the files, in the order of the names.
    pub fn files(&self) -> &[Vec<u8>] {
        &self.files
    }
}

impl Loader for MemoryLoader {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, index: usize) -> io::Result<Box<dyn Read + '_>> {
        let file = self.files.get(index).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(file.as_slice())))
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }
}
