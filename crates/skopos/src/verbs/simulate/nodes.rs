//! Many nodes in one process, for tests and measurements of hubs.
//!
//! Real are the messages: each node announces itself, sends numbered batches, answers with snapshots and leaves
//! like an agent, through the same code and, unless `--sessions` says otherwise, a connection of its own.
//! Simulated is the rest: the facts are made up (`facts`), sensors and shared memory are not used, all nodes
//! share one process and its network threads, and requests for fresh values are not answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use skopos_wire::{Plane, PlaneConfig};

use super::node::Virtual;
use super::plan::{Counts, Simulation};
use skopos_term::Failure;

/// The simulated nodes, which leave when they are dropped.
pub(crate) struct Nodes {
    /// The nodes that have joined.
    nodes: Vec<Virtual>,
    /// Number of nodes when all have joined.
    count: usize,
    /// Receives each node that has joined, or the first error.
    joining: Receiver<Result<Virtual, Failure>>,
    /// Time between two turns of a node.
    period: Duration,
    /// Polls in a turn, at most one. In a turn without a poll a node sends an empty batch: it may not be silent for long.
    polls: f64,
    begun: Instant,
    /// Number of turns of all nodes since then.
    turn: u64,
    done: Counts,
}

impl Nodes {
    /// Announces all nodes through these sessions, on a thread of its own: a node that has joined is polled while others
    /// join, because a hub takes a silent node for dead. The thread ends with the process, because an announcement cannot be
    /// interrupted.
    pub(crate) fn start(simulation: &Simulation, planes: Vec<Plane>) -> Self {
        let (send, joining) = mpsc::channel();
        let (period, polls) =
            (Duration::from_secs_f64(1.0 / simulation.rate.max(1.0)), simulation.rate.min(1.0));
        let (simulation, count) = (simulation.clone(), simulation.nodes);
        std::thread::spawn(move || {
            for at in 0..count {
                let node = Virtual::start(&simulation, at, &planes[at % planes.len()]);
                let is_last = node.is_err();
                if send.send(node).is_err() || is_last {
                    return;
                }
            }
        });
        let (nodes, begun, done) = (Vec::new(), Instant::now(), Counts::default());
        Self { nodes, count, joining, period, polls, begun, turn: 0, done }
    }

    /// Takes the nodes that have joined since the last call. Returns true if all have joined.
    ///
    /// # Errors
    /// A name is taken, or the thread that announces nodes has ended before its last one.
    pub(crate) fn take_joined(&mut self) -> Result<bool, Failure> {
        let is_over = loop {
            match self.joining.try_recv() {
                Ok(node) => self.nodes.push(node?),
                Err(e) => break e == TryRecvError::Disconnected,
            }
        };
        let (joined, count) = (self.nodes.len(), self.count);
        if is_over && joined < count {
            return Err(Failure::new(format!("{joined} of {count} simulated nodes have joined"))
                .hint("the thread that announces them has ended; its message is above"));
        }
        Ok(joined == count)
    }

    /// Begins to count the work anew: turns that were due before `now` are left out.
    pub(crate) fn count_from(&mut self, now: Instant) {
        self.skip_missed(now);
        self.done = Counts::default();
    }

    /// Time of the next turn.
    pub(crate) fn due(&self) -> Instant {
        self.begun + self.period.mul_f64(self.turn as f64 / self.count as f64)
    }

    /// Has the next node send a batch if it has joined: the nodes take turns, spread evenly over the period.
    pub(crate) fn poll(&mut self, now: Instant) {
        let nodes = self.count as u64;
        self.skip_missed(now);
        let (at, round) = ((self.turn % nodes) as usize, (self.turn / nodes) as f64);
        self.turn += 1;
        let Some(node) = self.nodes.get_mut(at) else { return };
        match (self.polls * (round + 1.0)).floor() > (self.polls * round).floor() {
            true => node.poll(&mut self.done),
            false => node.send_empty(&mut self.done),
        }
    }

    /// Skips and counts the turns that are more than a whole period late.
    fn skip_missed(&mut self, now: Instant) {
        while now.saturating_duration_since(self.due()) > self.period {
            self.turn += 1;
            self.done.late += 1;
        }
    }

    /// Returns the counts of the work since [`count_from`](Self::count_from).
    pub(crate) fn done(&self) -> Counts {
        self.done
    }

    /// Announces that all nodes leave.
    pub(crate) fn close(self) {
        self.nodes.into_iter().for_each(Virtual::close);
    }
}

