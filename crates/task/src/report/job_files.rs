//! The files of a parallel job, joined from those of its ranks.
//!
//! A file has one entry if ranks used it by one path with one inode: nodes that share a file system number its device as they
//! like. The processes stay in the reports of the ranks.

use std::collections::{BTreeMap, BTreeSet};

use skopos_model::task::{Completeness, FileUse, Files, MAX_FILES_LISTED, NotSeen, PeerUse};

use crate::mechanism::files::{Processes, listed};

/// The most files, and the most peers, that are told apart: the lists of a hundred ranks without a common file, which take 60 MB.
/// Further ones are summed up.
const MAX_APART: usize = 100_000;

/// The files of the ranks so far.
#[derive(Debug, Default)]
pub struct JoinedFiles {
    files: BTreeMap<(String, String, u64), FileUse>,
    peers: BTreeMap<(String, u16), PeerUse>,
    /// Sums over all ranks, without the lists.
    sums: Option<Files>,
    /// The files of ranks that are in no list.
    rest: FileUse,
    methods: BTreeSet<String>,
    reasons: BTreeSet<String>,
    not_seen: BTreeMap<String, u64>,
}

impl JoinedFiles {
    /// Adds the files of a rank.
    pub fn add(&mut self, rank: Files) {
        let mut sums = rank;
        let (files, peers) = (std::mem::take(&mut sums.files), std::mem::take(&mut sums.peers));
        sums.files_total = sums.files_total.saturating_sub(count(&files));
        self.rest.add(&sums.left_out);
        for file in files {
            let key = (file.kind.clone(), file.path.clone(), file.inode);
            let has_room = self.files.len() < MAX_APART;
            match self.files.get_mut(&key) {
                Some(known) => known.add(&file),
                None if has_room => drop(self.files.insert(key, file)),
                None => {
                    self.rest.add(&file);
                    sums.files_left_out += 1;
                    sums.files_total += count(&[file]);
                }
            }
        }
        for peer in peers {
            let key = (peer.address.clone(), peer.port);
            let has_room = self.peers.len() < MAX_APART;
            match self.peers.get_mut(&key) {
                Some(known) => known.add(&peer),
                None if has_room => drop(self.peers.insert(key, peer)),
                None => sums.peers_left_out += 1,
            }
        }
        for of in std::mem::take(&mut sums.not_seen) {
            if self.not_seen.len() < MAX_FILES_LISTED || self.not_seen.contains_key(&of.command) {
                *self.not_seen.entry(of.command).or_default() += of.processes;
            }
        }
        self.methods.insert(std::mem::take(&mut sums.method));
        self.reasons.insert(std::mem::take(&mut sums.reason));
        sums.processes_left_out += sums.processes.len() as u64;
        sums.processes = Vec::new();
        match &mut self.sums {
            Some(all) => add_sums(all, &sums),
            None => self.sums = Some(sums),
        }
    }

    /// Returns the files of the job. `without` ranks have none. Returns `None` if no rank has any.
    pub fn finish(self, without: u64) -> Option<Files> {
        let Self { files, peers, sums, rest, methods, mut reasons, not_seen } = self;
        let sums = sums?;
        if without > 0 {
            reasons.insert(format!("the files of {without} ranks were not counted"));
        }
        let (files, peers) = (files.into_values().collect(), peers.into_values().collect());
        let mut all = listed(&joined(methods, ","), files, peers, Processes::default());
        all.left_out.add(&rest);
        let not_seen = not_seen.into_iter();
        Some(Files {
            reason: joined(reasons, "; "),
            completeness: match without {
                0 => sums.completeness,
                _ => sums.completeness.min(Completeness::AtLeast),
            },
            files_total: all.files_total + sums.files_total,
            files_left_out: all.files_left_out + sums.files_left_out,
            peers_left_out: all.peers_left_out + sums.peers_left_out,
            not_seen: not_seen.map(|(command, processes)| NotSeen { command, processes }).collect(),
            files: all.files,
            left_out: all.left_out,
            peers: all.peers,
            method: all.method,
            ..sums
        })
    }
}

