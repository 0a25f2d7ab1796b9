//! Client of the object provider.

use crate::codec::Reader;
use crate::error::Result;
use crate::origin::{Caller, Request};
use crate::probe::Parent;
use crate::region::Place;
use crate::reply::{Answer, Reply};
use crate::rpcs::Rpc;

/// The object provider of one server.
#[derive(Clone, Debug)]
pub struct Objects {
    caller: Caller,
    server: usize,
}

/// A read that is under way: its bytes are in the place once the reply is there.
#[derive(Debug)]
pub struct Reading {
    reply: Reply,
    place: Place,
}

impl Reading {
    pub(crate) fn new(reply: Reply, place: Place) -> Self {
        Self { reply, place }
    }

    /// The reply, whose answer has the [`count`] of bytes, and the place of the bytes.
    pub fn into_parts(self) -> (Reply, Place) {
        (self.reply, self.place)
    }
}

impl Objects {
    /// A client of the server number `server`.
    #[must_use]
    pub fn new(caller: Caller, server: usize) -> Self {
        Self { caller, server }
    }

    /// Makes an object of `bytes`; see [`id`].
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn create(&self, parent: Option<&Parent>, bytes: u64) -> Result<Reply> {
        self.caller.call(Request::new(self.server, Rpc::Create, parent), |writer| {
            writer.u64(bytes);
        })
    }

    /// Writes all bytes of an object, which the target pulls.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn write(&self, parent: Option<&Parent>, id: u64, bytes: &[u8]) -> Result<Reply> {
        let place = self.caller.place(bytes.len())?;
        place.write(bytes)?;
        let at = place.at();
        let request =
            Request { bulk: Some(place), ..Request::new(self.server, Rpc::Write, parent) };
        self.caller.call(request, |writer| {
            writer.u64(id).u64(at).u64(bytes.len() as u64);
        })
    }

    /// Makes the bytes of an object durable.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn persist(&self, parent: Option<&Parent>, id: u64) -> Result<Reply> {
        self.caller.call(Request::new(self.server, Rpc::Persist, parent), |writer| {
            writer.u64(id);
        })
    }

    /// Reads at most `bytes` of an object, which the target pushes.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn read(&self, parent: Option<&Parent>, id: u64, bytes: u64) -> Result<Reading> {
        let place = self.caller.place(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let at = place.at();
        let reply = self.caller.call(Request::new(self.server, Rpc::Read, parent), |writer| {
            writer.u64(id).u64(at).u64(bytes);
        })?;
        Ok(Reading::new(reply, place))
    }
}

/// The number of the object in the answer to a create.
///
/// # Errors
/// The answer is not the one to a create.
pub fn id(answer: &Answer) -> Result<u64> {
    Reader::new(&answer.output).u64()
}

/// The number of bytes in the answer to a read.
///
/// # Errors
/// The answer is not the one to a read.
pub fn count(answer: &Answer) -> Result<u64> {
    Reader::new(&answer.output).u64()
}
