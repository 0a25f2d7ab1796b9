//! Merged parts on a disk that fails, forgets and flips bits: readers see every sample once, before, meanwhile and after.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, ValueType};

use super::chores::PAUSED_RUNS;
use super::due::Bounds;
use super::listing::Listing;
use super::merge::merge;
use super::part::Part;
use super::seal::{PartName, Sealer};
use super::simulation::{Ack, BOUNDS, FOLDER, Run, Stored, read, rows_of, series};
use super::{Folder, Keeper, Limits, Merges, Report, Samples, Series};
use crate::log::simulated::{Failures, SimulatedDisk};
use crate::log::{Disk, DiskFile, Listed, Lock};
use crate::rounds::{rounds, rounds_in};

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 500;

/// Time that ends a test which hangs.
const PATIENCE: Duration = Duration::from_secs(180);

fn listed(disk: &SimulatedDisk) -> Listing {
    Listing::of(disk, Path::new(FOLDER)).expect("listed")
}

fn names(disk: &SimulatedDisk) -> Vec<PartName> {
    listed(disk).parts.into_values().map(|(part, _)| part).collect()
}

/// Returns the first and the last generation of each part that is read.
fn generations(disk: &SimulatedDisk) -> Vec<(u64, u64)> {
    names(disk).iter().map(|part| (part.first, part.last)).collect()
}

fn all_times() -> std::ops::RangeInclusive<Timestamp> {
    Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX)
}

/// Makes a history of some parts of about the same size, and an open log.
fn sealed(seed: u64, parts: usize) -> Run {
    let mut run = Run::new(seed);
    (0..parts).for_each(|_| run.seal());
    run
}

fn chores(run: &mut Run) -> Report {
    let now = Timestamp::from_nanos(run.now);
    run.chores().run(now).expect("done")
}

fn whole(disk: &SimulatedDisk) -> Stored {
    let (stored, damaged) = read(disk);
    assert_eq!(damaged, []);
    stored
}

#[test]
fn small_neighbours_become_one_part_with_the_same_samples() {
    let mut run = sealed(3, 4);
    let before = whole(&run.disk);
    let bytes: Vec<u64> = listed(&run.disk).parts.values().map(|(_, bytes)| *bytes).collect();
    assert_eq!(generations(&run.disk), [(1, 1), (2, 2), (3, 3), (4, 4)]);
    let report = chores(&mut run);
    assert_eq!(generations(&run.disk), [(1, 3), (4, 4)]);
    assert_eq!(whole(&run.disk), before);
    let written = listed(&run.disk).parts[&1].1;
    let read_bytes = bytes[..3].iter().sum();
    assert_eq!(report.merges, Merges { done: 1, failed: 0, read_bytes, written_bytes: written });
    assert_eq!(report.parts, 2);
    let log = listed(&run.disk).logs.values().sum::<u64>();
    assert_eq!(report.bytes, written + bytes[3] + log);
    assert!(written < read_bytes, "{written} {read_bytes}");
    // The stretches of one series are one now.
    let path = Path::new(FOLDER).join(names(&run.disk)[0].file_name());
    let part = Part::open_on(&run.disk, &path).expect("opened");
    let mut topics: Vec<&str> = part.stretches().iter().map(|s| s.series.topic.as_str()).collect();
    let count = topics.len();
    topics.dedup();
    assert_eq!(topics.len(), count, "{topics:?}");
    assert_eq!(chores(&mut run).merges, Merges::default(), "two parts wait for others");
    run.seal();
    assert_eq!(chores(&mut run).merges.done, 1);
    assert_eq!(generations(&run.disk), [(1, 5)]);
    run.check(|ack| ack != Ack::Pending);
}

