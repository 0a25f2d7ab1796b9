//! The file of a recording.
//!
//! # Layout
//! `PATH` is a header and lines. When it is full, it is moved to `PATH.1`, whose content is lost then. `PATH.new` is the next
//! file until its first line is written.
//!
//! # Invariants
//! - A start of the agent goes on with a file of the same header.
//! - A write that fails costs its own line alone.
//! - A file is moved away only after the next one has its header and a line on disk.
//! - A line is appended to the file at `PATH`. If another program moved, removed or changed that file, it is opened anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes that are read at a time to find the end of the last whole line: most lines are shorter.
const CHUNK_BYTES: usize = 64 << 10;

/// A file of lines, which begins again when it is full.
pub(super) struct RecordFile {
    path: PathBuf,
    max_bytes: u64,
    header: String,
    open: Option<Open>,
}

/// The open file. It has whole lines.
struct Open {
    file: File,
    bytes: u64,
}

impl RecordFile {
    /// Makes a file at `path`, which is opened with the first line. The header ends with a line feed.
    pub(super) fn new(path: &Path, max_bytes: u64, header: String) -> Self {
        Self { path: path.to_path_buf(), max_bytes, header, open: None }
    }

    /// Appends a line, which ends with a line feed.
    ///
    /// # Errors
    /// The line is longer than a file may be; the file cannot be written.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64;
        if self.header.len() as u64 + length > self.max_bytes {
            let why = format!("an outcome of {length} bytes does not fit in `record_max_bytes`");
            return Err(io::Error::other(why));
        }
        let open = match self.open.take() {
            Some(open) if self.is_current(&open)? => Some(open),
            _ => self.resume()?,
        };
        // After a failure the file is opened anew, which removes a torn line.
        self.open = Some(match open {
            Some(open) if open.bytes + length <= self.max_bytes => open.append(line)?,
            _ => self.rotate(line)?,
        });
        Ok(())
    }

    /// Returns true if an open file is still that at the path, with the lines that were appended here.
    fn is_current(&self, open: &Open) -> io::Result<bool> {
        let own = open.file.metadata()?;
        match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            found => {
                let found = found?;
                let is_same = (found.dev(), found.ino()) == (own.dev(), own.ino());
                Ok(is_same && own.len() == open.bytes)
            }
        }
    }

    /// Opens the file if it has the same header, and removes a torn line at its end.
    fn resume(&self) -> io::Result<Option<Open>> {
        let mut file = match OpenOptions::new().read(true).append(true).open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("this is not a regular file"));
        }
        let mut header = Vec::new();
        io::Read::by_ref(&mut file).take(self.header.len() as u64).read_to_end(&mut header)?;
        if header != self.header.as_bytes() {
            return Ok(None);
        }
        let bytes = whole_bytes(&file, metadata.len())?;
        if bytes < metadata.len() {
            file.set_len(bytes)?;
        }
        Ok(Some(Open { file, bytes }))
    }

    /// Makes the next file with its first line, and keeps the present one as `PATH.1`, unless it is empty.
    fn rotate(&self, line: &str) -> io::Result<Open> {
        let new = self.beside(".new");
        let file = self.begin(&new, line).inspect_err(|_| {
            // The error of the write counts; the next file removes the rest.
            let _ = fs::remove_file(&new);
        })?;
        let present_bytes = match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            found => found?.len(),
        };
        // A program that moves full files away can leave an empty one.
        if present_bytes > 0 {
            or_missing(fs::rename(&self.path, self.beside(".1")))?;
        }
        fs::rename(&new, &self.path)?;
        Ok(Open { file, bytes: (self.header.len() + line.len()) as u64 })
    }

    fn begin(&self, path: &Path, line: &str) -> io::Result<File> {
        or_missing(fs::remove_file(path))?;
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.header.as_bytes())?;
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        Ok(file)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }
}

impl Open {
    fn append(mut self, line: &str) -> io::Result<Self> {
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(self)
    }
}

