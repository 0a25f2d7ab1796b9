//! History against a list of samples: each flushed sample is there once, and nothing else is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};
use skopos_store::history::{
    Column, Error, Folder, Keeper, Level, Limits, Merges, ORIGINS, Part, PushOutcome, Samples,
    Sealer, Selection, Series, SeriesId,
};

/// A time from which ages can be subtracted.
const BEGIN: i64 = 1_700_000_000_000_000_000;

const ALL_TIMES: std::ops::RangeInclusive<i64> = i64::MIN..=i64::MAX;

fn at(nanos: i64) -> Timestamp {
    Timestamp::from_nanos(BEGIN + nanos)
}

fn series(number: usize) -> Series {
    let value_type = [ValueType::F64, ValueType::U64, ValueType::Structured][number % 3];
    Series {
        topic: Topic::new(&format!("n{}/a/m{number}", number % 4)).expect("a topic"),
        unit: Unit::BYTES,
        kind: Kind::Gauge,
        value_type,
        since: at(0),
    }
}

fn sample(time: i64, what: u8, value_type: ValueType) -> Sample {
    let value = match value_type {
        ValueType::F64 if what == 9 => Value::F64(f64::INFINITY),
        ValueType::F64 => Value::F64(f64::from(what) / 3.0),
        ValueType::U64 => Value::U64(u64::from(what) << 40),
        _ => Value::Structured(Structured::text(&"é".repeat(usize::from(what)))),
    };
    let origin = match what % 5 {
        3 => Origin::Predicted { bound: 0.5 },
        4 => Origin::Unknown,
        _ => Origin::Measured,
    };
    Sample { time: at(time), value, origin }
}