#[test]
fn after_every_crash_merged_parts_have_each_sample_once_within_retention() {
    for seed in rounds("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            if seed % 2 == 0 {
                run.limits.max_age = Duration::from_nanos(200);
                run.keeper = None;
                run.open();
            }
            for _ in 0..10 + run.random.below(60) {
                run.step();
                if run.random.once_in(2) {
                    let now = Timestamp::from_nanos(run.now);
                    let _ = run.keeper().rotate_now(now);
                    run.note();
                    let _ = run.chores().run(now);
                }
            }
            run.keeper = None;
            run.disk.crash();
            run.check(|ack| ack == Ack::Disk);
            run.open();
            // The chores do what was left half-way.
            let report = chores(&mut run);
            assert_eq!(report.errors, [""; 0]);
            assert_eq!(listed(&run.disk).replaced, []);
            let oldest = run.now.saturating_sub_unsigned(run.limits.max_age.as_nanos() as u64);
            assert!(names(&run.disk).iter().all(|part| part.to >= oldest || part.from > part.to));
            run.check(|ack| ack == Ack::Disk);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_merge_that_ends_at_any_step_leaves_each_sample_readable_once() {
    let mut steps = 0;
    for seed in rounds_in("SKOPOS_CRASH_SEEDS", SEEDS, 50) {
        let mut run = sealed(seed, 3);
        let before = whole(&run.disk);
        run.keeper = None;
        let is_whole = |disk: &SimulatedDisk, what: &str| {
            assert_eq!(whole(disk), before, "seed {seed}: {what}");
        };
        let open = |disk: &SimulatedDisk| {
            let (disk, now) = (Arc::new(disk.clone()), Timestamp::from_nanos(run.now));
            Keeper::on(disk, Path::new(FOLDER), run.limits, now).expect("opened")
        };
        for changes in 0.. {
            let disk = run.disk.copy();
            let merging = open(&disk).chores().merging(BOUNDS);
            disk.stop_after(Some(changes));
            let now = Timestamp::from_nanos(run.now);
            let report = merging.run(now);
            let has_stopped = disk.has_stopped();
            disk.stop_after(None);
            drop(merging);
            is_whole(&disk, &format!("the process ended after {changes} changes"));
            let lost = disk.copy();
            lost.crash();
            is_whole(&lost, &format!("the power was lost after {changes} changes"));
            for disk in [disk, lost] {
                let report = open(&disk).chores().merging(BOUNDS).run(now).expect("done");
                assert_eq!(report.errors, [""; 0], "seed {seed}, {changes} changes");
                is_whole(&disk, &format!("the next chores ran after {changes} changes"));
                assert_eq!(generations(&disk), [(1, 3)]);
                assert_eq!(listed(&disk).replaced, []);
                assert_eq!(listed(&disk).temporary, [""; 0]);
            }
            steps += 1;
            if !has_stopped {
                assert_eq!(report.expect("done").merges.done, 1);
                break;
            }
        }
    }
    assert!(steps > 100, "{steps} steps are too few: some end a merge before it begins");
}

type Work = Box<dyn FnOnce() + Send>;

/// Does something once in the middle of the operation with a number.
struct Interrupted {
    disk: SimulatedDisk,
    /// Operations before that one, and the work.
    work: Mutex<(u64, Option<Work>)>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

impl Interrupted {
    /// Does the work if it is due now.
    fn interrupt(&self) {
        let mut work = self.work.lock().expect("no test panics meanwhile");
        let is_due = work.0 == 0;
        work.0 = work.0.saturating_sub(1);
        let due = work.1.take_if(|_| is_due);
        drop(work);
        if let Some(work) = due {
            work();
        }
    }
}

impl Disk for Interrupted {
    /// Lists a folder while it changes: without files that appear or disappear meanwhile.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let before = self.disk.list(folder)?;
        self.interrupt();
        let mut after = self.disk.list(folder)?;
        after.retain(|file| before.contains(file));
        Ok(after)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.interrupt();
        self.disk.open_to_read(path)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.make_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        self.disk.lock(path)
    }
}

#[test]
fn a_reader_meanwhile_misses_no_sample_and_sees_none_twice() {
    let mut merged = 0;
    for operation in 0..12 {
        let mut run = sealed(7, 3);
        let before = whole(&run.disk);
        let (merging, now) = (run.chores(), Timestamp::from_nanos(run.now));
        let work = move || drop(merging.run(now).expect("done"));
        let work = Mutex::new((operation, Some(Box::new(work) as Work)));
        let disk = Arc::new(Interrupted { disk: run.disk.clone(), work });
        let folder = Folder::on(disk, PathBuf::from(FOLDER));
        // Parts that are open stay readable when they are replaced.
        let found = folder.find(&all_times()).expect("found");
        merged += usize::from(generations(&run.disk) == [(1, 3)]);
        let _ = chores(&mut run);
        assert_eq!(rows_of(found), (before.clone(), vec![]), "operation {operation}");
        let found = folder.find(&all_times()).expect("found");
        assert_eq!(found.parts.len(), 2, "a part and the open log");
        assert_eq!(rows_of(found), (before, vec![]), "operation {operation}");
    }
    assert!((8..12).contains(&merged), "{merged} operations were interrupted");
}

#[test]
fn a_listing_that_hangs_keeps_no_other_reader_from_the_folder() {
    let run = sealed(7, 3);
    let before = whole(&run.disk);
    let folder = Arc::new(OnceLock::<Folder>::new());
    let other = folder.clone();
    let work = move || {
        let find = move || other.get().expect("made").find(&all_times()).map(drop);
        let reader = thread::spawn(find);
        let begun = Instant::now();
        while !reader.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "the other reader waits for this one");
            thread::sleep(Duration::from_millis(1));
        }
        reader.join().expect("no panic").expect("found");
    };
    let work = Mutex::new((0, Some(Box::new(work) as Work)));
    let disk = Arc::new(Interrupted { disk: run.disk.clone(), work });
    folder.set(Folder::on(disk, PathBuf::from(FOLDER))).expect("set once");
    let found = folder.get().expect("made").find(&all_times()).expect("found");
    assert_eq!(rows_of(found), (before, vec![]));
}

