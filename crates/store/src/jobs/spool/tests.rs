use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::PermissionsExt as _;

use skopos_model::job::{JobRecord, Kind};

use super::*;
use crate::jobs::StoredRecord;
use crate::log::simulated::{Failures, Random, SimulatedDisk};
use crate::rounds::rounds;

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 2000;

fn record(kind: Kind, job: &str, time: i64) -> StoredRecord {
    let content = match kind {
        Kind::Sample => JobRecord::sample_content("node", &[time as f64; 20]),
        // Documents of the same length as some measurements.
        _ => format!("{{\"spans\":\"{}\"}}", "x".repeat(300)).into_bytes(),
    };
    let time = Timestamp::from_nanos(time);
    StoredRecord::of(&JobRecord { kind, job, generation: 0, node: "n01", time, content: &content })
}

/// Returns a batch of records of the kinds and jobs.
fn batch(producer: &str, records: &[(Kind, &str)]) -> SpooledBatch {
    let records = (0..).zip(records).map(|(at, (kind, job))| (at, record(*kind, job, at)));
    SpooledBatch { producer: producer.to_owned(), epoch: 7, records: records.collect() }
}

fn now(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

/// Sends everything. Returns the batches, and what became of the rest.
fn sent(spool: &Spool) -> (Vec<SpooledBatch>, Delivered) {
    let mut all = Vec::new();
    let delivered = spool.deliver(&mut |batch| {
        all.push(batch.clone());
        acknowledged()
    });
    (all, delivered.expect("delivered"))
}

fn acknowledged() -> Sent {
    Sent::Acknowledged { new: 1 }
}

fn kinds(batch: &SpooledBatch) -> Vec<(i64, Kind)> {
    let kind = |(sequence, record): &(i64, StoredRecord)| Some((*sequence, record.get()?.kind));
    batch.records.iter().filter_map(kind).collect()
}

#[test]
fn batches_are_sent_in_their_order_until_they_are_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("state/spool"));
    assert_eq!(sent(&spool), (Vec::new(), Delivered::default()), "without a folder");
    assert!(!spool.exists());
    let first = batch("run/1", &[(Kind::Start, "1")]);
    let second = batch("run/2", &[(Kind::Report, "1"), (Kind::End, "1")]);
    // A clock that goes back does not change the order.
    assert_eq!(spool.add(&first, now(20)).expect("added"), Added::default());
    assert_eq!(spool.add(&second, now(10)).expect("added"), Added::default());
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(spool.folder()), 0o700);
    for file in std::fs::read_dir(spool.folder()).expect("there") {
        assert_eq!(mode(&file.expect("a file").path()), 0o600);
    }
    let mut asked = 0;
    let waiting = spool.deliver(&mut |_| {
        asked += 1;
        Sent::Later("the hub is away".to_owned())
    });
    let waiting = waiting.expect("tried");
    assert_eq!((waiting.waiting.as_deref(), asked), (Some("the hub is away"), 1));
    assert_eq!(spool.len().expect("listed"), 2);
    // Two processes do not send at the same time.
    let inside = spool
        .deliver(&mut |_| Sent::Later(format!("{:?}", spool.deliver(&mut |_| acknowledged()))));
    let inside = inside.expect("tried").waiting.expect("nothing was sent");
    assert!(inside.contains("another process sends them"), "{inside}");
    let (all, delivered) = sent(&spool);
    assert_eq!((all, delivered.records), (vec![first, second], 3));
    assert!(spool.is_empty().expect("listed"));
}

#[test]
fn a_batch_that_is_damaged_or_refused_is_moved_aside_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    for at in 0..3 {
        let one = batch(&format!("run/{at}"), &[(Kind::Start, "1"), (Kind::End, "1")]);
        spool.add(&one, now(at)).expect("added");
    }
    let files = spool.files().expect("listed");
    let path = spool.folder().join(files[1].name.text());
    let mut bytes = std::fs::read(&path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let delivered = spool.deliver(&mut |batch| match batch.producer.as_str() {
        "run/2" => Sent::Refused("the job belongs to another user".to_owned()),
        _ => acknowledged(),
    });
    let delivered = delivered.expect("delivered");
    let why: Vec<&str> = delivered.aside.iter().map(|damage| damage.why.as_str()).collect();
    let expected = [
        "not all of its records can be read",
        "the hub refused it: the job belongs to another user",
    ];
    assert_eq!((why, delivered.records), (expected.to_vec(), 2));
    let aside = spool.folder().join(log::FOLDER);
    assert_eq!(std::fs::read_dir(aside).expect("there").count(), 2);
    assert!(spool.is_empty().expect("listed"));
}

