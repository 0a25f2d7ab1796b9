//! A snapshot that has arrived.

use crate::batch::Batch;
use crate::error::Error;
use crate::trust::{Exchange, Session};

/// A complete snapshot, as it arrived.
pub(crate) struct Snapshot {
    pub(crate) node: String,
    pub(crate) incarnation: i64,
    /// The payloads of its parts, in their order.
    pub(crate) parts: Vec<Vec<u8>>,
    /// The exchange of keys, where messages are signed: this follower's half, and that of the publisher.
    pub(crate) exchange: Option<(Exchange, Vec<u8>)>,
}

impl Snapshot {
    /// Returns the session that came with it; `None` where messages need no proof.
    ///
    /// # Errors
    /// The exchange of keys failed.
    pub(crate) fn take_session(&mut self) -> Result<Option<Session>, Error> {
        let Some((exchange, half)) = self.exchange.take() else { return Ok(None) };
        let own = exchange.public;
        exchange.agree(&half, &own).map(Some)
    }

    /// Reads its parts.
    ///
    /// # Errors
    /// A part is not a batch.
    pub(crate) fn batches(&self) -> Result<Vec<Batch>, Error> {
        self.parts.iter().map(|part| Batch::decode(part)).collect()
    }
}
