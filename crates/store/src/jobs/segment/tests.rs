//! Segments are read back as they were written, or their damage is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::{ArrivingSegment, PartReader, Segment, SegmentInfo, SegmentWriter};
use crate::jobs::part::{JobPart, Mark, StoredRecord};
use crate::log::Error;
use crate::log::simulated::SimulatedDisk;
use crate::rounds::rounds;

const FOLDER: &str = "/segments";

fn write(disk: &SimulatedDisk, parts: &[JobPart]) -> Result<SegmentInfo, Error> {
    let disk = Arc::new(disk.clone());
    let mut writer = SegmentWriter::on(disk, Path::new(FOLDER), 7, Timestamp::from_nanos(99))?;
    parts.iter().try_for_each(|part| writer.push(part))?;
    writer.finish()
}

fn path(info: &SegmentInfo) -> PathBuf {
    Path::new(FOLDER).join(&info.name)
}

fn part(id: &JobId, number: u32, records: Vec<(Kind, &str, i64, Vec<u8>)>) -> JobPart {
    let record = |(kind, node, time, content): (Kind, &str, i64, Vec<u8>)| {
        let time = Timestamp::from_nanos(time);
        let (job, generation) = (id.job(), id.generation());
        StoredRecord::of(&JobRecord { kind, job, generation, node, time, content: &content })
    };
    let mark = Mark { producer: "p\"\n".to_owned(), epoch: -1, sequence: i64::MAX };
    let records = records.into_iter().map(record).collect();
    JobPart { id: id.clone(), number, records, marks: vec![mark] }
}

fn id(job: &str, generation: u32) -> JobId {
    JobId::new(job, generation).expect("an id")
}

/// Values whose bits are easily lost.
fn values() -> impl Strategy<Value = Vec<f64>> {
    let odd = prop_oneof![
        Just(f64::NAN),
        Just(f64::from_bits(0xFFF0_0000_0000_0001)),
        Just(f64::INFINITY),
        Just(-0.0),
        any::<f64>(),
    ];
    prop::collection::vec(odd, 0..50)
}

fn records() -> impl Strategy<Value = Vec<(Kind, &'static str, i64, Vec<u8>)>> {
    let content =
        (0..Kind::ALL.len(), values(), prop::collection::vec(any::<u8>(), 0..40), any::<u8>());
    let record = content.prop_map(|(kind, values, bytes, choice)| {
        let content = match (Kind::ALL[kind], choice % 4) {
            // Contents that are not valid are kept, too.
            (_, 0) => bytes,
            (Kind::Sample, _) => JobRecord::sample_content(["node", "gpu-0"][kind % 2], &values),
            _ => format!("{{\"a\":\"ü{choice}\"}}").into_bytes(),
        };
        let time = i64::from(choice % 9) * (i64::MAX / 8) - i64::from(choice % 2) * i64::MAX;
        (Kind::ALL[kind], ["", "n01", "n\"02/ü"][usize::from(choice % 3)], time, content)
    });
    prop::collection::vec(record, 1..60)
}