#[test]
fn every_cut_and_every_flipped_byte_of_a_file_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.batch");
    let whole = batch("run/1", &[(Kind::Start, "1"), (Kind::Sample, "1"), (Kind::End, "1")]);
    whole.write(Arc::new(OsDisk), &path).expect("written");
    let bytes = std::fs::read(&path).expect("there");
    assert_eq!(SpooledBatch::read(&path, &bytes).expect("whole"), whole);
    for length in 0..bytes.len() {
        assert!(SpooledBatch::read(&path, &bytes[..length]).is_err(), "cut to {length}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(SpooledBatch::read(&path, &bytes).is_err(), "flipped at {at}");
    }
}

#[test]
fn a_full_spool_drops_the_oldest_measurements_first_and_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let many: Vec<(Kind, &str)> = [(Kind::Start, "1")]
        .into_iter()
        .chain([(Kind::Sample, "1"); 5])
        .chain([(Kind::Sample, "2"), (Kind::Spans, "1"), (Kind::Sample, "2"), (Kind::End, "1")])
        .collect();
    let one = |at: i64| batch(&format!("run/{at}"), &many);
    let bytes = one(0).bytes();
    let spool = Spool { max_bytes: 3 * bytes - 300, ..Spool::new(folder.path().join("spool")) };
    assert_eq!(spool.add(&one(0), now(0)).expect("added").dropped, 0);
    assert_eq!(spool.add(&one(1), now(1)).expect("added").dropped, 0);
    assert_eq!(spool.add(&one(2), now(2)).expect("added").dropped, 7, "those of the first");
    let small =
        [(0, Kind::Start), (5, Kind::Loss), (7, Kind::Spans), (8, Kind::Loss), (9, Kind::End)];
    let (all, _) = sent(&spool);
    assert_eq!(all.iter().map(|batch| batch.records.len()).collect::<Vec<_>>(), [5, 10, 10]);
    assert_eq!(kinds(&all[0]), small);
    let losses = all[0].records.iter().filter_map(|(_, record)| record.get()?.loss().ok());
    let losses: Vec<_> = losses.map(|loss| (loss.records, loss.from_seconds, loss.why)).collect();
    let why = "the hub was away and the spool was full: measurements were dropped";
    assert_eq!(losses, [(5, Some(1e-9), why.to_owned()), (2, Some(6e-9), why.to_owned())]);
    assert!(all[0].records.iter().all(|(_, record)| {
        record.get().is_some_and(|r| r.kind != Kind::Loss || r.check().is_ok())
    }));
}

#[test]
fn starts_and_ends_are_never_dropped_and_a_batch_without_room_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().join("spool"));
    let one = batch("run/1", &[(Kind::Start, "1"), (Kind::Spans, "1"), (Kind::Sample, "1")]);
    spool.max_bytes = one.bytes() + 10;
    spool.add(&one, now(0)).expect("added");
    // Beyond the bound: first the measurements of all batches, then the documents.
    let added = spool.add(&batch("run/2", &[(Kind::Start, "2"), (Kind::End, "2")]), now(1));
    assert_eq!(added.expect("added").dropped, 2);
    let (all, _) = sent(&spool);
    assert_eq!(kinds(&all[0]), [(0, Kind::Start), (1, Kind::Loss), (2, Kind::Loss)]);
    assert_eq!(kinds(&all[1]), [(0, Kind::Start), (1, Kind::End)]);
    // Only records that are kept: the reserve takes them until it is full too.
    let large = batch("run/3", &vec![(Kind::Start, "3"); 3000]);
    let mut added = 0;
    let refused = loop {
        match spool.add(&large, now(2 + added)) {
            Ok(_) => added += 1,
            Err(e) => break e.to_string(),
        }
    };
    assert!(refused.contains("it is full"), "{refused}");
    let (all, _) = sent(&spool);
    assert_eq!(all.len() as i64, added, "what was added is there");
    let huge = batch("run/4", &vec![(Kind::Start, "3"); MAX_BATCH_BYTES / 300]);
    let refused = spool.add(&huge, now(0)).expect_err("too large").to_string();
    assert!(refused.contains("a batch has at most"), "{refused}");
}

/// Returns the next records of a producer that counts.
fn next_of(producer: &str, epoch: i64, sequences: std::ops::Range<i64>) -> SpooledBatch {
    let records = sequences.map(|at| (at, record(Kind::Sample, "1", at))).collect();
    SpooledBatch { producer: producer.to_owned(), epoch, records }
}