#[test]
fn a_damaged_part_is_left_out_of_merges_and_named() {
    for seed in 0..20 {
        let mut run = sealed(seed, 7);
        let name = names(&run.disk)[2].file_name();
        while let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file")
            && !path.ends_with(&name)
        {
            run.disk.flip_back(&path, bit);
        }
        let now = Timestamp::from_nanos(run.now);
        // The merge reads the part before it is checked.
        let report = run.chores().unchecked().run(now).expect("done");
        assert_eq!(report.errors, [""; 0]);
        assert_eq!(report.merges, Merges { failed: 1, ..Merges::default() });
        let files: Vec<&str> = report.damaged.iter().map(|damage| damage.file.as_str()).collect();
        assert_eq!(files, [name.as_str()]);
        assert_eq!(listed(&run.disk).temporary, [""; 0]);
        assert_eq!(chores(&mut run).merges.done, 1);
        assert_eq!(generations(&run.disk), [(1, 1), (2, 2), (4, 6), (7, 7)], "seed {seed}");
        let (_, damaged) = read(&run.disk);
        assert!(damaged[0].file.ends_with(&name), "{damaged:?}");
    }
}

#[test]
fn parts_take_the_place_of_a_damaged_one_that_was_to_replace_them() {
    for seed in 0..40 {
        let mut run = sealed(seed, 3);
        let before = whole(&run.disk);
        let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
        let (part, _) = merge(&disk, Path::new(FOLDER), &names(&run.disk)).expect("merged");
        assert_eq!(generations(&run.disk), [(1, 3)]);
        assert_eq!(listed(&run.disk).replaced.len(), 3);
        assert_eq!(whole(&run.disk), before, "it is read instead of them");
        let name = part.file_name();
        while let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file")
            && !path.ends_with(&name)
        {
            run.disk.flip_back(&path, bit);
        }
        // Damage of metadata is found when the part is opened, and that of rows when they are read.
        let (stored, damaged) = read(&run.disk);
        assert!(stored == before || !damaged.is_empty(), "seed {seed}");
        let report = chores(&mut run);
        assert_eq!(report.damaged.len(), 1, "seed {seed}");
        assert_eq!(report.damaged[0].file, name, "seed {seed}");
        assert_eq!(generations(&run.disk), [(1, 1), (2, 2), (3, 3)], "seed {seed}");
        assert_eq!(whole(&run.disk), before, "seed {seed}");
    }
}

#[test]
fn a_merge_that_fails_costs_nothing_but_itself_and_is_not_repeated_soon() {
    let mut run = sealed(5, 3);
    let before = whole(&run.disk);
    let now = Timestamp::from_nanos(run.now);
    run.disk.leave_space(100);
    let report = run.chores().run(now).expect("done");
    assert_eq!(report.merges, Merges { failed: 1, ..Merges::default() });
    assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
    assert_eq!(listed(&run.disk).temporary, [""; 0], "it took the room of the log");
    assert_eq!((generations(&run.disk).len(), whole(&run.disk)), (3, before.clone()));
    run.disk.leave_space(1 << 30);
    let soon = |run: &mut Run| run.keeper().chores().within(BOUNDS).run(now).expect("done").merges;
    for _ in 0..PAUSED_RUNS {
        assert_eq!(soon(&mut run), Merges::default());
    }
    // The first of these attempts begins behind the parts that failed.
    let done: u64 = (0..3).map(|_| soon(&mut run).done).sum();
    assert_eq!((done, whole(&run.disk)), (1, before));
}

