//! The sizes of the queries, and the number of nodes and clients.

use super::question::MAX_COMPLEXITY;

/// Tables in one query (Figure 12b), the last being the most.
pub(super) const COMPLEXITIES: [usize; 4] = [1, 2, 4, MAX_COMPLEXITY];
/// Nodes (Figure 12a), the last being all.
pub(super) const NODES: [usize; 3] = [1, 4, 16];
/// Tables in a query while the nodes become more, as in the paper.
pub(super) const PAPERS_COMPLEXITY: usize = 3;
/// Clients that ask at once.
pub(super) const CLIENTS: [usize; 3] = [1, 4, 16];

/// One point of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setting {
    pub(super) complexity: usize,
    pub(super) nodes: usize,
    pub(super) clients: usize,
}
