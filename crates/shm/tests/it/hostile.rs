//! Files that are not segments, damaged segments and hostile segments: reading them returns errors and
//! never panics or hangs.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};

use skopos_model::{Structured, ValueType};
use skopos_shm::{Delivery, Error, Host, Publisher, Segment, VertexSpec};
use tempfile::TempDir;

use crate::support::{at, must_end, publisher, runtime_dir, spec, structured_sample, topic};

/// Offsets from the layout document; the tests damage these fields.
pub(crate) mod offset {
    pub(crate) const LAYOUT_VERSION: u64 = 8;
    pub(crate) const STATE: u64 = 256;
    pub(crate) const DIRECTORY_LEN: u64 = 272;
    pub(crate) const GROUPS_LEN: u64 = 276;
    pub(crate) const DIRECTORY: u64 = 4096 + 256 * 128;
    pub(crate) const ENTRY_BYTES: u64 = 320;
}

/// The bytes of a segment with one vertex of each type and a group, without a living publisher.
pub(crate) struct Specimen {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn specimen() -> Specimen {
    let making = runtime_dir();
    let publisher = Publisher::builder("specimen").dir(making.path()).node("test").max_vertices(8);
    let publisher = publisher.max_bytes(80 << 10).create().expect("an empty directory");
    fill(&publisher);
    let dir = runtime_dir();
    let path = dir.path().join("specimen.seg");
    let bytes = fs::read(publisher.path()).expect("our own file");
    fs::write(&path, &bytes).expect("our own directory");
    Specimen { dir, path, bytes }
}

fn fill(publisher: &Publisher) {
    let number = publisher.register(spec("test/f64", ValueType::F64).slots(8)).expect("room");
    let text = publisher.register(spec("test/text", ValueType::Structured).slots(4)).expect("room");
    let mut group = publisher.group("pair").expect("room");
    let left = group.register(spec("test/pair/left", ValueType::U64).slots(4)).expect("room");
    let right = group.register(spec("test/pair/right", ValueType::I64).slots(4)).expect("room");
    for n in 1..=10i64 {
        number.publish_at(at(n), n as f64).expect("registered");
        text.publish_sample(&structured_sample(n, &format!("[{n}]"))).expect("registered");
        let mut tick = group.tick(at(n));
        tick.publish(&left, n as u64).expect("registered");
        tick.publish(&right, -n).expect("registered");
        tick.commit();
    }
}

impl Specimen {
    /// Writes the valid bytes with some of them overwritten.
    pub(crate) fn damage(&self, at: u64, with: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(&self.path).expect("our own file");
        file.write_all_at(&self.bytes, 0).expect("written");
        file.write_all_at(with, at).expect("written");
    }

