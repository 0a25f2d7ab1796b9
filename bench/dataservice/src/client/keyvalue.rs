//! Client of the key-value provider.

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::origin::{Caller, Request};
use crate::probe::Parent;
use crate::reply::{Answer, Reply};
use crate::rpcs::Rpc;

/// The databases of all servers, as a client sees them: database `d` lies on server `d % servers`.
#[derive(Clone, Debug)]
pub struct KeyValue {
    caller: Caller,
    databases: u32,
}

impl KeyValue {
    /// A client of `databases` databases on all servers of `caller`.
    #[must_use]
    pub fn new(caller: Caller, databases: u32) -> Self {
        Self { caller, databases: databases.max(1) }
    }

    /// The database of a key, by the hash of the key.
    #[must_use]
    pub fn database_of(&self, key: &[u8]) -> u32 {
        // The remainder is below a number of 32 bits.
        u32::try_from(hash(key) % u64::from(self.databases)).unwrap_or_default()
    }

    /// Stores a value.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn put(
        &self,
        parent: Option<&Parent>,
        database: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Reply> {
        let (server, local) = self.place(database);
        self.caller.call(Request::new(server, Rpc::Put, parent), |writer| {
            writer.u32(local).bytes(key).bytes(value);
        })
    }

    /// Reads a value; see [`value`].
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn get(&self, parent: Option<&Parent>, database: u32, key: &[u8]) -> Result<Reply> {
        let (server, local) = self.place(database);
        self.caller.call(Request::new(server, Rpc::Get, parent), |writer| {
            writer.u32(local).bytes(key);
        })
    }

    /// Stores pairs, which the target pulls.
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn put_packed(
        &self,
        parent: Option<&Parent>,
        database: u32,
        pairs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Reply> {
        let (server, local) = self.place(database);
        let mut packed = Writer::default();
        for (key, value) in pairs {
            packed.bytes(key).bytes(value);
        }
        let packed = packed.into_bytes();
        let place = self.caller.place(packed.len())?;
        place.write(&packed)?;
        let at = place.at();
        let request = Request { bulk: Some(place), ..Request::new(server, Rpc::PutPacked, parent) };
        self.caller.call(request, |writer| {
            let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
            writer.u32(local).u32(count).u64(at).u64(packed.len() as u64);
        })
    }

    /// Lists the pairs whose keys begin with `prefix`, in at most `bytes` bytes; see [`pairs`].
    ///
    /// # Errors
    /// The errors of [`Caller::call`].
    pub fn list(
        &self,
        parent: Option<&Parent>,
        database: u32,
        prefix: &[u8],
        bytes: usize,
    ) -> Result<Reply> {
        let (server, local) = self.place(database);
        let request =
            Request { reply_bytes: bytes, ..Request::new(server, Rpc::ListKeyvals, parent) };
        self.caller.call(request, |writer| {
            writer.u32(local).bytes(prefix).u32(u32::MAX);
        })
    }

    /// The server of a database, and its number there.
    fn place(&self, database: u32) -> (usize, u32) {
        let servers = u32::try_from(self.caller.servers()).unwrap_or(u32::MAX).max(1);
        ((database % servers) as usize, database / servers)
    }
}

/// The value in the answer to a get; `None` if there is none.
///
/// # Errors
/// The answer is not the one to a get.
pub fn value(answer: &Answer) -> Result<Option<Vec<u8>>> {
    let mut reader = Reader::new(&answer.output);
    let is_found = reader.u32()? != 0;
    let value = reader.bytes()?;
    Ok(is_found.then(|| value.to_vec()))
}

/// The pairs in the answer to a list.
///
/// # Errors
/// The answer is not the one to a list.
pub fn pairs(answer: &Answer) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut reader = Reader::new(&answer.output);
    let mut pairs = Vec::new();
    while !reader.is_at_end() {
        pairs.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
    }
    Ok(pairs)
}

/// The FNV-1a hash of `bytes`.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
