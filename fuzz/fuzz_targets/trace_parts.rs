//! Any bytes as documents of a job's records, which are joined to files of a trace; and any 64 bytes as a record. What joins is
//! opened as a trace. Errors are fine; panics, crashes and hangs are not.
//!
//! A zero byte ends each document.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_rpc::Record;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::parts::join;
use skopos_rpc::record::RECORD_BYTES;

fuzz_target!(|data: &[u8]| {
    for bytes in data.as_chunks::<RECORD_BYTES>().0 {
        if let Some(record) = Record::from_bytes(bytes) {
            let again = Record::from_bytes(&record.to_bytes());
            assert_eq!(again, Some(record), "an encoded record decodes");
        }
    }
    let documents: Vec<&[u8]> = data.split(|byte| *byte == 0).collect();
    let (loader, damaged) = join(documents.iter().copied());
    let files = loader.files().len();
    assert!(files as u64 + damaged >= 1 && files <= documents.len());
    let _ = Trace::open(&loader).map(|trace| trace.counts().defects().len());
});
