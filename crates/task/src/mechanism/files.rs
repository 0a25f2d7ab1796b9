//! The report of files that several mechanisms make: sums over all files, and lists of those with
//! the most bytes.

use skopos_model::task::{
    Completeness, FILES_VERSION, FileUse, Files, MAX_FILES_LISTED, PeerUse, ProcessFiles,
};

/// Rows that stand for several files: those beyond the limit, pipes, descriptors without a name, and
/// sockets. They come first in a table.
pub(super) const KINDS: [&str; 4] = ["others", "pipes", "nameless", "sockets"];

/// File usage of exited processes. If the list is full, the processes with the fewest bytes are
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: Vec<ProcessFiles>,
    left_out: u64,
}

impl Processes {
    pub(super) fn push(&mut self, process: ProcessFiles) {
        self.all.push(process);
        if self.all.len() >= 2 * MAX_FILES_LISTED {
            self.keep();
        }
    }

    fn keep(&mut self) {
        let weight = |process: &ProcessFiles| process.read_bytes + process.written_bytes;
        self.left_out += keep_greatest(&mut self.all, weight).len() as u64;
    }
}

/// Makes the report of all files. The mechanism adds what it could not count.
pub(crate) fn listed(
    method: &str,
    mut files: Vec<FileUse>,
    mut peers: Vec<PeerUse>,
    mut processes: Processes,
) -> Files {
    let sum = |of: fn(&FileUse) -> u64| files.iter().map(of).sum::<u64>();
    let (read_bytes, written_bytes) = (sum(|f| f.read_bytes), sum(|f| f.written_bytes));
    let files_total = files.iter().filter(|f| f.kind == "file" && f.opens > 0).count() as u64;
    let mut left_out = FileUse { kind: "left out".to_owned(), ..FileUse::default() };
    let weight = |f: &FileUse| f.read_bytes + f.written_bytes + f.read_or_written_bytes;
    let rest = keep_greatest(&mut files, weight);
    rest.iter().for_each(|file| left_out.add(file));
    let peers_left_out = keep_greatest(&mut peers, |p| p.sent_bytes + p.received_bytes).len();
    processes.keep();
    Files {
        version: FILES_VERSION,
        method: method.to_owned(),
        completeness: Completeness::AtLeast,
        reason: String::new(),
        not_counted: Vec::new(),
        read_bytes,
        written_bytes,
        unattributed_read_bytes: None,
        unattributed_written_bytes: None,
        files_total,
        files,
        files_left_out: rest.len() as u64,
        left_out,
        peers,
        peers_left_out: peers_left_out as u64,
        processes: processes.all,
        processes_left_out: processes.left_out,
        processes_not_seen: 0,
        not_seen: Vec::new(),
    }
}

/// Sorts by weight, the greatest first, and splits off the items beyond the limit.
fn keep_greatest<T>(all: &mut Vec<T>, weight: impl Fn(&T) -> u64) -> Vec<T> {
    all.sort_by_key(|one| std::cmp::Reverse(weight(one)));
    all.split_off(all.len().min(MAX_FILES_LISTED))
}

/// Drops the zeros at the end of a histogram.
pub(super) fn trim_zeros(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.truncate(sizes.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_items_stay_and_the_rest_is_summed() {
        let mut processes = Processes::default();
        for bytes in 0..4500 {
            processes.push(ProcessFiles { read_bytes: bytes, ..ProcessFiles::default() });
        }
        let file = |bytes| FileUse {
            kind: "file".to_owned(),
            opens: 1,
            written_bytes: bytes,
            ..FileUse::default()
        };
        let files = listed("x", (0..1500).map(file).collect(), Vec::new(), processes);
        assert_eq!((files.files.len(), files.files_left_out, files.files_total), (1000, 500, 1500));
        assert_eq!((files.files[0].written_bytes, files.left_out.written_bytes), (1499, 124_750));
        assert_eq!(files.written_bytes, 1_124_250, "the sum of all files");
        assert_eq!((files.processes.len(), files.processes_left_out), (1000, 3500));
        assert_eq!(files.processes[999].read_bytes, 3500);
    }
}