/// A sample as in SQL: time, value, origin, bound, text.
type Row = (i64, Option<u64>, &'static str, Option<u64>, Option<String>);

fn row(sample: &Sample) -> Row {
    let is_known = sample.origin != Origin::Unknown;
    let value = sample.value.as_f64().filter(|v| is_known && v.is_finite()).map(f64::to_bits);
    let (origin, bound) = match sample.origin {
        Origin::Measured => (ORIGINS[0], None),
        Origin::Predicted { bound } => (ORIGINS[1], Some(bound.to_bits())),
        Origin::Unknown => (ORIGINS[2], None),
    };
    let text = match &sample.value {
        Value::Structured(s) => Some(s.to_string()),
        _ => None,
    };
    (sample.time.as_nanos(), value, origin, bound, text)
}

type Rows = BTreeMap<String, Vec<Row>>;

/// Reads the wanted topics and times of a folder, for each topic before a time.
fn read(
    folder: &Path,
    wanted: impl Fn(&str) -> bool,
    times: std::ops::RangeInclusive<i64>,
    below: impl Fn(&str) -> i64,
) -> Rows {
    let mut rows = Rows::new();
    let range = Timestamp::from_nanos(*times.start())..=Timestamp::from_nanos(*times.end());
    for part in Folder::new(folder).find(&range).expect("parts").parts {
        let stretches = part.stretches().iter().enumerate();
        let topics = stretches.map(|(at, s)| (at, s.series.topic.as_str()));
        let stretches = topics.filter(|(_, t)| wanted(t)).map(|(at, t)| (at, below(t)));
        let selection = Selection { stretches: stretches.collect(), times: times.clone() };
        for group in (0..part.groups()).filter(|group| part.may_have(*group, &selection)) {
            for chunk in part.read(group, &Column::ALL, &selection).expect("a group") {
                let chunk = chunk.expect("a chunk");
                for run in &chunk.runs {
                    let topic = part.stretches()[run.stretch].series.topic.to_string();
                    let all = (run.start..run.start + run.rows).map(|at| cell(&chunk.samples, at));
                    rows.entry(topic).or_default().extend(all);
                }
            }
        }
    }
    rows
}

fn cell(samples: &Samples, at: usize) -> Row {
    let of = |(row, _): &&(usize, f64)| *row == at;
    let text = samples.texts.iter().find(|(row, _)| *row == at).map(|(_, text)| text.clone());
    (
        samples.times[at],
        Some(samples.values[at]).filter(|value| !value.is_nan()).map(f64::to_bits),
        ORIGINS[usize::from(samples.origins[at])],
        samples.bounds.iter().find(of).map(|(_, bound)| bound.to_bits()),
        text,
    )
}

fn everything(folder: &Path) -> Rows {
    read(folder, |_| true, ALL_TIMES, |_| i64::MAX)
}

/// Opens a keeper with all series attached.
fn open(folder: &Path, count: usize, limits: Limits) -> (Keeper, Vec<SeriesId>) {
    let mut keeper = Keeper::open(folder, limits, at(0)).expect("opened");
    let ids = keeper.attach((0..count).map(series).collect(), true).expect("attached");
    (keeper, ids)
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize, i64, u8),
    Flush,
    Seal,
    Rotate,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..7usize, 1..50i64, 0..10u8).prop_map(|(s, t, v)| Step::Push(s, t, v)),
        3 => Just(Step::Flush),
        1 => Just(Step::Rotate),
        3 => Just(Step::Seal),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn each_flushed_sample_is_there_once_and_each_wanted_one_is_found(
        steps in prop::collection::vec(step(), 1..200),
        (from, long) in (0..2000i64, 0..2000i64),
        node in 0..4usize,
        below in 0..3000i64,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut keeper, mut ids) = open(folder.path(), 7, Limits::default());
        let (mut flushed, mut pending) = (Rows::new(), Vec::new());
        let mut now = 0;
        for step in steps {
            match step {
                Step::Push(number, after, what) => {
                    now += after;
                    let sample = sample(now, what, series(number).value_type);
                    prop_assert_eq!(keeper.push(ids[number], &sample), PushOutcome::Accepted);
                    prop_assert_eq!(keeper.push(ids[number], &sample), PushOutcome::Duplicate);
                    pending.push((series(number).topic.to_string(), row(&sample)));
                    continue;
                }
                Step::Kill => {
                    pending.clear();
                    drop(keeper);
                    (keeper, ids) = open(folder.path(), 7, Limits::default());
                }
                Step::Flush => keeper.commit(Level::Memory).expect("committed"),
                Step::Rotate => keeper.rotate_now(at(now)).expect("rotated"),
                Step::Seal => {
                    keeper.rotate_now(at(now)).expect("rotated");
                    keeper.chores().run(at(now)).expect("sealed");
                }
            }
            for (topic, row) in pending.drain(..) {
                flushed.entry(topic).or_default().push(row);
            }
        }
        prop_assert_eq!(&everything(folder.path()), &flushed);
        // Small parts are merged: eight of about one size never stay.
        prop_assert!(sizes(folder.path()).len() < 24, "{} parts", sizes(folder.path()).len());
        let node = format!("n{node}/");
        let (from, to, below) = (BEGIN + from, BEGIN + from + long, BEGIN + below);
        let mut expected = flushed;
        expected.retain(|topic, rows| {
            rows.retain(|row| (from..=to).contains(&row.0) && row.0 < below);
            topic.starts_with(&node) && !rows.is_empty()
        });
        let found = read(folder.path(), |t| t.starts_with(&node), from..=to, |_| below);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn retention_removes_the_oldest_parts_only(
        parts in prop::collection::vec((0..20i64, 1..2000usize), 1..12),
        // A part has about four thousand bytes and some more.
        max_bytes in 0..40_000u64,
        max_age in 1..120u64,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut now = 0;
        for (generation, (after, rows)) in parts.iter().enumerate() {
            now += after * 1_000_000_000;
            seal(folder.path(), generation as u64 + 1, now, *rows);
        }
        let limits = Limits { max_bytes, max_age: Duration::from_secs(max_age), ..Limits::default() };
        let before = sizes(folder.path());
        let keeper = Keeper::open(folder.path(), limits, at(now)).expect("opened");
        let size = keeper.chores().run(at(now)).expect("removed");
        drop(keeper);
        let after = sizes(folder.path());
        prop_assert_eq!(&before[before.len() - after.len()..], &after[..], "the youngest stay");
        let log = fs::metadata(folder.path().join(format!("log-{:08}", parts.len() + 1)));
        let log = log.expect("a log").len();
        let sum = |parts: &[(i64, u64)]| log + parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        prop_assert_eq!((size.parts, size.bytes), (after.len() as u64, sum(&after)));
        let is_young = |to: i64| to >= BEGIN + now - max_age as i64 * 1_000_000_000;
        prop_assert!(after.iter().all(|(to, _)| is_young(*to)));
        prop_assert!(after.is_empty() || sum(&after) <= max_bytes);
        if let Some(next) = before.len().checked_sub(after.len() + 1) {
            let is_too_much = sum(&before[next..]) > max_bytes;
            prop_assert!(is_too_much || !is_young(before[next].0), "no part was removed without need");
        }
    }
}