/// Sessions that are being opened.
pub(crate) struct Opening {
    /// Receives all sessions, or the first error.
    pub(crate) result: Receiver<Result<Vec<Plane>, Failure>>,
    /// Number of sessions that are open.
    opened: Arc<AtomicUsize>,
}

impl Opening {
    /// Returns true if a hub has answered.
    pub(crate) fn is_answered(&self) -> bool {
        // SYNC: a counter of its own; nothing else is read after it.
        self.opened.load(Ordering::Relaxed) > 0
    }
}

/// Opens the sessions of a simulation in threads of its own, some at a time: each waits until its hub
/// answers, or until other nodes have heard of it. The result arrives in the channel. The threads end with
/// the process, because an attempt to connect cannot be interrupted.
pub(crate) fn open(simulation: &Simulation) -> Opening {
    /// Opens a thousand sessions in seconds, and does not crowd the hub's listener.
    const AT_A_TIME: usize = 32;
    let (simulation, sessions) = (simulation.clone(), simulation.sessions);
    let (send, result) = mpsc::channel();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    std::thread::spawn(move || {
        let opened = std::thread::scope(|scope| {
            let share = |at| {
                let one = |at| Ok((at, open_patiently(&config_of(&simulation, at)?, &count)?));
                (at..sessions).step_by(AT_A_TIME).map(one).collect()
            };
            let threads: Vec<_> =
                (0..AT_A_TIME.min(sessions)).map(|at| scope.spawn(move || share(at))).collect();
            let opened = threads.into_iter().map(|thread| thread.join());
            let opened: Vec<Result<Vec<(usize, Plane)>, Failure>> = opened.flatten().collect();
            let opened = opened.into_iter().collect::<Result<Vec<_>, _>>()?;
            let mut opened: Vec<(usize, Plane)> = opened.into_iter().flatten().collect();
            opened.sort_by_key(|(at, _)| *at);
            Ok(opened.into_iter().map(|(_, plane)| plane).collect())
        });
        let _ = send.send(opened);
    });
    Opening { result, opened }
}

/// Returns the settings of one session: with certificates, those of the node that it belongs to.
fn config_of(simulation: &Simulation, at: usize) -> Result<PlaneConfig, Failure> {
    let mut config = simulation.plane.clone();
    if let Some(certificates) = &simulation.certificates {
        config.identity = Some(Arc::new(certificates.of(&simulation.name_of(at))?));
    }
    Ok(config)
}

/// Opens a session. A hub that is away, or that has no room for all at once, is tried until it answers.
fn open_patiently(config: &PlaneConfig, count: &AtomicUsize) -> Result<Plane, Failure> {
    let failed = |e| Failure::new("simulated nodes cannot join").because(&e);
    config.check().map_err(failed)?;
    let mut pauses = config.pauses();
    loop {
        match (Plane::open(config), pauses.next()) {
            // A peer retries by itself, so its error is final.
            (Err(_), Some(pause)) if config.is_client => std::thread::sleep(pause),
            (opened, _) => {
                // SYNC: a counter of its own; nothing is written before it.
                count.fetch_add(usize::from(opened.is_ok()), Ordering::Relaxed);
                return opened.map_err(failed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two nodes that have not joined yet, with the sender of the thread that announces them.
    fn two() -> (mpsc::Sender<Result<Virtual, Failure>>, Nodes) {
        let (send, joining) = mpsc::channel();
        let period = Duration::from_secs(1);
        let (nodes, begun, done) = (Vec::new(), Instant::now(), Counts::default());
        (send, Nodes { nodes, count: 2, joining, period, polls: 1.0, begun, turn: 0, done })
    }

    #[test]
    fn the_work_until_all_nodes_have_joined_is_not_counted() {
        let (_send, mut nodes) = two();
        let now = nodes.begun + Duration::from_secs(60);
        nodes.done.batches = 7;
        nodes.count_from(now);
        assert_eq!((nodes.done().batches, nodes.done().late), (0, 0));
        nodes.poll(now);
        assert_eq!(nodes.done().late, 0, "turns that were missed before");
        nodes.poll(now + Duration::from_secs(10));
        assert!(nodes.done().late > 0);
    }

    #[test]
    fn nodes_that_nothing_announces_any_more_are_an_error() {
        let (send, mut nodes) = two();
        assert!(!nodes.take_joined().expect("no error"));
        drop(send);
        let failure = nodes.take_joined().expect_err("two nodes are missing");
        assert_eq!(failure.message(), "0 of 2 simulated nodes have joined");
    }
}
