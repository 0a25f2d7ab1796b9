use std::path::PathBuf;

use skopos_shm::Publisher;

use crate::file::Process;
use crate::interval::Interval;
use crate::recorder::stage::Stage;

/// Default number of rings: a thread each. A thread without a ring counts its records as dropped.
pub const DEFAULT_THREADS: u32 = 64;
/// Default number of records of a ring: 512 KiB, which a thread with a million calls a second fills in 4 ms after it woke
/// the drain.
pub const DEFAULT_RING_RECORDS: u32 = 8192;
/// Default bound on the cost of recording: a hundredth of a core.
pub const DEFAULT_BUDGET: f64 = 0.01;
/// Default bound on the trace of a process on disk, all parts together: sixteen million records.
pub const DEFAULT_TRACE_BYTES: u64 = 1 << 30;

/// The settings of a recorder.
#[derive(Debug)]
pub struct Options {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) trace_folder: Option<PathBuf>,
    pub(crate) stage: Stage,
    pub(crate) process: Process,
    pub(crate) threads: u32,
    pub(crate) ring_records: u32,
    pub(crate) budget: Option<f64>,
    pub(crate) trace_bytes: u64,
    pub(crate) publisher: Option<Publisher>,
}

impl Options {
    /// Describes the recorder of service `name`: 1 to 48 of the characters `a-z 0-9 _ - .`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            node: String::new(),
            dir: None,
            trace_folder: None,
            stage: Stage::default(),
            process: Process::default(),
            threads: DEFAULT_THREADS,
            ring_records: DEFAULT_RING_RECORDS,
            budget: Some(DEFAULT_BUDGET),
            trace_bytes: DEFAULT_TRACE_BYTES,
            publisher: None,
        }
    }

    /// Sets the name of the node.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        node.clone_into(&mut self.node);
        self
    }

    /// Sets the runtime directory of the segment, instead of [`skopos_shm::runtime_dir`].
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the folder of the trace, which exists. Without it the agent of the node collects the records.
    #[must_use]
    pub fn trace_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.trace_folder = Some(folder.into());
        self
    }

    /// Sets the bound on the trace on disk, in bytes. The oldest parts are deleted, and their records counted.
    #[must_use]
    pub fn max_trace_bytes(mut self, bytes: u64) -> Self {
        self.trace_bytes = bytes;
        self
    }

    /// Sets the stage at the beginning; [`Stage::Full`] unless set.
    #[must_use]
    pub fn stage(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// Sets the greatest number of threads that record at a time, at most 1024, and the records of each one's ring, a power
    /// of two from 64 to 65,536.
    #[must_use]
    pub fn rings(mut self, threads: u32, ring_records: u32) -> Self {
        (self.threads, self.ring_records) = (threads, ring_records);
        self
    }

    /// Sets the share of processor time that recording may cost: of one core, or of all that the process uses if that is
    /// more. `None` sets no bound. [`DEFAULT_BUDGET`] unless set.
    #[must_use]
    pub fn budget(mut self, share: Option<f64>) -> Self {
        self.budget = share;
        self
    }

    /// Has the variables of the process published as topics `NODE/rpc/NAME/pvar/VARIABLE` each second.
    #[must_use]
    pub fn publish(mut self, publisher: Publisher) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// Names the RPC library, such as `tonic 0.14`.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.process.host);
        self
    }

    /// Names intervals that the host sees.
    #[must_use]
    pub fn sees(mut self, intervals: &[Interval]) -> Self {
        self.process.intervals.extend(intervals.iter().map(|i| i.name().to_owned()));
        self
    }

    /// Names an interval that the host cannot see, with the reason.
    #[must_use]
    pub fn cannot_see(mut self, interval: Interval, reason: &str) -> Self {
        self.process.unseen.insert(interval.name().to_owned(), reason.to_owned());
        self
    }

    /// Sets a value of the service's configuration, which is kept with the trace.
    #[must_use]
    pub fn config(mut self, key: &str, value: impl ToString) -> Self {
        self.process.config.insert(key.to_owned(), value.to_string());
        self
    }
}