#[test]
fn a_clock_that_is_set_years_ahead_removes_no_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let (hour, year) = (3600 * 1_000_000_000, 365 * 86_400 * 1_000_000_000);
    for number in 0..24 {
        seal(folder.path(), number as u64 + 1, number * hour, 10);
    }
    // Each part has ten samples, also after it is merged with others.
    let left = |now: i64| {
        let keeper = Keeper::open(folder.path(), Limits::default(), at(now)).expect("opened");
        assert_eq!(keeper.chores().run(at(now)).expect("done").errors, [""; 0]);
        everything(folder.path()).values().map(Vec::len).sum::<usize>() / 10
    };
    assert_eq!(left(24 * hour + 10 * year), 24, "the clock is wrong");
    seal(folder.path(), 25, 24 * hour + 10 * year, 10);
    assert_eq!(left(25 * hour + 10 * year), 25, "samples are stored with wrong times");
    seal(folder.path(), 26, 26 * hour, 10);
    assert_eq!(left(26 * hour), 26, "the clock is set back");
    // Nine hundred hours of true time: the parts of the first days are too old.
    for number in 27..900 {
        seal(folder.path(), number as u64, number * hour, 10);
    }
    assert!((720..=770).contains(&left(900 * hour)), "{}", left(900 * hour));
}

/// Writes a part with its last sample at `to`.
fn seal(folder: &Path, generation: u64, to: i64, rows: usize) {
    let mut samples = Samples::default();
    for number in 0..rows {
        let time = to - (rows - 1 - number) as i64;
        samples.push_measured(at(time), (number * 7919 % 1000) as f64);
    }
    let mut sealer = Sealer::new(folder, generation).expect("a part");
    sealer.push(series(0), samples).expect("pushed");
    sealer.finish().expect("sealed");
}

/// Returns the last times and lengths of all parts, in the order of their generations.
fn sizes(folder: &Path) -> Vec<(i64, u64)> {
    let mut parts: Vec<(String, u64)> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry"))
        .map(|e| (e.file_name().into_string().expect("a name"), e.metadata().expect("it").len()))
        .filter(|(name, _)| name.ends_with(".parquet"))
        .collect();
    parts.sort();
    let last = |name: &str| name.split('-').nth(3)?.parse().ok();
    parts.iter().map(|(name, length)| (last(name).expect("a time"), *length)).collect()
}

/// Writes a log of some frames. Returns its length and the flushed rows after each of them.
fn frames(folder: &Path) -> Vec<(u64, Rows)> {
    let (mut keeper, ids) = open(folder, 7, Limits::default());
    let log = folder.join("log-00000001");
    let mut flushed = Rows::new();
    let mut frames = vec![(fs::metadata(&log).expect("a log").len(), Rows::new())];
    for frame in 0..4i64 {
        for (number, id) in ids.iter().enumerate() {
            let sample = sample(frame * 10 + 1, number as u8, series(number).value_type);
            assert_eq!(keeper.push(*id, &sample), PushOutcome::Accepted);
            flushed.entry(series(number).topic.to_string()).or_default().push(row(&sample));
        }
        keeper.commit(Level::Memory).expect("committed");
        frames.push((fs::metadata(&log).expect("a log").len(), flushed.clone()));
    }
    frames
}

#[test]
fn a_log_that_is_cut_anywhere_keeps_its_complete_frames_and_takes_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames = frames(folder.path());
    let log = folder.path().join("log-00000001");
    let bytes = fs::read(&log).expect("a log");
    for end in 0..=bytes.len() {
        fs::write(&log, &bytes[..end]).expect("cut");
        let whole = frames.iter().rev().find(|(length, _)| *length <= end as u64);
        let (length, mut expected) = whole.cloned().unwrap_or_default();
        assert_eq!(everything(folder.path()), expected, "read at {end}");
        let (mut keeper, ids) = open(folder.path(), 7, Limits::default());
        assert_eq!(keeper.torn_bytes(), end as u64 - length, "at {end}");
        let next = sample(100, 1, series(0).value_type);
        assert_eq!(keeper.push(ids[0], &next), PushOutcome::Accepted);
        keeper.commit(Level::Memory).expect("committed");
        expected.entry(series(0).topic.to_string()).or_default().push(row(&next));
        assert_eq!(everything(folder.path()), expected, "after {end}");
    }
}

#[test]
fn a_damaged_byte_costs_its_frame_alone_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames = frames(folder.path());
    let log = folder.path().join("log-00000001");
    let bytes = fs::read(&log).expect("a log");
    let all_times = at(i64::MIN / 2)..=at(i64::MAX / 2);
    for place in frames[0].0 as usize..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        fs::write(&log, &damaged).expect("damaged");
        let frame = frames.iter().filter(|(length, _)| *length <= place as u64).count() - 1;
        let mut expected = frames.last().expect("frames").1.clone();
        expected.retain(|_, rows| {
            rows.retain(|row| row.0 != at(frame as i64 * 10 + 1).as_nanos());
            // The first frame describes the series.
            frame > 0
        });
        assert_eq!(everything(folder.path()), expected, "at {place}");
        let found = Folder::new(folder.path()).find(&all_times).expect("parts");
        assert_eq!(found.damaged.len(), 1, "at {place}");
        assert_eq!(found.damaged[0].file, "log-00000001", "at {place}");
    }
}

