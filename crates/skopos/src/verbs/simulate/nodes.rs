//! Many nodes in one process, for tests and measurements of what follows them.
//!
//! What is real: each node announces itself, sends numbered batches, answers with snapshots and goes as an
//! agent does, through the same code and, unless `--sessions` says otherwise, a connection of its own.
//! What is not: the facts are made up (`facts`), nothing is measured and no shared memory is read, all
//! share one process and its network threads, and nobody is asked to measure anything.

use std::time::{Duration, Instant};

use skopos_wire::{Plane, PlaneConfig};

use super::node::Virtual;
use skopos_term::Failure;

/// How many nodes, and what they do.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) nodes: usize,
    pub(crate) facts: usize,
    /// Looks of each node at all of its facts in a second.
    pub(crate) rate: f64,
    /// The share of facts that a look finds changed.
    pub(crate) change: f64,
    /// Connections that the nodes share.
    pub(crate) sessions: usize,
    /// Begins their names.
    pub(crate) prefix: String,
    /// Nanoseconds that their clocks are ahead.
    pub(crate) ahead: i64,
    pub(crate) seed: u64,
    pub(crate) plane: PlaneConfig,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Done {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// Looks that were left out because this process did not keep up.
    pub(crate) late: u64,
}

/// Nodes that are there until they are dropped.
pub(crate) struct Nodes {
    nodes: Vec<Virtual>,
    /// Between two looks of one node.
    period: Duration,
    begun: Instant,
    /// Looks of all nodes since then.
    turn: u64,
    done: Done,
}

impl Nodes {
    /// Announces all of them.
    ///
    /// # Errors
    /// A session cannot be opened; a name is taken.
    pub(crate) fn start(simulation: &Simulation) -> Result<Self, Failure> {
        let failed = |e| Failure::new("simulated nodes cannot join").because(&e);
        let planes = open(&simulation.plane, simulation.sessions).map_err(failed)?;
        let nodes = (0..simulation.nodes)
            .map(|at| Virtual::start(simulation, at, &planes[at % planes.len()]))
            .collect::<Result<_, _>>()?;
        let period = Duration::try_from_secs_f64(1.0 / simulation.rate);
        let period = period.map_err(|_| Failure::new("a rate that slow is no rate"))?;
        Ok(Self { nodes, period, begun: Instant::now(), turn: 0, done: Done::default() })
    }

    /// When the next node looks.
    pub(crate) fn due(&self) -> Instant {
        self.begun + self.period.mul_f64(self.turn as f64 / self.nodes.len().max(1) as f64)
    }

    /// The next node looks and tells: one after the other, evenly over the time between two looks.
    pub(crate) fn look(&mut self, now: Instant) {
        let nodes = self.nodes.len() as u64;
        // More than a whole round late: what was missed is left out, and counted.
        while now.saturating_duration_since(self.due()) > self.period {
            self.turn += 1;
            self.done.late += 1;
        }
        let at = (self.turn % nodes) as usize;
        self.turn += 1;
        self.nodes[at].look(&mut self.done);
    }

    pub(crate) fn done(&self) -> Done {
        self.done
    }

    /// Says that all go.
    pub(crate) fn close(self) {
        self.nodes.into_iter().for_each(Virtual::close);
    }
}

/// Opens so many sessions, some at a time: each waits for a while until others have heard of it, or its
/// hub is there.
fn open(config: &PlaneConfig, sessions: usize) -> Result<Vec<Plane>, skopos_wire::Error> {
    /// Enough for a thousand sessions in seconds, and no crowd at the hub's door.
    const AT_A_TIME: usize = 32;
    std::thread::scope(|scope| {
        let share =
            |at| (at..sessions).step_by(AT_A_TIME).map(|_| open_patiently(config)).collect();
        let threads: Vec<_> =
            (0..AT_A_TIME.min(sessions)).map(|at| scope.spawn(move || share(at))).collect();
        let opened = threads.into_iter().map(|thread| thread.join());
        let opened: Vec<Result<Vec<Plane>, _>> = opened.flatten().collect();
        Ok(opened.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    })
}

/// Opens a session; a hub that is away, or that has no room for all at once, is tried again.
fn open_patiently(config: &PlaneConfig) -> Result<Plane, skopos_wire::Error> {
    /// Some minutes of the longest pause.
    const ATTEMPTS: usize = 60;
    config.check()?;
    let mut opened = Plane::open(config);
    // A peer tries by itself, so what it says is final.
    for pause in config.pauses().take(if config.is_client { ATTEMPTS } else { 0 }) {
        if opened.is_ok() {
            break;
        }
        std::thread::sleep(pause);
        opened = Plane::open(config);
    }
    opened
}
