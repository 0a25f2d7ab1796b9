//! The sequencer: names of objects, which it maps to numbers, places and bytes by calls of the key-value and the object
//! provider. A write is twelve calls, a read is three.
//!
//! The keys, in the database of the object's name: `n/NAME` has the number of an object and `o/NUMBER` its name,
//! `c/NUMBER` counts its writes, `s/NUMBER/WRITE` has the place of a write, `z/NUMBER` its size, and `m/NUMBER` the
//! number of changes.

use std::sync::OnceLock;

use crate::call::{Call, Execution, Provider};
use crate::client::keyvalue::{self, KeyValue};
use crate::client::object::{self, Objects};
use crate::error::{Error, Result};
use crate::rpcs::Rpc;

/// The most bytes of a list of places: 4,096 writes of one object.
const LIST_BYTES: usize = 256 << 10;

/// The provider. It can execute calls once its clients are known.
#[derive(Default, Debug)]
pub struct Sequencer {
    clients: OnceLock<Clients>,
}

/// The clients of the other two providers.
#[derive(Debug)]
pub struct Clients {
    /// The key-value provider.
    pub keyvalue: KeyValue,
    /// The object provider.
    pub objects: Objects,
}

impl Sequencer {
    /// Gives the sequencer its clients. A second time changes nothing.
    pub fn connect(&self, clients: Clients) {
        // The first clients work as well as these.
        let _ = self.clients.set(clients);
    }

    fn clients(&self) -> Result<&Clients> {
        self.clients.get().ok_or(Error::Message("the sequencer is not connected yet"))
    }

    async fn write_op(&self, call: &mut Call) -> Result<()> {
        let (name, at, bytes) =
            call.decode(|reader| Ok((reader.bytes()?.to_vec(), reader.u64()?, reader.u64()?)))?;
        let Clients { keyvalue: keys, objects } = self.clients()?;
        let bulk = call.pull(at, bytes)?;
        let request = Some(call.parent());
        let request = request.as_ref();
        let database = keys.database_of(&name);
        let put = |key: Vec<u8>, value: &[u8]| keys.put(request, database, &key, value);

        let reply = keys.get(request, database, &key(b"n", &name))?;
        let known = keyvalue::value(&call.wait_for(reply).await?)?;
        let number = known.unwrap_or_else(|| fingerprint(&name).to_le_bytes().to_vec());
        call.wait_for(put(key(b"n", &name), &number)?).await?;
        call.wait_for(put(key(b"o", &number), &name)?).await?;
        let reply = keys.get(request, database, &key(b"c", &number))?;
        let write = count(keyvalue::value(&call.wait_for(reply).await?)?);
        let reply = objects.create(request, bytes)?;
        let region = object::id(&call.wait_for(reply).await?)?;
        call.wait_for(objects.write(request, region, &bulk)?).await?;
        call.wait_for(objects.persist(request, region)?).await?;
        let place = [region.to_le_bytes(), bytes.to_le_bytes()].concat();
        call.wait_for(put(segment(&number, write), &place)?).await?;
        call.wait_for(put(key(b"z", &number), &bytes.to_le_bytes())?).await?;
        let reply = keys.get(request, database, &key(b"m", &number))?;
        let changes = count(keyvalue::value(&call.wait_for(reply).await?)?);
        call.wait_for(put(key(b"m", &number), &(changes + 1).to_le_bytes())?).await?;
        call.wait_for(put(key(b"c", &number), &(write + 1).to_le_bytes())?).await?;

        call.encode(|writer| {
            writer.u64(write);
        });
        Ok(())
    }

    async fn read_op(&self, call: &mut Call) -> Result<()> {
        let (name, at, bytes) =
            call.decode(|reader| Ok((reader.bytes()?.to_vec(), reader.u64()?, reader.u64()?)))?;
        let Clients { keyvalue: keys, objects } = self.clients()?;
        let request = Some(call.parent());
        let request = request.as_ref();
        let database = keys.database_of(&name);

        let reply = keys.get(request, database, &key(b"n", &name))?;
        let number = keyvalue::value(&call.wait_for(reply).await?)?;
        let number = number.ok_or(Error::Message("no object has this name"))?;
        let reply = keys.list(request, database, &segments(&number), LIST_BYTES)?;
        let places = keyvalue::pairs(&call.wait_for(reply).await?)?;
        let last = places.last().and_then(|(_, place)| place.split_first_chunk::<8>());
        let (region, _) = last.ok_or(Error::Message("the object has no bytes"))?;
        let reading = objects.read(request, u64::from_le_bytes(*region), bytes)?;
        let (reply, place) = reading.into_parts();
        let count = object::count(&call.wait_for(reply).await?)?;
        let read = place.read(usize::try_from(count.min(bytes)).unwrap_or_default())?;
        call.push(at, &read)?;

        call.encode(|writer| {
            writer.u64(read.len() as u64);
        });
        Ok(())
    }
}

fn key(kind: &[u8], rest: &[u8]) -> Vec<u8> {
    [kind, b"/", rest].concat()
}

fn segments(number: &[u8]) -> Vec<u8> {
    [b"s/", number, b"/"].concat()
}

/// The key of a write; keys of later writes sort after it.
fn segment(number: &[u8], write: u64) -> Vec<u8> {
    [&segments(number)[..], &write.to_be_bytes()].concat()
}

fn count(value: Option<Vec<u8>>) -> u64 {
    value.and_then(|v| Some(u64::from_le_bytes(*v.first_chunk::<8>()?))).unwrap_or_default()
}

/// The number of a new object: the FNV-1a hash of its name.
fn fingerprint(name: &[u8]) -> u64 {
    keyvalue::hash(name)
}

impl Provider for Sequencer {
    fn serves(&self, rpc: Rpc) -> bool {
        matches!(rpc, Rpc::WriteOp | Rpc::ReadOp)
    }

    fn execute<'a>(&'a self, rpc: Rpc, call: &'a mut Call) -> Execution<'a> {
        Box::pin(async move {
            match rpc {
                Rpc::WriteOp => self.write_op(call).await,
                Rpc::ReadOp => self.read_op(call).await,
                _ => Err(Error::Message("the sequencer does not serve it")),
            }
        })
    }
}