#[test]
fn a_log_beside_its_part_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames = frames(folder.path());
    let log = folder.path().join("log-00000001");
    let bytes = fs::read(&log).expect("a log");
    let (mut keeper, _) = open(folder.path(), 7, Limits::default());
    keeper.rotate_now(at(50)).expect("rotated");
    keeper.chores().run(at(50)).expect("sealed");
    drop(keeper);
    assert!(!log.exists());
    // A process that is killed before it removes the log leaves it.
    fs::write(&log, &bytes).expect("put back");
    fs::write(folder.path().join("part-00000003.tmp"), "half").expect("left behind");
    let expected = &frames.last().expect("frames").1;
    assert_eq!(&everything(folder.path()), expected);
    let (keeper, _) = open(folder.path(), 7, Limits::default());
    assert_eq!(keeper.chores().run(at(50)).expect("removed").damaged, []);
    drop(keeper);
    assert!(!log.exists() && !folder.path().join("part-00000003.tmp").exists());
    assert_eq!(&everything(folder.path()), expected);
}

#[test]
fn small_parts_are_merged_and_open_ones_stay_readable() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut keeper, ids) = open(folder.path(), 7, Limits::default());
    let reader = Folder::new(folder.path());
    let mut merges = Merges::default();
    let mut before = None;
    for round in 0..8i64 {
        for (number, id) in ids.iter().enumerate() {
            let sample = sample(round * 10 + 1, number as u8, series(number).value_type);
            assert_eq!(keeper.push(*id, &sample), PushOutcome::Accepted);
        }
        keeper.rotate_now(at(round * 10)).expect("rotated");
        if round == 7 {
            before = Some(reader.find(&(at(0)..=at(100))).expect("found"));
        }
        merges = keeper.chores().run(at(round * 10)).expect("sealed").merges;
    }
    assert_eq!((merges.done, merges.failed), (1, 0));
    let names: Vec<String> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .filter(|name| name.starts_with("part-"))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("part-00000001..00000008-"), "{names:?}");
    let length = fs::metadata(folder.path().join(&names[0])).expect("a part").len();
    assert_eq!(merges.written_bytes, length);
    assert!(merges.read_bytes > length, "{merges:?}");
    let rows = everything(folder.path());
    assert!(rows.len() == 7 && rows.values().all(|rows| rows.len() == 8), "{rows:?}");
    let before = before.expect("found").parts;
    assert_eq!(before.len(), 9, "parts, and logs that are not sealed");
    let found: u64 = before.iter().map(|part| part.rows()).sum();
    assert_eq!(found, 7 * 8);
    for part in before {
        let stretches = (0..part.stretches().len()).map(|at| (at, i64::MAX)).collect();
        let selection = Selection { stretches, times: ALL_TIMES };
        let chunks = part.read(0, &Column::ALL, &selection).expect("its file is removed, and open");
        let read: usize = chunks.map(|chunk| chunk.expect("rows").rows).sum();
        assert_eq!(read as u64, part.rows());
    }
}

#[test]
fn a_folder_has_one_keeper() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), 1, Limits::default());
    let second = Keeper::open(folder.path(), Limits::default(), at(0));
    assert!(matches!(second, Err(Error::Busy(_))));
    drop(first);
    open(folder.path(), 1, Limits::default());
}

#[test]
fn rows_of_a_long_part_are_found_by_groups_and_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let (topics, rows) = (3, 120_000);
    let mut sealer = Sealer::new(folder.path(), 1).expect("a part");
    for number in 0..topics {
        let mut samples = Samples::default();
        (0..rows).for_each(|row| samples.push_measured(at(row * 1000), row as f64));
        let topic = Topic::new(&format!("n1/a/m{number}")).expect("a topic");
        sealer.push(Series { topic, ..series(0) }, samples).expect("pushed");
    }
    let path = sealer.finish().expect("sealed");
    let part = Part::open(&path).expect("opened");
    assert_eq!((part.rows(), part.groups()), (360_000, 3));
    // The second topic, from sample 110,000 on: these are in the second group.
    let times = BEGIN + 110_000_000..=BEGIN + 110_009_000;
    let selection = Selection { stretches: vec![(1, i64::MAX)], times };
    // The first group has the beginning of that topic, and these times of another topic.
    let groups: Vec<usize> = (0..3).filter(|group| part.may_have(*group, &selection)).collect();
    assert_eq!(groups, [0, 1]);
    let (mut found, mut read) = (0, 0);
    for group in groups {
        for chunk in part.read(group, &[Column::Value], &selection).expect("a group") {
            let chunk = chunk.expect("a chunk");
            read += chunk.rows;
            found += chunk.runs.iter().map(|run| run.rows).sum::<usize>();
        }
    }
    assert_eq!(found, 10);
    assert!(read <= 2 * 16_384, "{read} rows were read for 10");
}
