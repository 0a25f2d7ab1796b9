//! Bounds on a statement and on its answer.

use std::time::Duration;

/// Length of the longest statement: the paper's resource query for a thousand nodes fits.
pub const MAX_SQL_BYTES: usize = 128 * 1024;

/// Number of parameters of one statement: an `IN` of a thousand topics fits.
pub const MAX_PARAMETERS: usize = 1024;

/// Levels of the deepest statement that is planned.
pub(crate) const MAX_DEPTH: usize = 100;

/// Number of tables that one plan may read.
pub(crate) const MAX_RELATIONS: usize = 200;

/// Columns of one step of a plan: as many as PostgreSQL allows in a list of results.
pub(crate) const MAX_COLUMNS: usize = 1664;

/// Number of window functions in a statement. Each sorts and keeps its input.
pub(crate) const MAX_WINDOWS: usize = 64;

/// Number of grouping sets of one `GROUP BY`: each row is counted once for each.
pub(crate) const MAX_GROUPING_SETS: usize = 128;

/// Memory that all queries together may use. An aggregation needs little; a query that needs more is
/// stopped before it endangers the process.
pub(crate) const MEMORY_BYTES: usize = 512 << 20;

/// Limits of one query.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time until the last row of the answer.
    pub deadline: Duration,
    /// Number of rows of the answer.
    pub rows: usize,
    /// Number of threads that compute the answer; zero for all cores.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), rows: 1_000_000, threads: 0 }
    }
}
