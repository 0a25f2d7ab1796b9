//! The state from which HTTP requests are answered.

use std::sync::Arc;

use skopos_hub::Backend;
use skopos_hub::counts::Counts;
use tokio::sync::Semaphore;

use crate::listen::Admittance;

/// The state from which HTTP requests are answered.
pub(super) struct HttpContext {
    pub(super) backend: Arc<Backend>,
    pub(super) counts: Arc<Counts>,
    /// The certificate and the tokens of the hub.
    pub(super) admittance: Admittance,
    /// Permits to run statements.
    pub(super) queries: Arc<Semaphore>,
    /// Permits to read patterns and to have values measured.
    pub(super) reads: Arc<Semaphore>,
    /// Permits to watch.
    pub(super) watchers: Arc<Semaphore>,
    /// Names of the hub in URLs, beside the addresses of the listener.
    pub(super) hosts: Vec<String>,
}
