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

impl Counts {
    /// The defects with their counts and a sentence for each, those that are zero left out.
    pub fn defects(&self) -> Vec<(&'static str, u64)> {
        [
            ("records were lost before they were drained", self.lost_records),
            ("files are torn; they were read up to the tear", self.torn_files),
            ("files do not describe their process and were not used", self.files_without_process),
            ("files have no end: their process still runs, or died", self.open_files),
            ("processes wrote a newer format, read as far as it is known", self.newer_processes),
            ("records or values had no room in their recorder", self.unrecorded),
            ("Lamport clocks were too far ahead and were bounded", self.bounded_clocks),
            ("contexts were of a newer version, read as far as it is known", self.newer_contexts),
            (
                "records of dead processes were removed, perhaps before they were drained",
                self.removed_dead,
            ),
            ("variables have a source that failed", self.failed_sources),
            ("times a recorder recorded less to keep its budget", self.budget_steps),
            ("frames are of an unknown kind", self.unknown_frames),
            ("frames have a bad payload", self.bad_frames),
            ("records are of an unknown kind or without a request", self.unknown_records),
            ("records come before the first clock and were not used", self.records_without_clock),
            ("details belong to no record", self.stray_details),
            ("values of details are not defined or too many", self.dropped_values),
            ("records have times that are not credible and were cut", self.cut_times),
            ("records have no callpath and count as `(other)`", self.records_without_callpath),
            ("callpaths are beyond the bound and count as `(other)`", self.refused_callpaths),
            ("hashes belong to more than one callpath", self.hash_collisions),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
    }
}