#[test]
fn small_batches_of_one_epoch_are_joined_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    let files = || spool.len().expect("listed");
    let each = 3;
    for at in 0..400 {
        spool.join(&next_of("a", 7, at * each..(at + 1) * each), now(at)).expect("joined");
    }
    let bytes: u64 = spool.files().expect("listed").iter().map(|file| file.bytes).sum();
    let least = bytes.div_ceil(JOINED_BYTES) as usize;
    assert!(least >= 3 && (least..=least + 1).contains(&files()), "{bytes} bytes in {}", files());
    let before = files();
    // Another epoch, another producer, and sequences that do not come after the last one.
    for other in [next_of("a", 8, 0..2), next_of("b", 8, 2..4), next_of("b", 8, 3..5)] {
        spool.join(&other, now(200)).expect("added");
    }
    assert_eq!(files(), before + 3);
    spool.add(&next_of("b", 8, 5..6), now(300)).expect("added");
    assert_eq!(files(), before + 4, "only `join` joins");
    // A process that sends the newest file has it as it is.
    let inside = spool.deliver(&mut |_| {
        spool.join(&next_of("b", 8, 6..7), now(400)).expect("added");
        Sent::Later(String::new())
    });
    assert!(inside.expect("tried").waiting.is_some());
    assert_eq!(files(), before + 5);
    let (all, _) = sent(&spool);
    let of_a = all.iter().filter(|batch| batch.epoch == 7).flat_map(kinds);
    let expected: Vec<_> = (0..400 * each).map(|at| (at, Kind::Sample)).collect();
    assert_eq!(of_a.collect::<Vec<_>>(), expected);
}

#[test]
fn joined_batches_are_sent_once_or_counted_whatever_crashes() {
    for seed in 0..SEEDS / 4 {
        let (disk, mut random) = (SimulatedDisk::new(seed), Random::new(!seed));
        let folder = PathBuf::from("/state/spool");
        let spool = Spool { disk: Arc::new(disk.clone()), folder, max_bytes: 9_000 };
        let (mut hub, mut next, mut added, mut is_unsent) = (Hub::default(), 0, 0, false);
        for step in 0..40 {
            let writes = if random.once_in(6) { 4 } else { 0 };
            disk.fail(Failures { writes, ..Failures::default() });
            match random.below(6) {
                0 => {
                    disk.crash();
                    // The process that knew it has ended.
                    is_unsent = false;
                }
                1 => {
                    is_unsent = false;
                    let mut left = random.below(3);
                    let result = spool.deliver(&mut |batch| {
                        hub.store(batch);
                        left = left.saturating_sub(1);
                        if left == 0 {
                            Sent::Later(String::new())
                        } else {
                            Sent::Acknowledged { new: 1 }
                        }
                    });
                    let aside = result.map(|delivered| delivered.aside).unwrap_or_default();
                    assert_eq!(aside, [], "seed {seed}");
                }
                _ => {
                    let batch = next_of("a", 7, next..next + 1 + random.below(3) as i64);
                    let result = match is_unsent {
                        true => spool.join(&batch, now(step)),
                        false => spool.add(&batch, now(step)),
                    };
                    // A batch that was refused may be there all the same, so its sequences are not used again.
                    next += batch.records.len() as i64;
                    is_unsent = result.is_ok();
                    added += result.map_or(0, |_| batch.records.len() as u64);
                }
            }
        }
        disk.fail(Failures::default());
        disk.crash();
        let delivered = spool.deliver(&mut |batch| {
            hub.store(batch);
            Sent::Acknowledged { new: 1 }
        });
        assert_eq!(delivered.expect("delivered").waiting, None, "seed {seed}");
        let stored = hub.stored.remove("a").unwrap_or_default();
        let counted = stored.iter().map(|(_, kind, lost)| match kind {
            Kind::Loss => *lost,
            _ => 1,
        });
        let counted: u64 = counted.sum();
        assert!((added..=next as u64).contains(&counted), "seed {seed}: {counted} of {added}");
    }
}

#[test]
fn threads_add_and_send_at_the_same_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    let (threads, each) = (4, 25);
    let mut received = BTreeMap::new();
    std::thread::scope(|scope| {
        let adding = (0..threads).map(|thread| {
            let spool = spool.clone();
            scope.spawn(move || {
                for at in 0..each {
                    let name = format!("run/{thread}/{at}");
                    let batch = batch(&name, &[(Kind::Start, "1")]);
                    // On a slow disk the others may hold the lock for as long as a producer waits.
                    while let Err(e) = spool.add(&batch, now(1)) {
                        assert!(matches!(e, Error::Busy(_)), "{e}");
                    }
                }
            })
        });
        let adding: Vec<_> = adding.collect();
        let mut take = || {
            let (all, delivered) = sent(&spool);
            assert_eq!(delivered.aside, []);
            all.into_iter().for_each(|b| *received.entry(b.producer).or_insert(0) += 1);
        };
        while adding.iter().any(|thread| !thread.is_finished()) {
            take();
        }
        take();
    });
    assert_eq!(received.len(), threads * each);
    assert!(received.values().all(|times| *times == 1), "{received:?}");
}

