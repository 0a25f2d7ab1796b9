//! One simulated node.

use std::sync::{Arc, Mutex, MutexGuard};

use skopos_model::SplitMix64;
use skopos_model::{Timestamp, unpoisoned};
use skopos_shm::now;
use skopos_wire::{Batch, Checked, Outlet, Plane};

use super::facts::{self, Fact};
use super::plan::{Counts, Simulation};
use skopos_term::Failure;

/// A simulated node that publishes made-up facts.
pub(super) struct Virtual {
    state: Arc<Mutex<State>>,
    outlet: Outlet,
    random: SplitMix64,
    change: f64,
}

struct State {
    facts: Vec<Fact>,
    sequence: u64,
    ahead: i64,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    unpoisoned(state.lock())
}

impl Virtual {
    /// Announces the node with this number.
    pub(super) fn start(
        simulation: &Simulation,
        at: usize,
        plane: &Plane,
    ) -> Result<Self, Failure> {
        let Simulation { ahead, change, .. } = simulation;
        let name = simulation.name_of(at);
        let mut random = SplitMix64::new(simulation.seed.wrapping_add(at as u64));
        let mut facts = facts::of_node(&name, simulation.facts, &mut random);
        let state = State { facts: Vec::new(), sequence: 0, ahead: *ahead };
        let begun = state.clock();
        facts.iter_mut().for_each(|fact| fact.time = begun);
        let state = Arc::new(Mutex::new(State { facts, ..state }));
        let whole = {
            let state = state.clone();
            move || lock(&state).whole()
        };
        let outlet = plane.announce(&name, now().as_nanos(), whole).map_err(|e| {
            let failure = Failure::new(format!("the node `{name}` cannot join")).because(&e);
            failure.hint("choose other names with `--prefix`")
        })?;
        Ok(Self { state, outlet, random, change: *change })
    }

    /// Polls all facts, changes some, and sends a batch.
    pub(super) fn poll(&mut self, done: &mut Counts) {
        let (state, random) = (&mut *lock(&self.state), &mut self.random);
        let time = state.clock();
        let mut batch = Batch { sent_at: time, ..Batch::default() };
        for fact in &mut state.facts {
            if random.unit() < self.change {
                fact.change(time, random);
                batch.samples.push(fact.sample());
            }
        }
        batch.checked = vec![Checked { at: time, runs: vec![(0, state.facts.len() as u32)] }];
        send(&self.outlet, batch, &mut state.sequence, done);
    }

    /// Sends a batch without content.
    pub(super) fn send_empty(&mut self, done: &mut Counts) {
        let state = &mut *lock(&self.state);
        let batch = Batch { sent_at: state.clock(), ..Batch::default() };
        send(&self.outlet, batch, &mut state.sequence, done);
    }

    pub(super) fn close(self) {
        self.outlet.close();
    }
}

/// Sends a batch in parts, and counts them.
fn send(outlet: &Outlet, batch: Batch, sequence: &mut u64, done: &mut Counts) {
    for mut part in batch.split_for_followers() {
        *sequence += 1;
        part.sequence = *sequence;
        done.batches += 1;
        done.samples += part.samples.len() as u64;
        done.bytes += outlet.send(&part).unwrap_or_default() as u64;
    }
}

impl State {
    /// The time of day of this node's clock.
    fn clock(&self) -> Timestamp {
        Timestamp::from_nanos(now().as_nanos().saturating_add(self.ahead))
    }

    fn whole(&self) -> Vec<Batch> {
        let all = Batch {
            sequence: self.sequence,
            sent_at: self.clock(),
            described: self.facts.iter().map(|fact| fact.description.clone()).collect(),
            samples: self.facts.iter().map(Fact::sample).collect(),
            checked: vec![Checked { at: self.clock(), runs: vec![(0, self.facts.len() as u32)] }],
            ..Batch::default()
        };
        all.split()
    }
}
