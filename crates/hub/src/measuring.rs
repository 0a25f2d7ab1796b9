//! Measurements on request: values that are too old for a client are measured before they are shown.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use skopos_agent::fresh::{Refusal, by_agent};
use skopos_model::Topic;
use skopos_wire::{Error, Refresher};

/// Maximum time that one node may take for one topic.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// Has facts measured: facts of this machine by its agent, other facts by their nodes.
pub struct Measuring {
    /// Runtime directory of the agent.
    dir: PathBuf,
    refresher: Option<Refresher>,
    /// Number of answers that wait for measurements now.
    pub(crate) running: AtomicUsize,
}

impl Measuring {
    /// Uses the agent in `dir`, and `refresher` for facts of other nodes.
    pub(crate) fn new(dir: PathBuf, refresher: Option<Refresher>) -> Self {
        Self { dir, refresher, running: AtomicUsize::new(0) }
    }

    /// Has `topic` measured before the deadline `until`; `is_local` tells a fact of this machine.
    pub(crate) fn measure(
        &self,
        topic: &Topic,
        is_local: bool,
        until: Instant,
    ) -> Result<(), Refusal> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Source("the time limit ended before it was measured".to_owned()));
        }
        match &self.refresher {
            _ if is_local => by_agent(&self.dir, topic),
            None => Err(Refusal::Topic("this hub follows no other nodes".to_owned())),
            Some(refresher) => {
                refresher.refresh(topic, left.min(NODE_TIMEOUT)).map_err(|e| match e {
                    Error::Refused(_) | Error::NotMirrored(_) => Refusal::Topic(e.to_string()),
                    _ => Refusal::Source(e.to_string()),
                })
            }
        }
    }
}
