//! The state from which HTTP requests are answered.

use std::sync::Arc;

use skopos_access::Caller;
use skopos_hub::counts::Counts;
use skopos_hub::{Backend, Turns};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;
use crate::listen::Admittance;
use crate::shares::Shares;

/// The state from which HTTP requests are answered.
pub(super) struct HttpContext {
    pub(super) backend: Arc<Backend>,
    pub(super) counts: Arc<Counts>,
    /// The certificate and the tokens of the hub.
    pub(super) admittance: Admittance,
    /// Permits to have values measured.
    pub(super) measurements: Arc<Semaphore>,
    /// The clients that watch.
    pub(super) watchers: Shares<Caller>,
    /// Turns to look for changes of watched topics.
    pub(super) checks: Turns,
    /// A permit for each topic that a client watches.
    pub(super) watched: Arc<Semaphore>,
    /// Names of the hub in URLs, beside the addresses of the listener.
    pub(super) hosts: Vec<String>,
}

impl HttpContext {
    /// Returns permits to watch `topics` topics: those that a client holds, with more or fewer.
    pub(super) fn permits_for(
        &self,
        held: Option<OwnedSemaphorePermit>,
        topics: usize,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let missing =
            topics.saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = self.watched.clone().try_acquire_many_owned(missing);
        let more = more.map_err(|_| Refusal::too_many("topics are watched"))?;
        let Some(mut permits) = held else { return Ok(more) };
        permits.merge(more);
        let spare = permits.num_permits().saturating_sub(topics);
        drop(permits.split(spare));
        Ok(permits)
    }
}
