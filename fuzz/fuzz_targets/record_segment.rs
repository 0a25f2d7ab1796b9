//! Any bytes as the segment of a recorder, which is opened and drained, as an agent does. Errors are fine; panics, crashes and
//! hangs are not.
//!
//! If the first byte is even, the rest is the file. If it is odd, the rest is damage to a sound file, in pieces of twelve
//! bytes: position (u32) and bytes (u64). The second form gets past the header at once.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use skopos_rpc::Record;
use skopos_shm::Error;
use skopos_shm::records::layout::MAX_RING_RECORDS;
use skopos_shm::records::{RecordReader, RecordSegment};

/// The part of the file that is damaged: the header, the heads of the rings and the first definitions.
const DAMAGED: usize = 8192;

/// A sound segment, and the path of its damaged copies.
struct Specimen {
    bytes: Vec<u8>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

static SPECIMEN: LazyLock<Specimen> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let dir = dir.expect("some directory can be written to");
    let segment = RecordSegment::builder("specimen").dir(dir.path()).rings(2, 64).create();
    let segment = segment.expect("an empty directory");
    let mut writer = segment.claim().expect("a ring");
    for ticket in 0..100 {
        writer.push(&[[ticket; 8]]);
    }
    segment.define(3, b"a definition").expect("there is room");
    segment.set_clock(1, 2, 3.0, 4);
    let bytes = fs::read(segment.path()).expect("a readable file");
    Specimen { bytes, path: dir.path().join("damaged-1.rpc"), _dir: dir }
});

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    let specimen = &*SPECIMEN;
    if mode % 2 == 0 {
        fs::write(&specimen.path, rest).expect("a writable file");
    } else {
        let mut bytes = specimen.bytes.clone();
        for piece in rest.chunks_exact(12) {
            let (at, new_bytes) = piece.split_at(4);
            let at = u32::from_le_bytes(at.try_into().expect("four")) as usize % DAMAGED;
            bytes[at..at + 8].copy_from_slice(new_bytes);
        }
        fs::write(&specimen.path, bytes).expect("a writable file");
    }
    let _ = drain(&specimen.path);
});

fn drain(path: &Path) -> Result<(), Error> {
    let reader = RecordReader::open(path)?;
    assert!(!reader.name().contains('/'));
    let _ = (reader.clock(), reader.stage(), reader.is_closed(), reader.is_held());
    for ring in 0..reader.rings() {
        assert!(reader.waiting(ring) <= u64::from(MAX_RING_RECORDS));
        let mut bytes = Vec::new();
        let drained = reader.drain(ring, reader.drained(ring), u64::MAX, &mut bytes);
        assert_eq!(bytes.len() as u64, 64 * (drained.next - drained.first));
        let records = bytes.as_chunks::<64>().0.iter().filter_map(Record::from_bytes);
        assert!(records.count() <= MAX_RING_RECORDS as usize);
    }
    reader.definitions(0, |_, _| ());
    Ok(())
}
