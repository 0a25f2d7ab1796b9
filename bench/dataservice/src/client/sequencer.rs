//! Client of the sequencer: objects by their names.

use crate::client::object::Reading;
use crate::error::Result;
use crate::origin::{Caller, Request};
use crate::region::Place;
use crate::reply::Reply;
use crate::rpcs::Rpc;

/// The sequencer of one server.
#[derive(Clone, Debug)]
pub struct Names {
    caller: Caller,
    server: usize,
}

impl Names {
    /// A client of the server number `server`.
    #[must_use]
    pub fn new(caller: Caller, server: usize) -> Self {
        Self { caller, server }
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn write(&self, name: &[u8], bytes: &[u8]) -> Result<Reply> {
        let place = self.caller.place(bytes.len())?;
        place.write(bytes)?;
        self.issue(Rpc::WriteOp, name, bytes.len() as u64, place.at(), Some(place))
    }

    /// Reads at most `bytes` of an object, of its last write.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn read(&self, name: &[u8], bytes: u64) -> Result<Reading> {
        let place = self.caller.place(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let reply = self.issue(Rpc::ReadOp, name, bytes, place.at(), None)?;
        Ok(Reading::new(reply, place))
    }

    fn issue(
        &self,
        rpc: Rpc,
        name: &[u8],
        bytes: u64,
        at: u64,
        bulk: Option<Place>,
    ) -> Result<Reply> {
        let request = Request { bulk, ..Request::new(self.server, rpc, None) };
        self.caller.call(request, |writer| {
            writer.bytes(name).u64(at).u64(bytes);
        })
    }
}
