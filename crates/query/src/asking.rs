//! What one execution of a statement carries with it, down to its scans.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use datafusion::execution::TaskContext;

/// Other nodes have this part of a statement's time to answer in: what comes has to be worked on.
const SHARE: f64 = 0.8;

/// Until when others may answer, and who did not.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) until: Instant,
    pub(crate) missing: Missing,
}

/// Nodes that were asked for their history and did not answer, or not with all of it.
#[derive(Clone, Debug, Default)]
pub struct Missing(Arc<Mutex<BTreeSet<String>>>);

impl Asking {
    pub(crate) fn new(deadline: Duration) -> Self {
        let until = Instant::now() + deadline.min(LONGEST).mul_f64(SHARE);
        Self { until, missing: Missing::default() }
    }

    /// Of the execution that a scan belongs to.
    pub(crate) fn of(context: &TaskContext) -> Arc<Self> {
        let asking = context.session_config().get_extension::<Self>();
        asking.unwrap_or_else(|| Arc::new(Self::new(Duration::ZERO)))
    }
}

impl Missing {
    /// These did not answer.
    pub(crate) fn add(&self, nodes: Vec<String>) {
        unpoisoned(self.0.lock()).extend(nodes);
    }

    /// Their names so far, sorted.
    pub fn names(&self) -> Vec<String> {
        unpoisoned(self.0.lock()).iter().cloned().collect()
    }
}

/// No deadline is longer than a day; adding it to the time cannot fail then.
const LONGEST: Duration = Duration::from_secs(86_400);
