//! The key-value provider: databases that are maps in memory. The backend cannot insert in parallel: a put holds it, and
//! the others wait with their execution streams, also those for other databases of the provider. More databases are more
//! and smaller puts, and each of them has to wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::{Call, Execution, Provider};
use crate::codec::Reader;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::rpcs::Rpc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The most pairs of one list: an answer has room for so many pairs of 256 bytes.
const MAX_LISTED: u32 = 65_536;

/// The provider.
#[derive(Debug)]
pub struct KeyValue {
    /// The databases, by number.
    backend: Mutex<Vec<Map>>,
    config: Config,
}

impl KeyValue {
    /// Makes the databases of the server number `server`, empty.
    #[must_use]
    pub fn new(config: &Config, server: u32) -> Self {
        let databases = config.databases_of(server).max(1) as usize;
        Self { backend: Mutex::new(vec![Map::new(); databases]), config: config.clone() }
    }

    /// Locks the backend; the wait for other calls is measured.
    fn lock(&self, call: &mut Call) -> MutexGuard<'_, Vec<Map>> {
        call.wait_for_database(|| self.backend.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, call: &mut Call) -> Result<()> {
        let (database, key, value) = call.decode(|reader| {
            Ok((reader.u32()?, reader.bytes()?.to_vec(), reader.bytes()?.to_vec()))
        })?;
        let mut backend = self.lock(call);
        find(&mut backend, database)?.insert(key, value);
        call.hold(self.config.hold(1));
        drop(backend);
        call.encode(|_| {});
        Ok(())
    }

    fn get(&self, call: &mut Call) -> Result<()> {
        let (database, key) =
            call.decode(|reader| Ok((reader.u32()?, reader.bytes()?.to_vec())))?;
        let value = find(&mut self.lock(call), database)?.get(&key).cloned();
        call.encode(|writer| {
            writer.u32(value.is_some().into()).bytes(value.as_deref().unwrap_or_default());
        });
        Ok(())
    }

    fn put_packed(&self, call: &mut Call) -> Result<()> {
        let (database, count, at, bytes) =
            call.decode(|reader| Ok((reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?)))?;
        let bulk = call.pull(at, bytes)?;
        let pairs = unpack(&bulk)?;
        if pairs.len() != count as usize {
            return Err(Error::Message("its bulk has another number of pairs"));
        }
        call.hold(self.config.transfer());
        let mut backend = self.lock(call);
        find(&mut backend, database)?.extend(pairs);
        call.hold(self.config.hold(count as usize));
        drop(backend);
        call.encode(|writer| {
            writer.u32(count);
        });
        Ok(())
    }

    fn list_keyvals(&self, call: &mut Call) -> Result<()> {
        let (database, prefix, limit) =
            call.decode(|reader| Ok((reader.u32()?, reader.bytes()?.to_vec(), reader.u32()?)))?;
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = {
            let mut backend = self.lock(call);
            let map = find(&mut backend, database)?;
            let from = map.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            let limit = limit.min(MAX_LISTED) as usize;
            from.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        call.encode(|writer| {
            for (key, value) in &pairs {
                writer.bytes(key).bytes(value);
            }
        });
        Ok(())
    }
}

fn find(backend: &mut [Map], database: u32) -> Result<&mut Map> {
    let database = usize::try_from(database).ok().and_then(|number| backend.get_mut(number));
    database.ok_or(Error::Message("there is no such database"))
}

/// Reads pairs until the end of `bulk`.
fn unpack(bulk: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut reader = Reader::new(bulk);
    let mut pairs = Vec::new();
    while !reader.is_at_end() {
        pairs.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
    }
    Ok(pairs)
}

impl Provider for KeyValue {
    fn serves(&self, rpc: Rpc) -> bool {
        matches!(rpc, Rpc::Put | Rpc::Get | Rpc::PutPacked | Rpc::ListKeyvals)
    }

    fn execute<'a>(&'a self, rpc: Rpc, call: &'a mut Call) -> Execution<'a> {
        Box::pin(async move {
            match rpc {
                Rpc::Put => self.put(call),
                Rpc::Get => self.get(call),
                Rpc::PutPacked => self.put_packed(call),
                Rpc::ListKeyvals => self.list_keyvals(call),
                _ => Err(Error::Message("the key-value provider does not serve it")),
            }
        })
    }
}
