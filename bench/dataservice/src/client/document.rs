//! Client of the document provider.

use serde_json::Value;

use crate::error::Result;
use crate::origin::{Caller, Request};
use crate::reply::Reply;
use crate::rpcs::Rpc;

/// The document provider of one server.
#[derive(Clone, Debug)]
pub struct Documents {
    caller: Caller,
    server: usize,
}

impl Documents {
    /// A client of the server number `server`.
    #[must_use]
    pub fn new(caller: Caller, server: usize) -> Self {
        Self { caller, server }
    }

    /// Stores documents in a collection. Their text is made while the input is serialised.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn store(&self, collection: &str, documents: &[Value]) -> Result<Reply> {
        self.caller.call(Request::new(self.server, Rpc::StoreMultiJson, None), |writer| {
            // A value of JSON always has a text; an empty one would be refused by the target.
            let text = serde_json::to_vec(documents).unwrap_or_default();
            writer.bytes(collection.as_bytes()).bytes(&text);
        })
    }
}