/// A hub that stores a sequence once, as the intake does.
#[derive(Default)]
struct Hub {
    last: HashMap<String, i64>,
    /// Kinds and sequences of the records, with the records that losses count.
    stored: HashMap<String, Vec<(i64, Kind, u64)>>,
}

impl Hub {
    fn store(&mut self, batch: &SpooledBatch) {
        for (sequence, record) in &batch.records {
            let last = self.last.entry(batch.producer.clone()).or_insert(i64::MIN);
            if *sequence <= *last {
                continue;
            }
            *last = *sequence;
            let record = record.get().expect("a record");
            let lost = record.loss().map_or(0, |loss| loss.records);
            let stored = self.stored.entry(batch.producer.clone()).or_default();
            stored.push((*sequence, record.kind, lost));
        }
    }
}

/// A batch whose number of measurements and documents differs, so that some are worth dropping.
fn random_batch(name: &str, random: &mut Random) -> SpooledBatch {
    let mut records = vec![(Kind::Start, "1")];
    for _ in 0..random.below(8) {
        let kind = if random.once_in(3) { Kind::Spans } else { Kind::Sample };
        records.push((kind, ["1", "2"][random.below(2) as usize]));
    }
    if random.once_in(2) {
        records.push((Kind::End, "1"));
    }
    batch(name, &records)
}

fn crash_run(seed: u64) {
    let (disk, mut random) = (SimulatedDisk::new(seed), Random::new(!seed));
    let spool = Spool {
        disk: Arc::new(disk.clone()),
        folder: PathBuf::from("/state/spool"),
        max_bytes: 6_000,
    };
    let (mut hub, mut added, mut maybe) = (Hub::default(), Vec::new(), Vec::new());
    for step in 0..40 {
        if random.once_in(4) {
            let once = |random: &mut Random| if random.once_in(2) { 10 } else { 0 };
            let (writes, syncs) = (once(&mut random), once(&mut random));
            disk.fail(Failures { writes, syncs, names: once(&mut random) });
        }
        match random.below(4) {
            0 => disk.crash(),
            1 => {
                // The acknowledgement may be lost, and the process or the power may end before the file is removed.
                let mut left = random.below(4);
                let result = spool.deliver(&mut |batch| {
                    hub.store(batch);
                    if left == 0 {
                        return Sent::Later("the connection is gone".to_owned());
                    }
                    left -= 1;
                    acknowledged()
                });
                let aside = result.map(|delivered| delivered.aside).unwrap_or_default();
                assert_eq!(aside, [], "seed {seed}");
            }
            _ => {
                let batch = random_batch(&format!("p{step}"), &mut random);
                let of = if spool.add(&batch, now(step)).is_ok() { &mut added } else { &mut maybe };
                of.push(batch);
            }
        }
    }
    disk.fail(Failures::default());
    disk.crash();
    let delivered = spool.deliver(&mut |batch| {
        hub.store(batch);
        acknowledged()
    });
    assert_eq!(delivered.expect("delivered").waiting, None, "seed {seed}");
    let none = Vec::new();
    for (batch, is_added) in added.iter().map(|b| (b, true)).chain(maybe.iter().map(|b| (b, false)))
    {
        let stored = hub.stored.get(&batch.producer).unwrap_or(&none);
        if stored.is_empty() && !is_added {
            continue;
        }
        let lost: u64 = stored.iter().map(|(_, _, lost)| lost).sum();
        let whole = stored.iter().filter(|(_, kind, _)| *kind != Kind::Loss).count() as u64;
        assert_eq!(
            whole + lost,
            batch.records.len() as u64,
            "seed {seed}: {:?} is {stored:?}",
            kinds(batch)
        );
        for (sequence, kind) in kinds(batch) {
            let is_there = stored.iter().any(|(at, found, _)| (*at, *found) == (sequence, kind));
            let may_be_dropped = matches!(kind, Kind::Sample | Kind::Spans);
            assert!(
                is_there || may_be_dropped,
                "seed {seed}: {kind:?} {sequence} of {}",
                batch.producer
            );
        }
    }
}

#[test]
fn spooled_records_are_sent_once_or_counted_whatever_crashes() {
    rounds("SKOPOS_CRASH_SEEDS", SEEDS).for_each(crash_run);
}
