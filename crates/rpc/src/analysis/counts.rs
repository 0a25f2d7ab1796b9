//! Counts of what a trace lacks: nothing that is left out of an analysis is left out in silence.

use serde::Serialize;

/// The files, records and defects of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Files that were read.
    pub files: u64,
    /// Files without a whole frame that describes their process; nothing else of them is used.
    pub files_without_process: u64,
    /// Files that end within a frame or go on with other bytes: read up to there.
    pub torn_files: u64,
    /// Files that have the records of another file, at least in part: copies. Each record counts once.
    pub copied_files: u64,
    /// Files of processes that died; their records were recovered from shared memory.
    pub recovered_files: u64,
    /// Files without a frame that ends them: the process still runs, or died.
    pub open_files: u64,
    /// Processes whose format is newer than this program; read as far as it is known.
    pub newer_processes: u64,
    /// Frames of kinds that this program does not know.
    pub unknown_frames: u64,
    /// Frames of a known kind with a payload that is too short or not credible.
    pub bad_frames: u64,
    /// All records.
    pub records: u64,
    /// Records of the caller's side.
    pub origins: u64,
    /// Records of the callee's side.
    pub targets: u64,
    /// Records of steps inside of a process.
    pub locals: u64,
    /// Samples of processes.
    pub samples: u64,
    /// Records that the recorder overwrote before they were drained.
    pub lost_records: u64,
    /// Records of kinds that this program does not know, or without the id of a request.
    pub unknown_records: u64,
    /// Records before the first relation of ticks to time; not used.
    pub records_without_clock: u64,
    /// Records of details that follow no record, or are fewer than their record says.
    pub stray_details: u64,
    /// Values of details without a definition, or beyond the most of a record.
    pub dropped_values: u64,
    /// Records with a time or a duration that is not credible; it was cut.
    pub cut_times: u64,
    /// Records whose callpath is not defined; they count for `(other)`.
    pub records_without_callpath: u64,
    /// Definitions of callpaths beyond the bounds of recorders and analyses; their records count for `(other)`.
    pub refused_callpaths: u64,
    /// Hashes that belong to more than one callpath.
    pub hash_collisions: u64,
    /// Records and values for which the recorders of the processes had no room, as they counted them.
    pub unrecorded: u64,
    /// Lamport clocks of callers that were too far ahead to be believed; the order of such calls is that of their times.
    pub bounded_clocks: u64,
    /// Contexts of a newer version, which processes read as far as they know them.
    pub newer_contexts: u64,
    /// Records of dead processes that a later process of the service removed from memory; a drain may have had some.
    pub removed_dead: u64,
    /// Variables whose source failed; they have no values from then on.
    pub failed_sources: u64,
    /// Number of times that a recorder recorded less to keep its budget of overhead.
    pub budget_steps: u64,
}

/// A defect: its sentence for one and for several, and its count.
type Defect = (&'static str, &'static str, fn(&Counts) -> u64);

/// The defects in the order in which they are told.
const DEFECTS: [Defect; 22] = [
    (
        "record was lost before it was drained",
        "records were lost before they were drained",
        |counts| counts.lost_records,
    ),
    (
        "file is torn; it was read up to the tear",
        "files are torn; they were read up to the tear",
        |counts| counts.torn_files,
    ),
    (
        "file is a copy of another one; its records count once",
        "files are copies of others; their records count once",
        |counts| counts.copied_files,
    ),
    (
        "file does not describe its process and was not used",
        "files do not describe their process and were not used",
        |counts| counts.files_without_process,
    ),
    (
        "file has no end: its process still runs, or died",
        "files have no end: their process still runs, or died",
        |counts| counts.open_files,
    ),
    (
        "process wrote a newer format, read as far as it is known",
        "processes wrote a newer format, read as far as it is known",
        |counts| counts.newer_processes,
    ),
    (
        "record or value had no room in its recorder",
        "records or values had no room in their recorder",
        |counts| counts.unrecorded,
    ),
    (
        "Lamport clock was too far ahead and was bounded",
        "Lamport clocks were too far ahead and were bounded",
        |counts| counts.bounded_clocks,
    ),
    (
        "context was of a newer version, read as far as it is known",
        "contexts were of a newer version, read as far as it is known",
        |counts| counts.newer_contexts,
    ),
    (
        "record of a dead process was removed, perhaps before it was drained",
        "records of dead processes were removed, perhaps before they were drained",
        |counts| counts.removed_dead,
    ),
    ("variable has a source that failed", "variables have a source that failed", |counts| {
        counts.failed_sources
    }),
    (
        "time a recorder recorded less to keep its budget",
        "times a recorder recorded less to keep its budget",
        |counts| counts.budget_steps,
    ),
    ("frame is of an unknown kind", "frames are of an unknown kind", |counts| {
        counts.unknown_frames
    }),
    ("frame has a bad payload", "frames have a bad payload", |counts| counts.bad_frames),
    (
        "record is of an unknown kind or without a request",
        "records are of an unknown kind or without a request",
        |counts| counts.unknown_records,
    ),
    (
        "record comes before the first clock and was not used",
        "records come before the first clock and were not used",
        |counts| counts.records_without_clock,
    ),
    ("detail belongs to no record", "details belong to no record", |counts| counts.stray_details),
    (
        "value of details is not defined or one too many",
        "values of details are not defined or too many",
        |counts| counts.dropped_values,
    ),
    (
        "record has a time that is not credible and was cut",
        "records have times that are not credible and were cut",
        |counts| counts.cut_times,
    ),
    (
        "record has no callpath and counts as `(other)`",
        "records have no callpath and count as `(other)`",
        |counts| counts.records_without_callpath,
    ),
    (
        "callpath is beyond the bound and counts as `(other)`",
        "callpaths are beyond the bound and count as `(other)`",
        |counts| counts.refused_callpaths,
    ),
    (
        "hash belongs to more than one callpath",
        "hashes belong to more than one callpath",
        |counts| counts.hash_collisions,
    ),
];

impl Counts {
    /// The defects with their counts and a sentence for each, those that are zero left out.
    pub fn defects(&self) -> Vec<(&'static str, u64)> {
        let counted = DEFECTS.iter().map(|(one, many, count)| match count(self) {
            1 => (*one, 1),
            count => (*many, count),
        });
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_defect_is_not_plural() {
        let counts = Counts { torn_files: 1, lost_records: 2, ..Counts::default() };
        let expected = [
            ("records were lost before they were drained", 2),
            ("file is torn; it was read up to the tear", 1),
        ];
        assert_eq!(counts.defects(), expected);
    }
}
