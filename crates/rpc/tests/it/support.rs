//! Shared parts of the tests: traces of a process as a whole, and this binary as a child process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skopos_rpc::file::{ClockPoint, Counters, Definition, End, Node, Process};
use skopos_rpc::pvar::PvarInfo;
use skopos_rpc::record::{Details, Sample};
use skopos_rpc::{Frame, Frames, Options, Record, SpanRecord};
use tempfile::TempDir;

/// Environment variable of a child process: the folder to work in.
pub(crate) const CHILD_DIR: &str = "SKOPOS_TEST_CHILD_DIR";

/// Longer than any step takes on the slowest machine: a test that waits this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with one for the segment and one for the trace.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("traces")).expect("a folder");
        Self(dir)
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.0.path().join("run")
    }

    pub(crate) fn traces(&self) -> PathBuf {
        self.0.path().join("traces")
    }

    /// Options of the recorder `kv` with a trace and without a budget.
    pub(crate) fn options(&self) -> Options {
        Options::new("kv").dir(self.run()).trace_folder(self.traces()).budget(None)
    }

    /// Reads all parts of all traces.
    pub(crate) fn read(&self) -> Trace {
        let mut trace = Trace::default();
        let files = std::fs::read_dir(self.traces()).expect("a folder");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        let is_numbered = |path: &PathBuf| path.to_string_lossy().matches('.').count();
        let number = |path: &PathBuf| {
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            name.rsplit_once('.').and_then(|(_, n)| n.parse::<u32>().ok()).unwrap_or(0)
        };
        paths.sort_by_key(|path| (is_numbered(path), number(path)));
        paths.iter().for_each(|path| trace.add(path));
        trace
    }

    /// Runs the ignored test `name` of this binary with this folder.
    pub(crate) fn child(&self, name: &str) -> Kill {
        let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
        command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1", name]);
        command.env(CHILD_DIR, self.0.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        Kill(command.spawn().expect("this binary runs"))
    }
}

/// In a child: returns the folder to work in; `None` if a user runs all ignored tests. The child ends with its parent.
pub(crate) fn child_dir() -> Option<PathBuf> {
    let dir = std::env::var_os(CHILD_DIR).map(PathBuf::from)?;
    std::thread::spawn(|| {
        let mut sink = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut sink);
        std::process::exit(3);
    });
    Some(dir)
}

/// Kills its process and waits for the end when dropped.
pub(crate) struct Kill(pub(crate) Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls `found` until it returns a value; fails the test if it never does.
pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All parts of a trace.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) parts: usize,
    pub(crate) torn: usize,
    pub(crate) processes: Vec<Process>,
    pub(crate) clocks: Vec<ClockPoint>,
    pub(crate) spans: Vec<(SpanRecord, Vec<Details>)>,
    /// Number of spans of each ring.
    pub(crate) rings: BTreeMap<u32, u64>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) nodes: BTreeMap<u32, Node>,
    pub(crate) pvars: BTreeMap<u16, PvarInfo>,
    pub(crate) counters: Counters,
    pub(crate) lost: u64,
    pub(crate) end: Option<End>,
}

impl Trace {
    fn add(&mut self, path: &Path) {
        let mut frames = match Frames::open(path) {
            Ok(frames) => frames,
            Err(_) => {
                self.torn += 1;
                return;
            }
        };
        self.parts += 1;
        self.processes.push(frames.process().clone());
        while let Some(frame) = frames.next_frame().expect("readable") {
            match frame {
                Frame::Process(process) => self.processes.push(process),
                Frame::Clock(clock) => self.clocks.push(clock),
                Frame::Definition(Definition::Node(node)) => {
                    self.nodes.insert(node.id, node);
                }
                Frame::Definition(Definition::Pvar(pvar)) => {
                    self.pvars.insert(pvar.number, pvar);
                }
                Frame::Definition(Definition::Peer(_)) | Frame::Unknown(_) => {}
                Frame::Records(records) => {
                    self.lost += records.lost_before;
                    let ring = self.rings.entry(records.thread).or_default();
                    let before = self.spans.len();
                    for record in records.iter() {
                        match record.expect("a known kind") {
                            Record::Span(span) => {
                                *ring += 1;
                                self.spans.push((span, Vec::new()));
                            }
                            Record::Details(values) if self.spans.len() > before => {
                                self.spans.last_mut().expect("one of this frame").1.push(values);
                            }
                            // The first records of a frame after a loss.
                            Record::Details(_) => assert!(records.lost_before > 0),
                            Record::Sample(sample) => self.samples.push(sample),
                        }
                    }
                }
                Frame::Counters(counters) => self.counters = counters,
                Frame::End(end) => self.end = Some(end),
            }
        }
        assert_eq!(frames.damaged(), 0);
        self.torn += usize::from(frames.tear().is_some());
    }
}
