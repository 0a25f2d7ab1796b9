//! The vertices of Skopos.

use std::path::Path;

use skopos_shm::{Host, Publisher, Reader, Vertex, VertexSpec, VertexWriter, Writer};

use crate::Failure;

/// The topic of the only writer.
const TOPIC: &str = "bench/peers/value";
/// The topic of a writer of several threads.
const SHARED: &str = "bench/peers/shared";

/// A segment with two vertices. Number and sample are read by handles of their own: a handle remembers its last read.
pub(crate) struct Skopos {
    _publisher: Publisher,
    pub(crate) writer: Writer<u64>,
    pub(crate) shared: VertexWriter,
    pub(crate) number: Box<Reader<u64>>,
    pub(crate) sample: Box<Vertex>,
}

impl Skopos {
    /// Makes a segment in `dir`.
    pub(crate) fn make(dir: &Path) -> Result<Self, Failure> {
        let dir = dir.join("skopos");
        let publisher = Publisher::builder("bench").dir(&dir).create()?;
        let mut writer = publisher.writer::<u64>(TOPIC)?;
        writer.publish(1)?;
        let spec = VertexSpec::new(SHARED.parse()?, skopos_model::ValueType::U64);
        let shared = publisher.register(spec)?;
        let host = Host::open_dirs(vec![dir])?;
        let number = Box::new(host.reader(TOPIC)?);
        let sample = Box::new(host.reader::<u64>(TOPIC)?.vertex().clone());
        Ok(Self { _publisher: publisher, writer, shared, number, sample })
    }
}
