//! Traces as documents: a file of a trace in parts, for stores that keep records of jobs.
//!
//! A part is a JSON document with a piece of the file as base64 (RFC 4648). The parts of a file may arrive in any order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::analysis::loader::{Loader as _, MemoryLoader};
use crate::error::Error;
use crate::folder::Folder;

/// The version of the document.
const VERSION: u32 = 1;

/// Bytes of a file in one part: with base64 a third of the largest message of a hub.
const PART_BYTES: usize = 256 << 10;

/// The most parts of a file that are joined: 1 GiB. A greater number is not credible.
const MAX_PARTS: u32 = 4096;

/// A piece of a file of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The version of this document.
    version: u32,
    /// The name of the file.
    file: String,
    /// The number of this part, from zero on.
    part: u32,
    /// The number of parts.
    parts: u32,
    /// The bytes, as base64.
    bytes: String,
}

/// Divides the traces in a folder into parts, with at most `most` bytes of files. Returns the parts, and the number of bytes
/// that are left out: whole files, those for which there is no room when it is their turn by name.
///
/// # Errors
/// The folder or a file cannot be read. A folder without traces has no parts.
pub fn parts(folder: &Path, most: u64) -> Result<(Vec<Part>, u64), Error> {
    let files = match Folder::open(folder) {
        Ok(files) => files,
        Err(Error::Input { .. }) => return Ok((Vec::new(), 0)),
        Err(e) => return Err(e),
    };
    let (mut all, mut used, mut left_out) = (Vec::new(), 0, 0);
    for name in files.names() {
        let path = Path::new(name);
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let failed = Error::io(path, "the trace cannot be read");
        let bytes = match read(path, most.saturating_sub(used)) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(length)) => {
                left_out += length;
                continue;
            }
            Err(e) => return Err(failed(e)),
        };
        used += bytes.len() as u64;
        let pieces = bytes.chunks(PART_BYTES);
        let parts = pieces.len() as u32;
        all.extend((0..).zip(pieces).map(|(part, piece)| Part {
            version: VERSION,
            file: file.clone(),
            part,
            parts,
            bytes: STANDARD.encode(piece),
        }));
    }
    Ok((all, left_out))
}

/// Reads a file; returns its length instead if it is longer than `most`.
fn read(path: &Path, most: u64) -> io::Result<Result<Vec<u8>, u64>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Ok(Err(length));
    }
    let mut bytes = Vec::new();
    // A file that grows meanwhile is read up to here.
    file.by_ref().take(length).read_to_end(&mut bytes)?;
    Ok(Ok(bytes))
}

/// Joins documents of parts to the files of a trace. Documents of another form count as damaged, and so does a file of
/// which a part is missing; it is joined up to there. Returns the files and the number of damaged parts and files.
pub fn join<'d>(documents: impl IntoIterator<Item = &'d [u8]>) -> (MemoryLoader, u64) {
    let mut files: BTreeMap<String, (u32, BTreeMap<u32, Vec<u8>>)> = BTreeMap::new();
    let mut damaged = 0;
    for document in documents {
        let part = serde_json::from_slice::<Part>(document).ok();
        let part = part.filter(|part| part.version == VERSION && part.parts <= MAX_PARTS);
        let decoded = part.and_then(|part| Some((STANDARD.decode(&part.bytes).ok()?, part)));
        let Some((bytes, part)) = decoded else {
            damaged += 1;
            continue;
        };
        let (parts, pieces) = files.entry(part.file).or_default();
        *parts = (*parts).max(part.parts);
        pieces.insert(part.part, bytes);
    }
    let whole = files.into_iter().map(|(name, (parts, mut pieces))| {
        let mut bytes = Vec::new();
        for part in 0..parts {
            let Some(piece) = pieces.remove(&part) else {
                damaged += 1;
                break;
            };
            bytes.extend(piece);
        }
        (name, bytes)
    });
    let files: Vec<(String, Vec<u8>)> = whole.collect();
    (MemoryLoader::new(files), damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, length) in files {
            let bytes: Vec<u8> = (0..*length).map(|at| (at % 251) as u8).collect();
            std::fs::write(dir.path().join(name), bytes).expect("written");
        }
        dir
    }

    fn documents(parts: &[Part]) -> Vec<Vec<u8>> {
        parts.iter().map(|part| serde_json::to_vec(part).expect("JSON")).collect()
    }

    #[test]
    fn files_come_back_from_their_parts_in_any_order() {
        let dir = folder(&[("a-1-1.sktrace", 700_000), ("b-2-2.sktrace", 0), ("c-3-3.sktrace", 9)]);
        let (parts, left_out) = parts(dir.path(), u64::MAX).expect("readable");
        assert_eq!((parts.len(), left_out), (4, 0));
        let mut documents = documents(&parts);
        documents.reverse();
        let (files, damaged) = join(documents.iter().map(Vec::as_slice));
        assert_eq!(
            (files.names(), damaged),
            (&["a-1-1.sktrace".to_owned(), "c-3-3.sktrace".to_owned()][..], 0)
        );
        let whole = std::fs::read(dir.path().join("a-1-1.sktrace")).expect("readable");
        assert_eq!(files.files()[0], whole);
    }

    #[test]
    fn bytes_without_room_are_counted_and_missing_parts_too() {
        let dir = folder(&[("a-1-1.sktrace", 300_000), ("b-2-2.sktrace", 500)]);
        let (some, left_out) = parts(dir.path(), 1000).expect("readable");
        assert_eq!((some.len(), left_out), (1, 300_000));
        let (all, _) = parts(dir.path(), u64::MAX).expect("readable");
        let documents = documents(&all[1..]);
        let foreign = b"{\"spans\": []}".as_slice();
        let (files, damaged) = join(documents.iter().map(Vec::as_slice).chain([foreign]));
        assert_eq!((files.files()[0].len(), files.files()[1].len(), damaged), (0, 500, 2));
        let empty = tempfile::tempdir().expect("a folder");
        assert_eq!(parts(empty.path(), 1).expect("nothing").0, []);
    }
}
