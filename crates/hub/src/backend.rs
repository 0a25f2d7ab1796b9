//! The state that all listeners of a hub share.

use std::sync::{Arc, OnceLock};

use skopos_query::Engine;
use tokio::sync::watch;

use crate::counts::ListenerCounts;
use crate::jobs::JobsPlace;
use crate::measuring::Measuring;
use crate::messages::FlightUrl;
use crate::pulse::Pulse;
use crate::source::HubSource;
use crate::standing::Standings;

/// The state that all listeners of a hub share, and from which they answer.
pub struct Backend {
    /// Answers statements.
    pub engine: Arc<Engine>,
    /// Latest values and samples of all nodes.
    pub source: Arc<HubSource>,
    /// Wakes readers when a program on this machine publishes.
    pub pulse: Pulse,
    /// A number that goes up with each message from another node.
    pub(crate) others: Arc<watch::Sender<u64>>,
    /// Requests of each listener.
    pub counts: ListenerCounts,
    /// Statements that are evaluated again.
    pub standings: Standings,
    /// The jobs of the site.
    pub jobs: Arc<JobsPlace>,
    /// Has values measured that are too old.
    pub measuring: Measuring,
    /// The address of the Flight listener, once that is open.
    pub flight: OnceLock<FlightUrl>,
}

impl Backend {
    /// Returns channels that notify of each change: values published on this machine, and messages from other
    /// nodes.
    pub fn news(&self) -> Vec<watch::Receiver<u64>> {
        vec![self.pulse.follow(), self.others.subscribe()]
    }
}
