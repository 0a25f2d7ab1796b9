use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::Error;

/// The most bytes of a file with a secret. A passphrase is a line.
const MAX_FILE_BYTES: u64 = 1024;

/// The permission bits of users that are neither the owner nor in the group of a file.
const OTHERS: u32 = 0o007;

/// A community or a passphrase. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Makes a secret of bytes, for a program that has it from its environment.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Reads the first line of a file that others may not read.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, it is empty, or it has more than 1,024 bytes.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let failed = |e: io::Error| Error::system(format!("read the secret in {shown}"))(e);
        let fault =
            |why: &str| Err(Error::malformed("a file with a secret", format!("{shown} {why}")));
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & OTHERS != 0 {
            return fault("can be read by every user; hint: chmod 600");
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return fault("has more than 1,024 bytes; hint: it has one line, the secret");
        }
        let line = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
        if line.is_empty() {
            return fault("has no secret in its first line");
        }
        Ok(Self(line.to_vec()))
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
