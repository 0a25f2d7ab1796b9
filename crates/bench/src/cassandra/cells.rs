//! The cases: a workload of YCSB, an added delay to the fast replica, whether that replica has a page cache, and the seeks of the
//! slow ones.

use std::time::Duration;

use crate::plan::Plan;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// `A` updates in half of its operations, `B` in a twentieth, `C` in none.
    pub(super) workload: char,
    /// Milliseconds that the link to the fast replica adds in each direction, half of what a round trip gains.
    pub(super) delay_ms: f64,
    /// False if the page cache of the fast replica is dropped each second, as that of the slow ones always is.
    pub(super) is_cached: bool,
    /// Milliseconds of a seek of the slow replicas.
    pub(super) seek_ms: f64,
}

/// The seeks of the paper's hard disks are of 1 to 2 ms.
const SEEK_MS: f64 = 2.0;

/// Seeks below a millisecond, the unit in which Cassandra's dynamic snitch counts.
const SHORT_SEEK_MS: f64 = 0.4;

impl Cell {
    const fn new(workload: char, delay_ms: f64, is_cached: bool) -> Self {
        Self { workload, delay_ms, is_cached, seek_ms: SEEK_MS }
    }

    const fn with_short_seeks(mut self) -> Self {
        self.seek_ms = SHORT_SEEK_MS;
        self
    }

    /// Returns the name of the case in the report; the latency is that of a round trip.
    pub(super) fn name(self) -> String {
        let cache = if self.is_cached { "cache" } else { "no cache" };
        let seeks = match self.seek_ms < SEEK_MS {
            true => format!(", seeks of {} ms", self.seek_ms),
            false => String::new(),
        };
        format!("{}, {} ms added, {cache}{seeks}", self.workload, 2.0 * self.delay_ms)
    }
}

/// The way in which the coordinator chooses replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Cassandra's dynamic snitch, as it is shipped.
    Stock,
    /// The snitch of Skopos.
    Jar,
    /// Cassandra's dynamic snitch with severities from the rank.
    JarLess,
}

impl Variant {
    pub(super) const ALL: [Self; 3] = [Self::Stock, Self::Jar, Self::JarLess];

    /// Returns the name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Jar => "skopos",
            Self::JarLess => "jar-less",
        }
    }
}

/// Figure 3 of the paper: workload A at five latencies, with and without the cache; and figure 2: B and C without added latency.
/// Cells of one delay stand together, because a new delay has to be noticed first.
const FULL: [Cell; 13] = [
    Cell::new('A', 0.0, true),
    Cell::new('A', 0.0, false),
    Cell::new('B', 0.0, true),
    Cell::new('C', 0.0, true),
    Cell::new('C', 0.0, true).with_short_seeks(),
    Cell::new('A', 1.0, true),
    Cell::new('A', 1.0, false),
    Cell::new('A', 2.5, true),
    Cell::new('A', 2.5, false),
    Cell::new('A', 5.0, true),
    Cell::new('A', 5.0, false),
    Cell::new('A', 12.5, true),
    Cell::new('A', 12.5, false),
];

const SHORT: [Cell; 4] = [
    Cell::new('A', 0.0, true),
    Cell::new('C', 0.0, true).with_short_seeks(),
    Cell::new('A', 2.5, true),
    Cell::new('A', 12.5, true),
];

/// Number of cells, rounds, and the time of a turn.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) cells: Vec<Cell>,
    pub(super) rounds: usize,
    pub(super) turn: Duration,
}

/// Returns what fits into 15 minutes, or into 5 for a short run. A turn is longer than the five seconds of a cold start.
pub(super) fn extent(plan: &Plan) -> Extent {
    let turn = Duration::from_secs(6);
    match plan.is_short {
        true => Extent { cells: SHORT.to_vec(), rounds: 1, turn },
        false => Extent { cells: FULL.to_vec(), rounds: 2, turn },
    }
}
