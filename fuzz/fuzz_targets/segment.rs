//! Any bytes as a segment file, which is opened, listed and read in every way. Errors are fine; panics,
//! crashes and hangs are not.
//!
//! If the first byte is even, the rest is the file. If it is odd, the rest is damage to a sound file, in
//! pieces of twelve bytes: position (u32) and bytes (u64). The second form gets past the header at once.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use skopos_model::{Sample, Structured, Timestamp, ValueType};
use skopos_shm::{Error, Publisher, Segment, VertexSpec};

/// A sound segment of a dead publisher, and the path of its damaged copies.
struct Specimen {
    bytes: Vec<u8>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

static SPECIMEN: LazyLock<Specimen> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let dir = dir.expect("some directory can be written to");
    let publisher = Publisher::builder("specimen").dir(dir.path()).max_vertices(8);
    let publisher = publisher.max_bytes(80 << 10).create().expect("an empty directory");
    fill(&publisher).expect("there is room");
    let bytes = fs::read(publisher.path()).expect("a writable file");
    Specimen { bytes, path: dir.path().join("damaged.seg"), _dir: dir }
});

fn fill(publisher: &Publisher) -> Result<(), Error> {
    let spec =
        |topic: &str, value_type| Ok::<_, Error>(VertexSpec::new(topic.parse()?, value_type));
    let number = publisher.register(spec("test/f64", ValueType::F64)?.slots(8))?;
    let text = publisher.register(spec("test/text", ValueType::Structured)?.slots(4))?;
    let mut group = publisher.group("pair")?;
    let left = group.register(spec("test/left", ValueType::U64)?.slots(4))?;
    let right = group.register(spec("test/right", ValueType::I64)?.slots(4))?;
    for n in 1..=10i64 {
        let time = Timestamp::from_nanos(n);
        number.publish_at(time, n as f64)?;
        text.publish_sample(&Sample::measured(time, Structured::from_json(&format!("[{n}]"))?))?;
        let mut tick = group.tick(time);
        tick.publish(&left, n as u64)?;
        tick.publish(&right, -n)?;
        tick.commit();
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    let specimen = &*SPECIMEN;
    if mode % 2 == 0 {
        fs::write(&specimen.path, rest).expect("a writable file");
    } else {
        let mut bytes = specimen.bytes.clone();
        for piece in rest.chunks_exact(12) {
            let (at, new_bytes) = piece.split_at(4);
            let at = u32::from_le_bytes(at.try_into().expect("four")) as usize;
            let at = at % (bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(new_bytes);
        }
        fs::write(&specimen.path, bytes).expect("a writable file");
    }
    let _ = read_everything(&specimen.path);
});

fn read_everything(path: &Path) -> Result<(), Error> {
    let segment = Segment::open(path)?;
    let _ = (segment.is_alive(), segment.silent_for(), segment.clock_steps());
    let at = Timestamp::from_nanos;
    let vertices = segment.vertices();
    for vertex in &vertices {
        let _ = segment.find(vertex.topic());
        let _ = vertex.latest().map(|reading| (reading.age(), reading.as_f64()));
        for range in [at(3)..=at(8), at(i64::MIN)..=at(i64::MAX)] {
            if let Ok(found) = vertex.range(range) {
                assert!(found.samples.len() <= vertex.info().slots as usize);
            }
        }
        let _ = vertex.as_of(at(5));
        for mut subscription in [vertex.subscribe(), vertex.subscribe_from_oldest()] {
            let _ = (0..64).take_while(|_| matches!(subscription.try_next(), Ok(Some(_)))).count();
        }
        let group = &vertex.info().group;
        let members: Vec<_> =
            vertices.iter().filter(|v| v.info().group == *group).cloned().collect();
        let _ = skopos_shm::snapshot(&members);
    }
    Ok(())
}
