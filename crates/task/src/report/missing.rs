//! The parts of this task that a reading cannot contain, for programs to read. A reading is `all` only if
//! there is no such part.

use std::collections::BTreeSet;

use skopos_model::task::{Completeness, Files, Missing, Reading};

use crate::ledger::Ledger;
use crate::mechanism::bpf;
use crate::unseen::Unseen;

/// Bytes that storage may move beyond those of system calls: programs and libraries are read by mapping
/// them, and folders are written.
const READ_SLACK: f64 = 32.0 * 1024.0 * 1024.0;
const WRITE_SLACK: f64 = 1024.0 * 1024.0;

/// The multiple of the bytes read by system calls that read-ahead may read.
const READ_AHEAD: f64 = 2.0;

/// Bytes of the page cache that one call of `write` dirties beyond its own bytes: the rest of its first page
/// and of its last.
const DIRTIED_BY_A_CALL: f64 = 2.0 * 4096.0;

/// Returns the ways of input and output that the task used and that its byte counts leave out.
pub(crate) fn unseen(ledger: &Ledger) -> Unseen {
    let mut unseen = ledger.unseen.clone();
    let value = |name: &'static str| ledger.offers.best(name, "").value;
    let calls = ledger.reaped.io.write_calls as f64;
    if let (Some(read), Some(device)) = (value("read_bytes"), value("device_read_bytes"))
        && device > READ_AHEAD * read + READ_SLACK
        && unseen.read.is_empty()
    {
        unseen.read.insert(Missing::Unexplained);
    }
    if let (Some(written), Some(device)) = (value("written_bytes"), value("device_written_bytes"))
        && device > written + calls * DIRTIED_BY_A_CALL + WRITE_SLACK
        && unseen.written.is_empty()
    {
        unseen.written.insert(Missing::Unexplained);
    }
    if ledger.files.as_ref().is_some_and(|files| files.method == bpf::NAME) {
        // The program in the kernel counts what completes in a ring.
        unseen.read.remove(&Missing::IoUring);
        unseen.written.remove(&Missing::IoUring);
    }
    unseen
}

/// Marks a reading with the parts that it cannot contain.
pub(crate) fn mark(name: &str, reading: &mut Reading, unseen: &Unseen) {
    let parts = match name {
        "read_bytes" => &unseen.read,
        "written_bytes" => &unseen.written,
        _ => &BTreeSet::new(),
    };
    if reading.completeness == Completeness::None {
        return;
    }
    reading.missing = parts.iter().copied().collect();
    if !parts.is_empty() {
        let text = format!("the task also used {}", words(parts));
        reading.reason =
            Some(reading.reason.take().map_or(text.clone(), |own| format!("{text}; {own}")));
        reading.completeness = reading.completeness.min(Completeness::AtLeast);
        reading.error_bound = None;
    }
    match reading.completeness {
        Completeness::Sampled => reading.missing.push(Missing::BetweenSamples),
        Completeness::AtLeast if parts.is_empty() => reading.missing.push(Missing::Other),
        _ => {}
    }
}

/// Marks the counts of files, which do not contain these ways either, except `splice`.
pub(crate) fn mark_files(files: &mut Files, unseen: &Unseen) {
    let all = unseen.read.union(&unseen.written);
    let parts: BTreeSet<_> = all.copied().filter(|part| *part != Missing::Splice).collect();
    if parts.is_empty() {
        return;
    }
    files.completeness = files.completeness.min(Completeness::AtLeast);
    let own = std::mem::take(&mut files.reason);
    let separator = if own.is_empty() { "" } else { "; " };
    files.reason = format!("the task also used {}{separator}{own}", words(&parts));
}

fn words(parts: &BTreeSet<Missing>) -> String {
    let word = |part: &Missing| match part {
        Missing::Mmap => "mapped files",
        Missing::IoUring => "io_uring",
        Missing::Aio => "io_submit (libaio)",
        Missing::Splice => "splice",
        Missing::Unexplained => {
            "input and output that its system calls do not explain, as storage moved more"
        }
        Missing::BetweenSamples | Missing::Other => "other ways",
    };
    parts.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Offer;

    fn ledger(offers: &[(&'static str, f64)], write_calls: u64) -> Ledger {
        let mut ledger = Ledger::new();
        for (name, value) in offers {
            let (method, completeness) = ("wait4", Completeness::All);
            let offer =
                Offer { method, value: *value, completeness, error_bound: Some(0.0), reason: None };
            ledger.offers.add(name, offer);
        }
        ledger.reaped.io.write_calls = write_calls;
        ledger
    }

    #[test]
    fn bytes_by_mapped_files_are_not_exact() {
        let bytes = 256.0 * 1024.0 * 1024.0;
        let is_whole = |of: &str, own, device: &'static str, calls| {
            let name = if of == "read" { "read_bytes" } else { "written_bytes" };
            let ledger = ledger(&[(name, own), (device, bytes)], calls);
            let unseen = unseen(&ledger);
            let mut reading = ledger.offers.best(name, "");
            mark(name, &mut reading, &unseen);
            assert_eq!(reading.missing.is_empty(), reading.error_bound.is_some(), "{reading:?}");
            let is_whole = reading.completeness == Completeness::All;
            assert_eq!(reading.missing.is_empty(), is_whole, "{reading:?}");
            is_whole
        };
        assert!(!is_whole("written", 816.0, "device_written_bytes", 3));
        assert!(is_whole("written", bytes, "device_written_bytes", 3));
        // Many small writes dirty whole pages.
        assert!(is_whole("written", 1e6, "device_written_bytes", 65_536));
        assert!(!is_whole("read", 816.0, "device_read_bytes", 0));
        assert!(is_whole("read", bytes / 2.0, "device_read_bytes", 0));
    }

    #[test]
    fn files_contain_what_splice_moved_and_sums_do_not() {
        let unseen = Unseen { read: [Missing::Splice].into(), ..Unseen::default() };
        let mut reading = ledger(&[("read_bytes", 1.0)], 0).offers.best("read_bytes", "");
        mark("read_bytes", &mut reading, &unseen);
        assert_eq!(reading.missing, [Missing::Splice]);
        assert_eq!(reading.completeness, Completeness::AtLeast);
        let mut files = crate::mechanism::files_of("preload");
        files.completeness = Completeness::All;
        mark_files(&mut files, &unseen);
        assert_eq!((files.completeness, &*files.reason), (Completeness::All, ""));
    }

    #[test]
    fn every_reading_that_is_not_of_all_lists_a_part() {
        let unseen = Unseen::default();
        let mut reading = ledger(&[("read_bytes", 1.0)], 0).offers.best("read_bytes", "");
        for (completeness, missing) in [
            (Completeness::All, vec![]),
            (Completeness::AtLeast, vec![Missing::Other]),
            (Completeness::Sampled, vec![Missing::BetweenSamples]),
        ] {
            reading.completeness = completeness;
            mark("read_bytes", &mut reading, &unseen);
            assert_eq!(reading.missing, missing);
        }
    }
}
