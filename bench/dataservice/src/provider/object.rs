//! The object provider: bytes of objects, which it pulls from an origin and pushes to one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::call::{Call, Execution, Provider};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::message::MAX_BODY_BYTES;
use crate::rpcs::Rpc;

/// The provider.
#[derive(Debug)]
pub struct Object {
    objects: Mutex<HashMap<u64, Stored>>,
    next: AtomicU64,
    config: Config,
}

#[derive(Clone, Default, Debug)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    is_durable: bool,
}

impl Object {
    /// Makes a provider without objects.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { objects: Mutex::default(), next: AtomicU64::new(1), config: config.clone() }
    }

    fn with<T>(&self, id: u64, change: impl FnOnce(&mut Stored) -> Result<T>) -> Result<T> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        change(objects.get_mut(&id).ok_or(Error::Message("there is no such object"))?)
    }

    fn create(&self, call: &mut Call) -> Result<()> {
        let bytes = call.decode(|reader| reader.u64())?;
        if bytes > MAX_BODY_BYTES.into() {
            return Err(Error::Message("an object has at most 16 MiB"));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(id, Stored::default());
        drop(objects);
        call.encode(|writer| {
            writer.u64(id);
        });
        Ok(())
    }

    fn write(&self, call: &mut Call) -> Result<()> {
        let (id, at, bytes) =
            call.decode(|reader| Ok((reader.u64()?, reader.u64()?, reader.u64()?)))?;
        let bulk = Arc::new(call.pull(at, bytes)?);
        self.with(id, |object| {
            *object = Stored { bytes: bulk, is_durable: false };
            Ok(())
        })?;
        call.encode(|_| {});
        Ok(())
    }

    fn persist(&self, call: &mut Call) -> Result<()> {
        let id = call.decode(|reader| reader.u64())?;
        call.hold(self.config.hold(0));
        self.with(id, |object| {
            object.is_durable = true;
            Ok(())
        })?;
        call.encode(|_| {});
        Ok(())
    }

    fn read(&self, call: &mut Call) -> Result<()> {
        let (id, at, bytes) =
            call.decode(|reader| Ok((reader.u64()?, reader.u64()?, reader.u64()?)))?;
        let stored = self.with(id, |object| Ok(object.clone()))?;
        if !stored.is_durable {
            return Err(Error::Message("the object is not durable yet"));
        }
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).min(stored.bytes.len());
        call.push(at, &stored.bytes[..count])?;
        call.encode(|writer| {
            writer.u64(count as u64);
        });
        Ok(())
    }
}

impl Provider for Object {
    fn serves(&self, rpc: Rpc) -> bool {
        matches!(rpc, Rpc::Create | Rpc::Write | Rpc::Persist | Rpc::Read)
    }

    fn execute<'a>(&'a self, rpc: Rpc, call: &'a mut Call) -> Execution<'a> {
        Box::pin(async move {
            match rpc {
                Rpc::Create => self.create(call),
                Rpc::Write => self.write(call),
                Rpc::Persist => self.persist(call),
                Rpc::Read => self.read(call),
                _ => Err(Error::Message("the object provider does not serve it")),
            }
        })
    }
}
