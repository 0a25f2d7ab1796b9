//! The state from which HTTP requests are answered.

use std::sync::Arc;

use skopos_access::Caller;
use skopos_hub::counts::Counts;
use skopos_hub::{Backend, Turns};
use tokio::sync::Semaphore;

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
    /// A share for each topic that a client watches.
    pub(super) watched: Shares<Caller>,
    /// Names of the hub in URLs, beside the addresses of the listener.
    pub(super) hosts: Vec<String>,
}
