//! Any bytes as a file of a trace, read by every analysis. Errors are fine; panics, crashes and hangs are not.
//!
//! If the first byte is even, the rest is the file. If it is odd, the rest is damage to the payloads of a sound file, in pieces
//! of twelve bytes: position (u32) and bytes (u64). Each damaged frame gets a right sum, so the damage reaches the analyses.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use skopos_rpc::Frames;
use skopos_rpc::analysis::critical::{Options, critical_paths};
use skopos_rpc::analysis::finding::{NodeFacts, judge};
use skopos_rpc::analysis::loader::MemoryLoader;
use skopos_rpc::analysis::profile::profile;
use skopos_rpc::analysis::request::list::{Filter, requests};
use skopos_rpc::analysis::system::system;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::file::FRAME_HEAD_BYTES;
use skopos_rpc::synthetic::Service;

/// A sound file: the front service of sixty requests, as many as rules judge.
static SPECIMEN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let loader = Service { requests: 60, ..Service::default() }.trace();
    let longest = loader.files().iter().max_by_key(|file| file.len());
    longest.cloned().expect("a service has processes")
});

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let bytes = if mode % 2 == 0 { rest.to_vec() } else { damaged(rest) };
    let length = bytes.len() as u64;
    if let Ok(mut frames) = Frames::new(bytes.as_slice(), Path::new("fuzzed"), length) {
        while let Ok(Some(_)) = frames.next_frame() {}
        assert!(frames.tear().is_none_or(|tear| tear.at + tear.bytes == length));
    }
    let loader = MemoryLoader::new(vec![
        ("a-1-1.sktrace".to_owned(), bytes),
        ("b-2-2.sktrace".to_owned(), SPECIMEN.clone()),
    ]);
    let Ok(trace) = Trace::open(&loader) else { return };
    let _ = profile(&trace);
    let _ = requests(&trace, &Filter::default());
    let _ = judge(&trace, &NodeFacts::default());
    let _ = system(&trace, 10);
    let _ = critical_paths(&trace, &Options::default());
});

/// Damages the specimen, and mends the sums of its frames.
fn damaged(pieces: &[u8]) -> Vec<u8> {
    let mut bytes = SPECIMEN.clone();
    for piece in pieces.chunks_exact(12) {
        let (at, new_bytes) = piece.split_at(4);
        let at = u32::from_le_bytes(at.try_into().expect("four")) as usize % (bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(new_bytes);
    }
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + FRAME_HEAD_BYTES) {
        let length = u32::from_le_bytes(head[8..12].try_into().expect("four")) as usize;
        let end = at + FRAME_HEAD_BYTES + length;
        if end > bytes.len() {
            break;
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes[at + 4..at + 12]);
        sum.update(&bytes[at + FRAME_HEAD_BYTES..end]);
        bytes[at + 12..at + 16].copy_from_slice(&sum.finalize().to_le_bytes());
        at = end;
    }
    bytes
}