/// Takes a missing file for a success.
fn or_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Returns the length of the whole lines of a file.
fn whole_bytes(file: &File, length: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut end = length;
    while end > 0 {
        let from = end.saturating_sub(CHUNK_BYTES as u64);
        let part = &mut chunk[..(end - from) as usize];
        file.read_exact_at(part, from)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "header\n";

    /// A folder with a recording that has room for three lines.
    struct World {
        folder: tempfile::TempDir,
        file: RecordFile,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let file = RecordFile::new(&folder.path().join("r"), 0, String::new());
            let mut world = Self { folder, file };
            world.restart(HEADER);
            world
        }

        fn restart(&mut self, header: &str) {
            let max_bytes = (HEADER.len() + 3 * line(0).len()) as u64;
            self.file = RecordFile::new(&self.path("r"), max_bytes, header.to_owned());
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn append(&mut self, n: u32) -> bool {
            self.file.append(&line(n)).is_ok()
        }

        /// Checks the lines of the file and of the one before it.
        fn check(&self, now: &[u32], before: &[u32]) {
            let expected = |lines: &[u32]| match lines.is_empty() {
                true => String::new(),
                false => HEADER.to_owned() + &lines.iter().map(|n| line(*n)).collect::<String>(),
            };
            for (name, lines) in [("r", now), ("r.1", before)] {
                let found = fs::read_to_string(self.path(name)).unwrap_or_default();
                assert_eq!(found, expected(lines), "{name}");
            }
        }
    }

    fn line(n: u32) -> String {
        format!("outcome {n:04}\n")
    }

    #[test]
    fn starts_of_the_agent_go_on_with_the_recording() {
        let mut world = World::new();
        for n in 0..5 {
            world.restart(HEADER);
            assert!(world.append(n));
        }
        world.check(&[3, 4], &[0, 1, 2]);
    }

    #[test]
    fn writes_that_fail_leave_all_recorded_outcomes() {
        let mut world = World::new();
        assert!((0..5).all(|n| world.append(n)));
        world.check(&[3, 4], &[0, 1, 2]);
        // The next file cannot be made.
        fs::create_dir(world.path("r.new")).expect("made");
        assert!(world.append(5));
        for n in 6..9 {
            assert!(!world.append(n));
            world.restart(HEADER);
            assert!(!world.append(n));
        }
        world.check(&[3, 4, 5], &[0, 1, 2]);
        fs::remove_dir(world.path("r.new")).expect("removed");
        assert!(world.append(9));
        world.check(&[9], &[3, 4, 5]);
    }

    #[test]
    fn a_torn_line_is_removed_before_the_next_one() {
        let mut world = World::new();
        assert!(world.append(0));
        let file = File::open(world.path("r")).expect("it is there");
        let bytes = file.metadata().expect("it is open").len();
        // A file that is only open for reading stands for a disk that fails.
        world.file.open = Some(Open { file, bytes });
        assert!(!world.append(1));
        let mut torn = OpenOptions::new().append(true).open(world.path("r")).expect("there");
        torn.write_all(&line(1).as_bytes()[..5]).expect("written");
        assert!(world.append(2));
        world.check(&[0, 2], &[]);
    }

    #[test]
    fn a_recording_of_other_metrics_is_kept_beside_the_new_one() {
        let mut world = World::new();
        assert!(world.append(0));
        world.restart("others\n");
        assert!(world.append(1));
        let found = fs::read_to_string(world.path("r")).expect("a recording");
        assert_eq!(found, format!("others\n{}", line(1)));
        assert_eq!(
            fs::read_to_string(world.path("r.1")).expect("it"),
            HEADER.to_owned() + &line(0)
        );
    }

    #[test]
    fn a_file_that_is_removed_or_moved_away_is_begun_anew() {
        let mut world = World::new();
        assert!(world.append(0));
        fs::remove_file(world.path("r")).expect("there");
        assert!(world.append(1));
        world.check(&[1], &[]);
        fs::rename(world.path("r"), world.path("kept")).expect("there");
        assert!(world.append(2) && world.append(3));
        world.check(&[2, 3], &[]);
        // A program such as logrotate moves the file, and makes an empty one.
        fs::rename(world.path("r"), world.path("r.1")).expect("there");
        File::create(world.path("r")).expect("made");
        assert!(world.append(4));
        world.check(&[4], &[2, 3]);
        // It can also copy the file and cut it.
        OpenOptions::new().write(true).truncate(true).open(world.path("r")).expect("there");
        assert!(world.append(5));
        world.check(&[5], &[2, 3]);
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_replaced() {
        let world = World::new();
        // A link to itself stands for a file system that fails.
        std::os::unix::fs::symlink("r", world.path("r")).expect("made");
        assert!(world.file.rotate(&line(0)).is_err());
        assert!(fs::symlink_metadata(world.path("r")).is_ok_and(|found| found.is_symlink()));
    }

    #[test]
    fn a_line_that_never_fits_moves_no_file() {
        let mut world = World::new();
        assert!(world.append(0));
        let long = "x".repeat(100) + "\n";
        assert!(world.file.append(&long).is_err());
        assert!(world.append(1));
        world.check(&[0, 1], &[]);
    }
}
