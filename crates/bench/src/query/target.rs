//! A store that is asked: one of our listeners, or a peer.

use super::load::Store;

/// A store with its name in the rows, or the reason why it cannot be asked.
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) store: Result<Box<dyn Store>, String>,
}

impl Target {
    pub(super) fn new(name: &'static str, store: impl Store + 'static) -> Self {
        Self { name, store: Ok(Box::new(store)) }
    }
}