/// Adds the sums of a rank to those of others.
fn add_sums(all: &mut Files, rank: &Files) {
    let known = |one: Option<i64>, other: Option<i64>| Some(one?.saturating_add(other?));
    all.completeness = all.completeness.min(rank.completeness);
    all.not_counted.extend(rank.not_counted.iter().cloned());
    all.not_counted.sort();
    all.not_counted.dedup();
    all.unattributed_read_bytes = known(all.unattributed_read_bytes, rank.unattributed_read_bytes);
    all.unattributed_written_bytes =
        known(all.unattributed_written_bytes, rank.unattributed_written_bytes);
    for (sum, more) in [
        (&mut all.read_bytes, rank.read_bytes),
        (&mut all.written_bytes, rank.written_bytes),
        (&mut all.files_total, rank.files_total),
        (&mut all.files_left_out, rank.files_left_out),
        (&mut all.peers_left_out, rank.peers_left_out),
        (&mut all.processes_left_out, rank.processes_left_out),
        (&mut all.processes_not_seen, rank.processes_not_seen),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Returns the number of files that count as opened.
fn count(files: &[FileUse]) -> u64 {
    files.iter().filter(|file| file.kind == "file" && file.opens > 0).count() as u64
}

fn joined(texts: BTreeSet<String>, between: &str) -> String {
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, inode: u64, bytes: u64) -> FileUse {
        let (path, kind) = (path.to_owned(), "file".to_owned());
        FileUse { path, kind, inode, opens: 1, written_bytes: bytes, ..FileUse::default() }
    }

    fn rank(files: Vec<FileUse>) -> Files {
        Files {
            completeness: Completeness::All,
            unattributed_read_bytes: Some(1),
            ..listed("preload", files, Vec::new(), Processes::default())
        }
    }

    #[test]
    fn a_shared_file_has_one_entry_and_local_files_of_one_path_have_several() {
        let mut joined = JoinedFiles::default();
        assert!(JoinedFiles::default().finish(3).is_none());
        for number in 0..3_u64 {
            let device = FileUse { device: number, ..file("/shared", 7, 100) };
            joined.add(rank(vec![device, file("/tmp/local", number, 10)]));
        }
        let files = joined.finish(0).expect("files");
        let of = |file: &FileUse| (file.path.clone(), file.opens, file.written_bytes);
        let found: Vec<_> = files.files.iter().map(of).collect();
        let local = ("/tmp/local".to_owned(), 1, 10);
        let shared = ("/shared".to_owned(), 3, 300);
        assert_eq!(found, [shared, local.clone(), local.clone(), local]);
        assert_eq!((files.files_total, files.files_left_out, files.written_bytes), (4, 0, 330));
        assert_eq!((files.completeness, files.reason.as_str()), (Completeness::All, ""));
        assert_eq!((files.method.as_str(), files.unattributed_read_bytes), ("preload", Some(3)));
        assert_eq!(files.unattributed_written_bytes, None);
    }

    #[test]
    fn files_beyond_a_list_are_summed_up_and_ranks_without_files_are_told() {
        let mut joined = JoinedFiles::default();
        for rank_number in 0..2_u64 {
            let files = (0..1_200).map(|n| file(&format!("/{rank_number}/{n}"), n, n));
            joined.add(rank(files.collect()));
        }
        let files = joined.finish(1).expect("files");
        assert_eq!((files.files.len(), files.files_total), (MAX_FILES_LISTED, 2_400));
        assert_eq!(files.files_left_out, 1_400);
        let listed: u64 = files.files.iter().map(|file| file.written_bytes).sum();
        assert_eq!(listed + files.left_out.written_bytes, files.written_bytes);
        assert_eq!(files.completeness, Completeness::AtLeast);
        assert_eq!(files.reason, "the files of 1 ranks were not counted");
    }
}
