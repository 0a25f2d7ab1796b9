//! The agent under measurement: a copy of this binary, started as a user starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skopos_model::TopicPattern;
use skopos_shm::{Host, Segment};

use super::place::Place;
use super::polls::Polls;
use crate::child::{Process, wait_for};
use skopos_term::Failure;

/// The longest time until the first facts of the agent.
const START: Duration = Duration::from_secs(10);
/// The agent ends by itself after this time, if the benchmark is killed.
const LIFE: &str = "10m";
/// Time from a tick to a reading of counters: about halfway to the next tick.
const OFF_TICK: Duration = Duration::from_millis(400);

/// A running agent. Ends when dropped.
pub(crate) struct Watcher {
    process: Process,
    segment: Segment,
}

impl Watcher {
    /// Starts it with this configuration and these options, and waits for its first facts.
    ///
    /// # Errors
    /// It does not start, or does not publish; the hint is its output.
    pub(crate) fn start(place: &Place, config: &str, options: &[&str]) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start the agent").because(&e);
        let dir = new_dir(place)?;
        let (log, file) = (dir.with_extension("log"), dir.with_extension("toml"));
        std::fs::write(&file, config).map_err(broken)?;
        let mut command = Command::new(&place.program);
        command.args(["agent", "--for", LIFE]).args(options);
        // An empty file, too: the user's configuration must not be measured.
        command.arg("--config").arg(&file).arg("--dir").arg(&dir);
        command.env_remove(skopos_shm::DIR_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).map_err(broken)?);
        let mut process = Process::start(&mut command).map_err(broken)?;
        let segment = wait_for(&mut process, START, || published(&dir)).map_err(|why| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Failure::new(format!("the agent does not publish: {why}")).hint(said.trim())
        })?;
        Ok(Self { process, segment })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Checks that the agent still runs.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.process.runs() {
            true => Ok(()),
            false => Err(Failure::new("the agent ended while it was measured")),
        }
    }

    /// Number of topics that match.
    pub(crate) fn count(&self, pattern: &str) -> Result<usize, Failure> {
        let pattern = TopicPattern::new(pattern)?;
        let vertices = self.segment.vertices();
        Ok(vertices.iter().filter(|vertex| pattern.matches(vertex.topic())).count())
    }

    /// The number in the only topic that matches.
    pub(crate) fn value(&self, pattern: &str) -> Result<f64, Failure> {
        let matches = TopicPattern::new(pattern)?;
        let vertices = self.segment.vertices();
        let vertex = vertices.iter().find(|vertex| matches.matches(vertex.topic()));
        let value = vertex.and_then(|vertex| vertex.latest().ok()?.as_f64());
        value.ok_or_else(|| Failure::new(format!("the agent does not publish {pattern}")))
    }

    /// Waits for the next tick, and then for about half of the interval.
    pub(crate) fn wait_between_ticks(&self) -> Result<(), Failure> {
        let mut ticks = Polls::any(&self.segment)?.subscribe();
        ticks.next_timeout(START)?;
        std::thread::sleep(OFF_TICK);
        Ok(())
    }
}

/// A new directory for an agent.
fn new_dir(place: &Place) -> Result<PathBuf, Failure> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    place.memory.dir(&format!("agent-{}", STARTED.fetch_add(1, Ordering::Relaxed)))
}

/// The agent's segment, once it has facts of its own.
fn published(dir: &Path) -> Option<Segment> {
    let host = Host::open_dirs(vec![dir.into()]).ok()?;
    let segment = host.segments().first()?;
    Polls::start(segment).is_ok().then(|| segment.clone())
}
