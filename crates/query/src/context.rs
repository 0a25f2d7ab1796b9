//! State of one execution of a statement, which its scans share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use skopos_access::Caller;
use skopos_model::unpoisoned;
use skopos_store::history;

/// Share of a statement's deadline within which other nodes must answer; the rest is for work on their
/// samples.
const SHARE: f64 = 0.8;

/// Upper bound of a deadline, so that adding it to the time cannot overflow.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The most missing parts that are named, beside damaged files: twice the jobs of a segment. A person reads no more.
const MAX_NAMES: usize = 1000;

/// The caller, the deadline of requests to other nodes, and what the answer lacks.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionContext {
    pub(crate) caller: Caller,
    pub(crate) until: Instant,
    pub(crate) missing: Missing,
    /// True if the answer names `missing`. It does not on a hub that reads pieces of a table for another one.
    pub(crate) names_missing: bool,
}

/// Parts of an answer that are missing: nodes that sent none or only a part of the history that they were asked for, damaged files
/// of history, and parts of tables ([`Scan::lacks`](crate::Scan::lacks)).
#[derive(Clone, Debug, Default)]
pub struct Missing(Arc<Mutex<BTreeSet<String>>>);

impl ExecutionContext {
    pub(crate) fn new(caller: Caller, deadline: Duration) -> Self {
        let until = Instant::now() + deadline.min(LONGEST).mul_f64(SHARE);
        Self { caller, until, missing: Missing::default(), names_missing: true }
    }

    /// Returns the context of the execution that a scan belongs to.
    pub(crate) fn of(context: &TaskContext) -> Arc<Self> {
        let own = context.session_config().get_extension::<Self>();
        own.unwrap_or_default()
    }
}

/// The context of a plan that is not executed, or that another hub executes.
impl Default for ExecutionContext {
    fn default() -> Self {
        Self { names_missing: false, ..Self::new(Caller::Stranger, Duration::ZERO) }
    }
}

impl Missing {
    pub(crate) fn add(&self, names: impl IntoIterator<Item = String>) {
        unpoisoned(self.0.lock()).extend(names);
    }

    /// Adds a name, or its damaged file alone if there are [`MAX_NAMES`] already.
    pub(crate) fn add_of_file(&self, name: String, file: String) {
        let mut names = unpoisoned(self.0.lock());
        let is_full = names.len() >= MAX_NAMES;
        names.insert(if is_full { file } else { name });
    }

    /// Adds a file of history that is damaged. Other errors fail the statement, except that of a file that retention has
    /// removed.
    pub(crate) fn add_damaged(&self, error: history::Error) -> Result<()> {
        match error {
            e if e.is_gone() => Ok(()),
            e if e.is_damage() => {
                self.add([e.to_string()]);
                Ok(())
            }
            e => Err(failed(e)),
        }
    }

    /// Returns the names so far, sorted.
    pub fn names(&self) -> Vec<String> {
        unpoisoned(self.0.lock()).iter().cloned().collect()
    }
}

/// Returns the error of a statement whose history cannot be read.
pub(crate) fn failed(error: history::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
