//! History on a disk that fails, forgets and flips bits: what was acknowledged can be read, exactly once and in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_model::{Origin, Sample, Timestamp, Value};

use super::listing::Listing;
use super::simulation::{Ack, FOLDER, Run, Stored, filled, read, series};
use super::{Folder, Level, PushOutcome};
use crate::log::simulated::Failures;
use crate::rounds::{rounds, rounds_in};

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 2000;

/// Bits that are flipped by default; `SKOPOS_FLIPPED_BITS` has another number.
const BITS: u64 = 2000;

#[test]
fn acknowledged_samples_are_there_once_and_in_order_after_every_crash() {
    for seed in rounds("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            let steps = 10 + run.random.below(60);
            (0..steps).for_each(|_| run.step());
            run.keeper = None;
            run.disk.crash();
            run.check(|ack| ack == Ack::Disk);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_sync_that_failed_before_a_restart_is_not_simply_repeated() {
    for seed in 0..20 {
        let mut run = Run::new(seed);
        (0..10).for_each(|_| run.push());
        run.disk.fail(Failures { syncs: 1, ..Failures::default() });
        run.keeper().commit(Level::Disk).expect_err("the sync fails");
        run.keeper = None;
        run.open();
        run.keeper().commit(Level::Disk).expect("committed");
        run.keeper = None;
        run.disk.crash();
        let (stored, _) = read(&run.disk);
        assert_eq!(stored.values().map(Vec::len).sum::<usize>(), 10, "seed {seed}");
    }
}

#[test]
fn each_flipped_bit_is_named_and_gives_no_wrong_row() {
    let mut run = filled(1);
    let (whole, damaged) = read(&run.disk);
    assert_eq!(damaged, []);
    assert_eq!(whole.values().map(Vec::len).sum::<usize>(), run.accepted.len());
    for _ in rounds("SKOPOS_FLIPPED_BITS", BITS) {
        let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file");
        let (stored, damaged) = read(&run.disk);
        assert_ne!(damaged, [], "{} {bit}", path.display());
        for (topic, samples) in &stored {
            let mut all = whole[topic].iter();
            let is_there = samples.iter().all(|sample| all.any(|one| one == sample));
            assert!(is_there, "{} {bit}: {topic} has wrong rows", path.display());
        }
        run.disk.flip_back(&path, bit);
    }
    run.check(|ack| ack != Ack::Pending);
}

#[test]
fn a_damaged_file_is_moved_aside_and_everything_else_goes_on() {
    for seed in rounds_in("SKOPOS_FLIPPED_BITS", BITS, 20) {
        let mut run = filled(seed);
        let (whole, _) = read(&run.disk);
        run.keeper = None;
        let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file");
        let what = format!("seed {seed}: {} {bit}", path.display());
        run.open();
        (0..20).for_each(|_| run.push());
        run.keeper().commit(Level::Disk).expect("committed");
        let now = Timestamp::from_nanos(run.now);
        run.keeper().rotate_now(now).expect("rotated");
        let report = run.keeper().chores().run(now).expect("done");
        assert_eq!(report.errors, [""; 0], "{what}");
        assert_eq!(report.damaged.len(), 1, "{what}");
        assert_eq!(report.quarantined, 1, "{what}");
        let folder = Folder::on(Arc::new(run.disk.clone()), PathBuf::from(FOLDER));
        let damaged = folder.damaged().expect("listed");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(damaged.iter().any(|damage| damage.file.ends_with(name)), "{what}: {damaged:?}");
        // At most the samples of its own file are lost.
        let (stored, _) = read(&run.disk);
        let total = |all: &Stored| all.values().map(Vec::len).sum::<usize>();
        assert!(total(&stored) >= total(&whole) + 20 - 120, "{what}");
    }
}

#[test]
fn a_damaged_log_that_cannot_be_moved_aside_is_kept_until_it_can() {
    let (name, aside) = ("log-00000003", Path::new(FOLDER).join(crate::log::FOLDER));
    for seed in 0..40 {
        let mut run = filled(seed);
        while let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file")
            && !path.ends_with(name)
        {
            run.disk.flip_back(&path, bit);
        }
        run.disk.refuse_folder(Some(aside.clone()));
        let now = Timestamp::from_nanos(run.now);
        for _ in 0..2 {
            let report = run.keeper().chores().run(now).expect("done");
            assert_eq!((report.damaged.len(), report.errors.len()), (0, 1), "seed {seed}");
            if seed % 2 == 0 {
                run.keeper = None;
                run.open();
            }
            let logs = Listing::of(&run.disk, Path::new(FOLDER)).expect("listed").logs;
            assert!(logs.contains_key(&3), "seed {seed}: a damaged log was removed");
        }
        run.disk.refuse_folder(None);
        let report = run.keeper().chores().run(now).expect("done");
        assert_eq!(report.errors, [""; 0], "seed {seed}");
        assert_eq!(report.quarantined, 1, "seed {seed}");
        let files: Vec<&str> = report.damaged.iter().map(|damage| damage.file.as_str()).collect();
        assert_eq!(files, [name], "seed {seed}");
    }
}

#[test]
fn integers_keep_all_their_digits() {
    let mut run = Run::new(0);
    let at = |time| Timestamp::from_nanos(time);
    let folder = PathBuf::from(FOLDER);
    let values = [Value::U64(u64::MAX), Value::U64((1 << 53) + 1), Value::U64(7)];
    let ids = run.keeper().attach(vec![series(2)], false).expect("attached");
    for (time, value) in (10..).zip(&values) {
        let sample = Sample { time: at(time), value: value.clone(), origin: Origin::Measured };
        assert_eq!(run.keeper().push(ids[0], &sample), PushOutcome::Accepted);
    }
    run.keeper().rotate_now(at(20)).expect("rotated");
    run.keeper().chores().run(at(20)).expect("sealed");
    let parts = Folder::on(Arc::new(run.disk.clone()), folder).find(&(at(0)..=at(99)));
    assert_eq!(parts.expect("read").parts.len(), 2, "a part and the open log");
    let stored = &read(&run.disk).0[series(2).topic.as_str()];
    let found: Vec<&Value> = stored.iter().map(|sample| &sample.value).collect();
    assert_eq!(found, values.iter().collect::<Vec<_>>());
}
