//! The file layer: the few operations by which logs and parts reach a disk. The crash simulator of the tests is the
//! other implementation.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Samples and jobs are readable by their owner alone.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Operations on files and folders. Each fails with the error of the operating system; a file that does not exist is
/// [`NotFound`](io::ErrorKind::NotFound).
pub trait Disk: fmt::Debug + Send + Sync {
    /// Returns the names and lengths of the files in a folder; nothing if the folder does not exist.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;

    /// Makes a folder and its parents, unless they exist.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Syncs the names in a folder, so that they survive a loss of power.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes a file, which must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file to read and write it.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file to read it.
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name. A file that has the name already is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Locks a file until the result is dropped; `None` if another process has locked it.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>>;

    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open_to_read(path)?;
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// Operations on one open file. Each fails with the error of the operating system.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Returns its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` with those that begin at `at`.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Cuts the file to a length.
    fn cut(&self, length: u64) -> io::Result<()>;

    /// Syncs the content, so that it survives a loss of power.
    fn sync(&self) -> io::Result<()>;
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A locked file. It is locked until this is dropped.
#[derive(Debug, Default)]
pub struct Lock {
    file: Option<File>,
}

impl Drop for Lock {
    /// Unlocks the file. Closing it alone would not: a child that another thread has just forked holds a copy of the
    /// descriptor until it executes its program, and the lock with it.
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // It fails for no descriptor that is locked, and closing it follows.
            let _ = file.unlock();
        }
    }
}

/// The operating system.
#[derive(Clone, Copy, Debug)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A name that is not UTF-8 is not one of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    files.push(Listed { name, bytes: metadata.len() });
                }
                Ok(_) => {}
                // It was removed or renamed after the folder was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(files)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        Ok(Box::new(options.open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { file: Some(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let lock = OsDisk.lock(&path).expect("locked").expect("nobody else has it");
        // A forked child has copies like this one.
        let copy =
            lock.file.as_ref().map(File::try_clone).expect("of a real disk").expect("a copy");
        assert!(OsDisk.lock(&path).expect("tried").is_none(), "it is not locked twice");
        drop(lock);
        assert!(OsDisk.lock(&path).expect("tried").is_some(), "the copy keeps it");
        drop(copy);
    }
}
