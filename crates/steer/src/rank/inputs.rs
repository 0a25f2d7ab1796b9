//! The values that a ranking reads.

use skopos_model::Timestamp;

/// Most reports of peers about one metric of one candidate; further ones are counted and left out. The median of eight
/// cannot be moved by three liars.
pub const MAX_PEERS: usize = 8;

/// A value of a metric of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The value, in the unit of its metric.
    pub value: f64,
    /// Time of the value: the last poll of its source.
    pub at: Timestamp,
    /// Number of measurements behind the value.
    pub samples: u32,
}

/// Measurements by peers of one metric of one candidate.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) cell: usize,
    pub(crate) readings: Vec<Reading>,
}

/// A table of candidates and metrics. A missing value is missing, not zero.
#[derive(Clone, Debug)]
pub struct Inputs {
    candidates: usize,
    metrics: usize,
    own: Vec<Option<Reading>>,
    /// In rising order of `cell`.
    peers: Vec<Peers>,
    refused: u64,
}

impl Inputs {
    /// Makes an empty table.
    pub fn new(candidates: usize, metrics: usize) -> Self {
        let own = vec![None; candidates.saturating_mul(metrics)];
        Self { candidates, metrics, own, peers: Vec::new(), refused: 0 }
    }

    /// Sets the value that a candidate reports of itself, or that this node alone measures. An index outside of the
    /// table is counted in [`refused`](Self::refused).
    pub fn set(&mut self, candidate: usize, metric: usize, reading: Reading) {
        match self.cell(candidate, metric) {
            Some(cell) => self.own[cell] = Some(reading),
            None => self.refused += 1,
        }
    }

    /// Adds the measurement of a candidate by a peer. Two fresh peers or more can contradict the candidate.
    pub fn add_peer(&mut self, candidate: usize, metric: usize, reading: Reading) {
        let Some(cell) = self.cell(candidate, metric) else {
            self.refused += 1;
            return;
        };
        let at = match self.peers.binary_search_by_key(&cell, |p| p.cell) {
            Ok(at) => at,
            Err(at) => {
                self.peers.insert(at, Peers { cell, readings: Vec::new() });
                at
            }
        };
        let readings = &mut self.peers[at].readings;
        if readings.len() < MAX_PEERS {
            readings.push(reading);
        } else {
            self.refused += 1;
        }
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.own.fill(None);
        self.peers.clear();
    }

    /// Returns the number of values that were left out, because their index or number was too large.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of candidates.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// Returns the number of metrics.
    pub fn metrics(&self) -> usize {
        self.metrics
    }

    #[inline]
    pub(crate) fn own(&self, cell: usize) -> Option<Reading> {
        self.own[cell]
    }

    pub(crate) fn peers(&self) -> &[Peers] {
        &self.peers
    }

    fn cell(&self, candidate: usize, metric: usize) -> Option<usize> {
        (candidate < self.candidates && metric < self.metrics)
            .then(|| candidate * self.metrics + metric)
    }
}