fn parts() -> impl Strategy<Value = Vec<JobPart>> {
    let odd = ["1", "a/../b", "it's \"quoted\"", "https://grid/job?x=1", "übung 日本", "-rf *"];
    let key =
        (0..odd.len(), prop_oneof![Just(0), Just(u32::MAX)], prop_oneof![0..3u32, Just(u32::MAX)]);
    prop::collection::btree_map(key, records(), 1..8).prop_map(move |parts| {
        let part =
            |((job, generation, number), records)| part(&id(odd[job], generation), number, records);
        let mut parts: Vec<JobPart> = parts.into_iter().map(part).collect();
        parts.sort_by(|a, b| (&a.id, a.number).cmp(&(&b.id, b.number)));
        parts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn parts_come_back_byte_for_byte_in_the_order_of_arrival(parts in parts()) {
        let disk = SimulatedDisk::new(1);
        let info = write(&disk, &parts).expect("written");
        let segment = Segment::open_on(&disk, &path(&info)).expect("open");
        prop_assert_eq!(segment.parts(), &info.parts[..]);
        segment.verify().expect("whole");
        for (part, known) in parts.iter().zip(segment.parts()) {
            prop_assert_eq!(&segment.read_part(known).expect("read"), part);
            prop_assert_eq!(segment.read(&part.id, part.number).expect("read"), part.records.clone());
        }
    }

    #[test]
    fn a_reader_of_parts_returns_the_records_of_some_kinds_in_any_order_of_parts(
        parts in parts(),
        kinds in prop::collection::vec(any::<bool>(), Kind::ALL.len()),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
    ) {
        let disk = SimulatedDisk::new(1);
        let info = write(&disk, &parts).expect("written");
        let segment = Arc::new(Segment::open_on(&disk, &path(&info)).expect("open"));
        let mut reader = PartReader::default();
        let all = 0..parts.len();
        for at in all.chain(order.iter().map(|index| index.index(parts.len()))) {
            let is_wanted = |kind: Kind| kinds[kind as usize];
            let read = reader.read(&segment, &segment.parts()[at], &is_wanted).expect("read");
            let of_kind = |record: &&StoredRecord| is_wanted(record.get().expect("a record").kind);
            let wanted: Vec<_> = parts[at].records.iter().filter(of_kind).cloned().collect();
            prop_assert_eq!(read, wanted);
        }
    }
}

#[test]
fn the_starts_of_jobs_are_read_although_a_measurement_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = SegmentWriter::new(folder.path(), 7, Timestamp::from_nanos(99)).expect("made");
    let parts = small();
    parts.iter().for_each(|part| writer.push(part).expect("pushed"));
    let path = folder.path().join(writer.finish().expect("written").name);
    let mut bytes = std::fs::read(&path).expect("readable");
    // Most of the file are values.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&path, bytes).expect("ours");
    let segment = Arc::new(Segment::open(&path).expect("its metadata are whole"));
    let mut reader = PartReader::default();
    let mut damaged = 0;
    for (part, known) in parts.iter().zip(segment.parts()) {
        let starts = reader.read(&segment, known, &|kind| kind == Kind::Start).expect("read");
        assert_eq!(starts, part.records[..1]);
        // The reader goes on after an error.
        damaged += usize::from(reader.read(&segment, known, &|_| true).is_err());
    }
    assert!((1..parts.len()).contains(&damaged), "{damaged}");
}

#[test]
fn a_part_that_is_longer_than_a_row_group_comes_back() {
    let disk = SimulatedDisk::new(1);
    let long = |time: i64| {
        let values: Vec<f64> = (0..4096).map(|at| (at * time) as f64).collect();
        (Kind::Sample, "n01", -time, JobRecord::sample_content("node", &values))
    };
    let parts = [
        part(&id("1", 0), 0, vec![(Kind::Start, "", 1, b"{}".to_vec())]),
        part(&id("2", 0), 0, (0..600).map(long).collect()),
        part(&id("3", 0), 0, (0..3).map(long).collect()),
    ];
    let info = write(&disk, &parts).expect("written");
    let segment = Segment::open_on(&disk, &path(&info)).expect("open");
    assert!(segment.groups() > 2);
    for part in &parts {
        assert_eq!(segment.read(&part.id, 0).expect("read"), part.records);
    }
    assert_eq!(segment.read(&id("4", 0), 0).expect("read"), []);
}

fn small() -> Vec<JobPart> {
    let sample = |time: i64| {
        let values: Vec<f64> =
            (0..45).map(|at| (f64::from(at) * 0.37 + time as f64 * 1.91).sin()).collect();
        (Kind::Sample, "n01", time, JobRecord::sample_content("node", &values))
    };
    (0..20)
        .map(|job| {
            let start = format!("{{\"user\":\"ann\",\"name\":\"{}\"}}", "x".repeat(job * 50));
            let start = (Kind::Start, "", 0, start.into_bytes());
            let samples = (0..30).map(|time| sample(job as i64 * 100 + time));
            part(&id(&format!("j{job:02}"), 0), 0, [start].into_iter().chain(samples).collect())
        })
        .collect()
}

/// Number of flipped bits by default; `SKOPOS_FLIPPED_BITS` has another number.
const BITS: u64 = 3000;

#[test]
fn each_flipped_bit_is_found_and_costs_few_parts() {
    let disk = SimulatedDisk::new(3);
    let parts = small();
    let info = write(&disk, &parts).expect("written");
    let (mut unopened, mut read, mut lost) = (0, 0, 0);
    for _ in rounds("SKOPOS_FLIPPED_BITS", BITS) {
        let (path, bit) = disk.flip(Path::new(FOLDER)).expect("a file");
        match Segment::open_on(&disk, &path) {
            Err(e) => {
                assert!(e.is_damage() && e.to_string().contains(&info.name), "{bit}: {e}");
                unopened += 1;
            }
            Ok(segment) => {
                let e = segment.verify().expect_err("a bit is flipped");
                assert!(e.is_damage() && e.to_string().contains(&info.name), "{bit}: {e}");
                for part in &parts {
                    match segment.read(&part.id, 0) {
                        Ok(records) => {
                            assert_eq!(records, part.records, "{bit}");
                            read += 1;
                        }
                        Err(e) => {
                            assert!(e.is_damage(), "{bit}: {e}");
                            lost += 1;
                        }
                    }
                }
            }
        }
        disk.flip_back(&path, bit);
    }
    // The values do not compress, so a flip among them costs the parts of one page; the names and times of all parts share
    // a page, so a flip there costs them all.
    assert!(unopened > 0 && read > 0 && lost > 0, "{unopened} {read} {lost}");
    Segment::open_on(&disk, &path(&info)).and_then(|segment| segment.verify()).expect("whole");
}

#[test]
fn a_segment_that_arrives_in_pieces_is_whole_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = SegmentWriter::new(folder.path(), 7, Timestamp::from_nanos(99)).expect("made");
    let parts = small();
    parts.iter().for_each(|part| writer.push(part).expect("pushed"));
    let info = writer.finish().expect("written");
    let whole = std::fs::read(folder.path().join(&info.name)).expect("readable");
    let arriving = folder.path().join("arriving");
    std::fs::create_dir(&arriving).expect("a folder");
    let arrive = |bytes: &[u8], piece: usize| {
        let mut segment = ArrivingSegment::new(&arriving, &info.name, info.bytes)?;
        bytes.chunks(piece).try_for_each(|piece| segment.write(piece))?;
        segment.finish()
    };
    for piece in [777, 16 << 10, 1 << 20] {
        let segment = arrive(&whole, piece).expect("whole");
        assert_eq!(segment.parts(), &info.parts[..]);
        segment.verify().expect("the file has what was written");
    }
    for at in (0..whole.len()).step_by(4099).chain([whole.len() - 1]) {
        let mut other = whole.clone();
        other[at] ^= 1;
        let e = arrive(&other, 5000).expect_err("a bit is flipped");
        assert!(e.is_damage() && e.to_string().contains(&info.name), "{at}: {e}");
    }
    for length in [0, 16 << 10, whole.len() - 1] {
        let e = arrive(&whole[..length], 5000).expect_err("it is cut");
        assert!(e.is_damage(), "{length}: {e}");
    }
    for (name, bytes) in [("../x.parquet", info.bytes), (info.name.as_str(), 7)] {
        let e = ArrivingSegment::new(&arriving, name, bytes).expect_err("refused");
        assert!(e.to_string().contains("not that of a segment of its length"), "{e}");
    }
}

#[test]
fn parts_that_a_segment_cannot_have_are_refused() {
    let refused = |parts: &[JobPart], why: &str| {
        let e = write(&SimulatedDisk::new(1), parts).expect_err("refused");
        assert!(matches!(e, Error::Refused { .. }) && e.to_string().contains(why), "{e}");
    };
    let (a, b) = (id("a", 0), id("b", 0));
    let record = || vec![(Kind::Start, "", 1, b"{}".to_vec())];
    let one = |id: &JobId, number| part(id, number, record());
    refused(&[], "without parts");
    refused(&[one(&b, 0), one(&a, 0)], "does not come after");
    refused(&[one(&a, 1), one(&a, 1)], "does not come after");
    refused(&[part(&a, 0, Vec::new())], "has no records");
    refused(&[JobPart { id: b, ..one(&a, 0) }], "another job");
}