    fn u64_at(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Returns the offset of the vertex of entry `index`.
    fn vertex(&self, index: u64) -> u64 {
        self.u64_at(offset::DIRECTORY + index * offset::ENTRY_BYTES + 8)
    }
}

/// Reads a segment in every possible way. Errors are allowed; returns the number of values.
pub(crate) fn read_everything(path: &Path) -> Result<usize, Error> {
    let segment = Segment::open(path)?;
    let _ = (segment.name(), segment.node(), segment.pid(), segment.created_at());
    let _ = (segment.is_alive(), segment.silent_for(), segment.clock_steps());
    let vertices = segment.vertices();
    let mut values = 0;
    for vertex in &vertices {
        let found = segment.find(vertex.topic());
        values += usize::from(found.is_ok());
        values += usize::from(vertex.latest().map(|r| (r.age(), r.as_f64())).is_ok());
        values += vertex.range(at(3)..=at(8)).map_or(0, |r| r.samples.len());
        values += vertex.range(at(i64::MIN)..=at(i64::MAX)).map_or(0, |r| r.samples.len());
        values += usize::from(matches!(vertex.as_of(at(5)), Ok(Some(_))));
        for mut subscription in [vertex.subscribe(), vertex.subscribe_from_oldest()] {
            // At most one lap of the largest ring, because a hostile count never ends.
            values += (0..64).filter(|_| matches!(subscription.try_next(), Ok(Some(_)))).count();
        }
        let pair: Vec<_> =
            vertices.iter().filter(|v| v.info().group == vertex.info().group).cloned().collect();
        values += skopos_shm::snapshot(&pair).map_or(0, |s| s.samples.len());
    }
    Ok(values)
}

/// Calls [`read_everything`], and fails the test if that does not end.
fn read_in_time(what: &str, path: &Path) -> Result<usize, Error> {
    let path = path.to_owned();
    must_end(what, move || read_everything(&path))
}

fn refused(what: &str, path: &Path) -> String {
    match read_in_time(what, path) {
        Ok(_) => panic!("{what} was accepted as a segment"),
        Err(e @ (Error::NotASegment { .. } | Error::Io { .. })) => e.to_string(),
        Err(e) => panic!("{what}: {e}"),
    }
}

#[test]
fn the_specimen_itself_can_be_read() {
    let specimen = specimen();
    let values = read_everything(&specimen.path).expect("it is sound");
    assert!(values > 50, "{values}");
    assert!(!Segment::open(&specimen.path).expect("valid").is_alive(), "no process holds its lock");
}

#[test]
fn truncated_files_are_refused() {
    let specimen = specimen();
    let whole = specimen.bytes.len();
    let mut lengths = vec![0, 1, 7, 8, 9, 255, 256, 257, 4095, 4096, 4097, whole - 1];
    lengths.extend((12..whole).step_by(1021));
    for length in lengths {
        fs::write(&specimen.path, &specimen.bytes[..length]).expect("our own file");
        let why = refused(&format!("a file of {length} bytes"), &specimen.path);
        let expected = if length < 4096 { "shorter than a header" } else { "truncated" };
        assert!(why.contains(expected), "{length}: {why}");
    }
}

#[test]
fn a_file_longer_than_its_header_says_is_read() {
    let specimen = specimen();
    let mut longer = specimen.bytes.clone();
    longer.resize(longer.len() + 5000, 0xff);
    fs::write(&specimen.path, longer).expect("our own file");
    read_everything(&specimen.path).expect("the regions of the header are complete");
}

#[test]
fn foreign_bytes_are_refused() {
    let specimen = specimen();
    for (what, bytes) in [
        ("zeros", vec![0; 8192]),
        ("ones", vec![0xff; 8192]),
        ("text", b"SKOPOSEH".repeat(1024)),
        ("a page of flags", b"SKOPOSFL".repeat(1024)),
        ("an ELF file", b"\x7fELF\x02\x01\x01\0".repeat(1024)),
    ] {
        fs::write(&specimen.path, bytes).expect("our own file");
        assert!(refused(what, &specimen.path).contains("wrong magic"), "{what}");
    }
}

#[test]
fn another_layout_version_is_named() {
    let specimen = specimen();
    for version in [0, 2, 3, u32::MAX] {
        specimen.damage(offset::LAYOUT_VERSION, &version.to_le_bytes());
        match Segment::open(&specimen.path) {
            Err(Error::LayoutVersion { found, path }) => {
                assert_eq!((found, path), (version, specimen.path.clone()));
            }
            other => panic!("{version}: {other:?}"),
        }
    }
}

#[test]
fn every_header_field_is_checked() {
    let specimen = specimen();
    let absurd = [0, 1, 7, 63, 4095, 4097, 1 << 20, 1 << 31, 1 << 32, 1 << 47, 1 << 63, u64::MAX];
    // Fields with offsets and lengths: with any value, reading ends without a panic.
    for at in [12, 16, 24, 32, 36, 40, 48, 52, 56, 104, 108] {
        for value in absurd {
            let wide = matches!(at, 16 | 24 | 40 | 56);
            let bytes = value.to_le_bytes();
            specimen.damage(at, if wide { &bytes } else { &bytes[..4] });
            let _ = read_in_time(&format!("header field {at} = {value:#x}"), &specimen.path);
        }
    }
    for at in [24, 40, 56] {
        specimen.damage(at, &u64::MAX.to_le_bytes());
        refused(&format!("an offset of 2^64 - 1 at {at}"), &specimen.path);
        specimen.damage(at, &(specimen.u64_at(at) + 8).to_le_bytes());
        refused(&format!("a misaligned offset at {at}"), &specimen.path);
    }
    for at in [104, 108] {
        specimen.damage(at, &65u32.to_le_bytes());
        refused(&format!("a name of 65 bytes at {at}"), &specimen.path);
    }
    specimen.damage(112, b"\xff\xfe");
    refused("a name that is not UTF-8", &specimen.path);
    specimen.damage(112, b"a\nb");
    refused("a name with a line feed", &specimen.path);
}

#[test]
fn live_header_fields_are_bounded() {
    let specimen = specimen();
    specimen.damage(offset::STATE, &0u32.to_le_bytes());
    refused("an unfinished segment", &specimen.path);
    for at in [offset::DIRECTORY_LEN, offset::GROUPS_LEN] {
        for value in [0u32, 1, 9, 257, u32::MAX] {
            specimen.damage(at, &value.to_le_bytes());
            let read = read_in_time(&format!("{value} at {at}"), &specimen.path);
            assert!(read.is_ok(), "valid vertices can still be read");
        }
    }
    specimen.damage(offset::DIRECTORY_LEN, &u32::MAX.to_le_bytes());
    assert_eq!(Segment::open(&specimen.path).expect("valid").vertices().len(), 4);
}

/// A header that claims millions of entries once made `find` read, and so allocate, the whole length of the file.
#[test]
fn a_lookup_in_a_sparse_directory_allocates_no_memory() {
    use std::os::unix::fs::MetadataExt as _;
    const CAPACITY: u32 = 12_000_000;
    let specimen = specimen();
    let heap = (offset::DIRECTORY + u64::from(CAPACITY) * offset::ENTRY_BYTES).next_multiple_of(64);
    let length = heap + 4096;
    let file = fs::OpenOptions::new().write(true).open(&specimen.path).expect("our own file");
    file.set_len(length).expect("a sparse file");
    for (at, bytes) in [
        (16, &length.to_le_bytes()[..]),
        (48, &CAPACITY.to_le_bytes()),
        (56, &heap.to_le_bytes()),
        (offset::DIRECTORY_LEN, &u32::MAX.to_le_bytes()),
    ] {
        file.write_all_at(bytes, at).expect("written");
    }
    let blocks = || fs::metadata(&specimen.path).expect("our own file").blocks();
    let before = blocks();
    let path = specimen.path.clone();
    must_end("a lookup", move || {
        let segment = Segment::open(&path).expect("the header is consistent");
        assert!(matches!(segment.find(&topic("test/absent")), Err(Error::NoVertex(_))));
        let _ = segment.vertices();
    });
    assert!(blocks() - before < 1024, "the lookup gave {} blocks to the file", blocks() - before);
}

#[test]
fn a_hostile_directory_entry_hides_only_its_vertex() {
    let specimen = specimen();
    let heap_end = specimen.bytes.len() as u64;
    let hide: Vec<(&str, u64, Vec<u8>)> = vec![
        ("odd version", 0, 3u32.to_le_bytes().into()),
        ("unknown state", 4, 9u32.to_le_bytes().into()),
        ("offset 0", 8, 0u64.to_le_bytes().into()),
        ("offset inside the directory", 8, offset::DIRECTORY.to_le_bytes().into()),
        ("offset at the end", 8, heap_end.to_le_bytes().into()),
        ("offset 2^64 - 64", 8, (u64::MAX - 63).to_le_bytes().into()),
        ("misaligned offset", 8, (specimen.vertex(0) + 8).to_le_bytes().into()),
        ("no slots", 16, 0u32.to_le_bytes().into()),
        ("three slots", 16, 3u32.to_le_bytes().into()),
        ("slots outside of the file", 16, (1u32 << 20).to_le_bytes().into()),
        ("2^31 slots", 16, (1u32 << 31).to_le_bytes().into()),
        ("a byte ring for a number", 20, 4096u32.to_le_bytes().into()),
        ("value type 0", 24, vec![0]),
        ("value type 5", 24, vec![5]),
        ("a text without a byte ring", 24, vec![4]),
        ("kind 9", 25, vec![9]),
        ("unit of 17 bytes", 26, vec![17]),
        ("unit of capitals", 26, vec![3]),
        ("no topic", 27, vec![0]),
        ("topic not UTF-8", 48, vec![0xff, 0xfe]),
        ("topic with a zero", 48, vec![0]),
        ("topic with a slash first", 48, vec![b'/']),
        ("topic of 255 bytes", 27, vec![255]),
    ];
    for (what, field, bytes) in hide {
        specimen.damage(offset::DIRECTORY + field, &bytes);
        if what == "unit of capitals" {
            specimen.damage(offset::DIRECTORY + 26, &[3, 8, 0, 0, 0, 0, b'A', b'B', b'C']);
        }
        read_in_time(what, &specimen.path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let segment = Segment::open(&specimen.path).expect("the header is valid");
        let topics: Vec<_> = segment.vertices().iter().map(|v| v.topic().to_string()).collect();
        assert_eq!(topics, ["test/text", "test/pair/left", "test/pair/right"], "{what}");
        assert!(matches!(segment.find(&topic("test/f64")), Err(Error::NoVertex(_))), "{what}");
    }
    let ring = offset::DIRECTORY + offset::ENTRY_BYTES + 20;
    for bytes in [0u32, 4, 12, 1 << 25, 1 << 31] {
        specimen.damage(ring, &bytes.to_le_bytes());
        let segment = Segment::open(&specimen.path).expect("the header is valid");
        assert_eq!(segment.vertices().len(), 3, "a byte ring of {bytes}");
    }
}

/// An impossible count of samples makes readers look for samples that do not exist.
#[test]
fn a_hostile_head_does_not_trap_a_reader() {
    let specimen = specimen();
    for index in 0..4 {
        let vertex = specimen.vertex(index);
        for count in [11, 12, 1 << 20, 1 << 40, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            specimen.damage(vertex + 8, &count.to_le_bytes());
            let what = format!("entry {index} says {count} samples");
            read_in_time(&what, &specimen.path).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}

/// A publisher died after it completed a sample and before it raised `head`. No reader may see this
/// sample, because the latest value would then be older than a value that was read.
#[test]
fn a_sample_that_was_never_counted_is_not_delivered() {
    let specimen = specimen();
    specimen.damage(specimen.vertex(0) + 8, &9u64.to_le_bytes());
    let segment = Segment::open(&specimen.path).expect("the header is valid");
    let vertex = segment.find(&topic("test/f64")).expect("its entry is valid");
    assert_eq!(vertex.latest().expect("whole").as_f64(), Some(9.0));
    let mut follower = vertex.subscribe_from_oldest();
    let mut delivered = Vec::new();
    while let Some(delivery) = follower.try_next().expect("registered") {
        if let Delivery::Sample(sample) = delivery {
            delivered.extend(sample.value.as_f64());
        }
    }
    assert_eq!(delivered, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!(vertex.subscribe().try_next().expect("registered"), None);
}

#[test]
fn hostile_slots_give_errors_or_their_own_bits() {
    let specimen = specimen();
    for index in 0..4 {
        let slots = specimen.vertex(index) + 64;
        for slot in 0..4 {
            for field in 0..4 {
                for word in [0, 1, 1 << 32, 0xffff_ffff << 32, u64::MAX - 1, u64::MAX] {
                    let word: u64 = word;
                    specimen.damage(slots + 32 * slot + 8 * field, &word.to_le_bytes());
                    let what = format!("entry {index}, slot {slot}, field {field} = {word:#x}");
                    read_in_time(&what, &specimen.path).unwrap_or_else(|e| panic!("{what}: {e}"));
                }
            }
        }
    }
}

/// A length far beyond any structured value once made each of a hundred attempts copy the whole byte ring.
#[test]
fn a_structured_value_is_never_longer_than_the_model_allows() {
    let specimen = specimen();
    let head = specimen.vertex(1);
    // Ten samples in four slots: the newest is in slot 9 mod 4.
    let newest = head + 64 + 32;
    for length in [4097u64, 16 << 10, 17 << 10, u64::from(u32::MAX)] {
        specimen.damage(newest + 24, &(length << 32).to_le_bytes());
        let segment = Segment::open(&specimen.path).expect("the header is valid");
        let vertex = segment.find(&topic("test/text")).expect("its entry is valid");
        assert!(matches!(vertex.latest(), Err(Error::Busy(_))), "{length} bytes");
    }
    let text_at = head + 64 + 32 * 4 + specimen.u64_at(newest + 16);
    for text in [&b"{\"a\""[..], b"\xff\xff\xff\xff", b"1234", b"[[[["] {
        specimen.damage(text_at, text);
        let segment = Segment::open(&specimen.path).expect("the header is valid");
        let vertex = segment.find(&topic("test/text")).expect("its entry is valid");
        assert!(matches!(vertex.latest(), Err(Error::Damaged(_))), "{text:?}");
    }
    specimen.damage(text_at, b"[77]");
    let segment = Segment::open(&specimen.path).expect("valid");
    let latest = segment.find(&topic("test/text")).expect("valid").latest().expect("valid");
    assert_eq!(latest.sample.value, Structured::from_json("[77]").expect("JSON").into());
}

#[test]
fn files_that_are_not_plain_are_refused() {
    let specimen = specimen();
    let named = |name: &str| specimen.dir.path().join(name);
    symlink(&specimen.path, named("link.seg")).expect("our own directory");
    refused("a symbolic link", &named("link.seg"));
    symlink(named("nothing"), named("dangling.seg")).expect("our own directory");
    refused("a dangling link", &named("dangling.seg"));
    fs::create_dir(named("folder.seg")).expect("our own directory");
    assert!(refused("a directory", &named("folder.seg")).contains("not a plain file"));
    let made = std::process::Command::new("mkfifo").arg(named("pipe.seg")).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is in coreutils");
    assert!(refused("a FIFO", &named("pipe.seg")).contains("not a plain file"));
    let socket = std::os::unix::net::UnixListener::bind(named("socket.seg")).expect("bound");
    refused("a socket", &named("socket.seg"));
    refused("nothing", &named("nothing.seg"));

    let dirs = vec![specimen.dir.path().to_owned()];
    let host =
        must_end("opening a host", move || Host::open_dirs(dirs)).expect("our own directory");
    assert_eq!(host.segments().len(), 0);
    assert_eq!(host.refused().len(), 5, "{:?}", host.refused());
    drop(socket);
}

/// A publisher starts beside such files, and returns an error if one of them has its own path.
#[test]
fn odd_files_do_not_block_other_names() {
    let dir = runtime_dir();
    let named = |name: &str| dir.path().join(name);
    fs::create_dir(named("folder.seg")).expect("our own directory");
    fs::write(named("garbage.seg"), b"garbage").expect("our own directory");
    fs::write(named("short.seg"), b"").expect("our own directory");
    fs::write(named("mine.new"), b"half-made").expect("our own directory");
    symlink(named("elsewhere"), named("mine.seg")).expect("our own directory");
    let dir_path = dir.path().to_owned();
    let mine =
        must_end("creating a publisher beside odd files", move || publisher(&dir_path, "mine"));
    assert!(!named("elsewhere").exists(), "the link was not followed");
    assert!(!named("mine.new").exists());
    Segment::open(mine.path()).expect("it is sound");
    assert!(Publisher::builder("folder").dir(dir.path()).create().is_err());
}

/// The file may vanish, but its memory stays: handles keep working.
#[test]
fn an_unlinked_segment_stays_readable() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "brief");
    let writer = publisher.register(VertexSpec::new(topic("test/a"), ValueType::U64));
    let writer = writer.expect("room");
    writer.publish(1u64).expect("registered");
    let segment = Segment::open(publisher.path()).expect("valid");
    let vertex = segment.find(&topic("test/a")).expect("registered");
    fs::remove_file(publisher.path()).expect("our own file");
    writer.publish(2u64).expect("registered");
    assert_eq!(vertex.latest().expect("mapped").as_f64(), Some(2.0));
    assert!(segment.is_alive());
}
