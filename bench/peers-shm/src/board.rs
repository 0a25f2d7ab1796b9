//! The blackboard of iceoryx2, as its documentation has it: the handles of an entry are made once and kept.

use iceoryx2::port::reader::EntryHandle;
use iceoryx2::port::writer::EntryHandleMut;
use iceoryx2::prelude::*;

use crate::Failure;

/// A sample of the blackboard: the time that Skopos keeps beside each value, and the value.
#[derive(Clone, Copy, Debug, Default, ZeroCopySend)]
#[repr(C)]
pub(crate) struct Timed {
    pub(crate) time: i64,
    pub(crate) value: u64,
}

/// The key of the only entry.
const KEY: u64 = 1;

pub(crate) type Read = EntryHandle<ipc::Service, u64, Timed>;
pub(crate) type Write = EntryHandleMut<ipc::Service, u64, Timed>;

/// A blackboard with one entry. Each of its handles keeps the memory mapped.
pub(crate) struct Board {
    _node: Node<ipc::Service>,
    pub(crate) read: Box<Read>,
    pub(crate) write: Write,
}

impl Board {
    /// Makes a blackboard whose files are in `dir`.
    pub(crate) fn make(dir: &std::path::Path) -> Result<Self, Failure> {
        let mut config = Config::default();
        let root = Path::new(dir.join("iceoryx2").as_os_str().as_encoded_bytes())?;
        config.global.set_root_path(&root);
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>()?;
        let name = format!("skopos/peers-shm/{}", std::process::id());
        let service = node
            .service_builder(&name.as_str().try_into()?)
            .blackboard_creator::<u64>()
            .add::<Timed>(KEY, Timed::default())
            .create()?;
        let read = Box::new(service.reader_builder().create()?.entry::<Timed>(&KEY)?);
        let write = service.writer_builder().create()?.entry::<Timed>(&KEY)?;
        Ok(Self { _node: node, read, write })
    }
}
