//! What the listeners of a hub ask.

use std::sync::Arc;

use skopos_query::Engine;
use tokio::sync::watch;

use crate::counts::Doors;
use crate::pulse::Pulse;
use crate::read::Measuring;
use crate::source::HubSource;

/// What stands behind every door.
pub struct Inside {
    pub engine: Arc<Engine>,
    pub source: Arc<HubSource>,
    pub pulse: Pulse,
    /// Goes up whenever another node told something.
    pub(crate) others: Arc<watch::Sender<u64>>,
    /// What was asked through each door.
    pub counts: Doors,
    /// Has values measured that are too old.
    pub measuring: Measuring,
}

impl Inside {
    /// Whoever follows these learns that something was published here, or told by another node.
    pub fn news(&self) -> Vec<watch::Receiver<u64>> {
        vec![self.pulse.follow(), self.others.subscribe()]
    }
}
