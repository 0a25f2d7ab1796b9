//! A trace: the files of the processes of one run.

use super::clocks::{Clocks, Pairs};
use super::counts::Counts;
use super::loader::Loader;
use super::stream::{ProcessSample, Reader, Side, Visit, stream};
use crate::error::Error;

/// A trace whose processes, names and clocks are known. Analyses stream its records again.
pub struct Trace<'l> {
    loader: &'l dyn Loader,
    /// Names and counts.
    pub reader: Reader,
    /// Corrections of the clocks.
    pub clocks: Clocks,
    /// The first moment on the common clock, in ns since 1970; 0 without records.
    pub first: i64,
    /// The last moment on the common clock.
    pub last: i64,
    /// True if all records have the upper half of their request's id: hosts with contexts of 32 bytes pass on the lower
    /// half alone.
    pub has_whole_ids: bool,
}

impl std::fmt::Debug for Trace<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Trace").field("counts", &self.reader.counts).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Survey {
    pairs: Pairs,
    halves: u64,
    /// First and last moment of each process.
    extents: Vec<Option<(i64, i64)>>,
}

impl Survey {
    fn reach(&mut self, process: u32, first: i64, last: i64) {
        let at = process as usize;
        if self.extents.len() <= at {
            self.extents.resize(at + 1, None);
        }
        let extent = self.extents[at].get_or_insert((first, last));
        *extent = (extent.0.min(first), extent.1.max(last));
    }
}

impl Visit for Survey {
    fn side(&mut self, side: &Side, _: &Reader) {
        self.pairs.add(side);
        self.halves += u64::from(side.request_high == 0);
        self.reach(side.process, side.start, side.end());
    }

    fn sample(&mut self, sample: &ProcessSample, _: &Reader) {
        self.reach(sample.process, sample.time, sample.time);
    }
}

impl<'l> Trace<'l> {
    /// Reads all records once: names, counts, and the relation of the clocks.
    ///
    /// # Errors
    /// A file cannot be read, or no file describes a process.
    pub fn open(loader: &'l dyn Loader) -> Result<Self, Error> {
        let mut survey = Survey::default();
        let reader = stream(loader, None, &mut survey)?;
        if reader.processes.is_empty() {
            let why = match reader.counts.files {
                0 => {
                    "it has no traces; a recorder writes files `NAME-PID-START.sktrace`".to_owned()
                }
                1 => "its file does not describe a process".to_owned(),
                files => format!("none of its {files} files describes a process"),
            };
            return Err(Error::Input { input: "the trace".to_owned(), why });
        }
        let clocks = survey.pairs.clocks(&reader.processes, &reader.clock_errors);
        let corrected = survey.extents.iter().enumerate().filter_map(|(process, extent)| {
            let (first, last) = (*extent)?;
            let process = process as u32;
            Some((clocks.correct(process, first), clocks.correct(process, last)))
        });
        let (first, last) = corrected.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        let has_whole_ids = survey.halves == 0;
        Ok(Self { loader, reader, clocks, first, last, has_whole_ids })
    }

    /// Streams the records once more.
    ///
    /// # Errors
    /// A file cannot be read any more.
    pub fn stream(&self, visit: &mut dyn Visit) -> Result<(), Error> {
        stream(self.loader, Some(&self.reader.lengths), visit).map(|_| ())
    }

    /// Counts of records and defects.
    pub fn counts(&self) -> &Counts {
        &self.reader.counts
    }

    /// The labels of the processes, by their numbers: `kv@n01 (4711)`.
    pub fn labels(&self) -> Vec<String> {
        self.reader.processes.iter().map(super::process::label).collect()
    }

    /// The length of the run in ns.
    pub fn length_ns(&self) -> u64 {
        self.last.abs_diff(self.first)
    }
}