#[test]
fn retention_removes_a_merged_part_with_all_that_it_replaced() {
    let mut run = sealed(9, 3);
    let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
    merge(&disk, Path::new(FOLDER), &names(&run.disk)).expect("merged");
    run.now += 1000;
    run.limits.max_age = Duration::from_nanos(500);
    run.keeper = None;
    run.open();
    // The folder cannot be synced, so the replaced parts are still there when the merged one is too old.
    run.disk.fail(Failures { syncs: 1, ..Failures::default() });
    let report = chores(&mut run);
    assert_eq!((report.errors.len(), report.parts), (1, 0), "{:?}", report.errors);
    assert_eq!(listed(&run.disk).replaced, []);
    assert_eq!(generations(&run.disk), []);
}

#[test]
fn series_of_one_topic_keep_their_order() {
    let disk = SimulatedDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let of = |since: i64| Series { since: Timestamp::from_nanos(since), ..series(0) };
    let seal = |generation: u64, all: &[(i64, &[i64])]| {
        let folder = Path::new(FOLDER);
        let mut sealer = Sealer::on(shared.clone(), folder, generation..=generation).expect("made");
        for (since, times) in all {
            let mut samples = Samples::default();
            for time in *times {
                samples.push_measured(Timestamp::from_nanos(*time), *time as f64);
            }
            sealer.push(of(*since), samples).expect("pushed");
        }
        sealer.finish().expect("sealed");
    };
    // A series that begins and ends while another one of the same topic goes on.
    seal(1, &[(1, &[10, 20])]);
    seal(2, &[(1, &[30, 40])]);
    seal(3, &[(1, &[50, 70]), (2, &[60, 65])]);
    seal(4, &[(1, &[80, 90])]);
    let (part, _) = merge(&shared, Path::new(FOLDER), &names(&disk)).expect("merged");
    let part = Part::open_on(&disk, &Path::new(FOLDER).join(part.file_name())).expect("opened");
    let found: Vec<(i64, i64, i64, u64)> = part
        .stretches()
        .iter()
        .map(|s| (s.series.since.as_nanos(), s.first.as_nanos(), s.last.as_nanos(), s.rows))
        .collect();
    assert_eq!(found, [(1, 10, 70, 6), (2, 60, 65, 2), (1, 80, 90, 2)]);
}

#[test]
fn long_texts_are_written_in_groups_that_fit_into_memory() {
    let disk = SimulatedDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let series = Series { value_type: ValueType::Structured, ..series(3) };
    for generation in 1..=4 {
        let folder = Path::new(FOLDER);
        let mut sealer = Sealer::on(shared.clone(), folder, generation..=generation).expect("made");
        let mut samples = Samples::default();
        for row in 0..1000 {
            samples.push_measured(Timestamp::from_nanos(generation as i64 * 1000 + row), 0.0);
            samples.texts.push((row as usize, format!("\"{}\"", "x".repeat(4000))));
        }
        sealer.push(series.clone(), samples).expect("pushed");
        sealer.finish().expect("sealed");
    }
    let before = whole(&disk);
    let parts = names(&disk);
    assert_eq!(parts.len(), 4);
    let (part, bytes) = merge(&shared, Path::new(FOLDER), &parts).expect("merged");
    assert!(bytes < 1 << 20, "the texts are compressed to {bytes} bytes");
    let part = Part::open_on(&disk, &Path::new(FOLDER).join(part.file_name())).expect("opened");
    // Sixteen megabytes of texts: four in each group.
    assert_eq!((part.rows(), part.groups(), part.stretches().len()), (4000, 4, 1));
    assert_eq!(whole(&disk), before);
}

#[test]
fn bounds_follow_the_limits_of_the_folder() {
    let day = Duration::from_secs(86_400);
    let usual = Bounds { parts: 8, bytes: 32 << 20, span: day };
    assert_eq!(Bounds::of(&Limits::default()), usual);
    let small = Limits { max_bytes: 64 << 20, max_age: day, ..Limits::default() };
    let (bytes, span) = (4 << 20, Duration::from_secs(5400));
    assert_eq!(Bounds::of(&small), Bounds { bytes, span, ..usual });
}
