//! A primary and its replica on disks that fail and forget, with a connection that ends at any message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::keeper::{Marks, finish};
use super::{Keeper, Keeping, Message, Reply, Sender, TakeError};
use crate::jobs::intake::{Intake, IntakeLimits, PushOutcome, Pushed, Refusal};
use crate::jobs::lts::{Lts, Retention};
use crate::jobs::part::{JobPart, StoredRecord};
use crate::log::Disk as _;
use crate::log::simulated::{Failures, Random, SimulatedDisk};
use crate::rounds::{rounds, rounds_in};

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 100;

const JOBS: [&str; 3] = ["1", "a/b", "it's"];
const PRIMARY: &str = "/p";
const REPLICA: &str = "/r";

fn limits() -> IntakeLimits {
    IntakeLimits { settle: Duration::ZERO, seal_every: Duration::ZERO, ..IntakeLimits::default() }
}

fn keeping() -> Keeping<'static> {
    Keeping { site: "s", storage: 7, id: 9 }
}

fn id(job: &str) -> JobId {
    JobId::new(job, 0).expect("an id")
}

/// A pushed record, and whether it was acknowledged at the level `replica`.
#[derive(Clone, Debug)]
struct Known {
    job: usize,
    producer: usize,
    epoch: i64,
    sequence: i64,
    is_replicated: bool,
}

impl Known {
    /// The content names the record.
    fn name(&self) -> String {
        format!("[\"p{}\",{},{}]", self.producer, self.epoch, self.sequence)
    }
}

struct Primary {
    intake: Mutex<Intake>,
    lts: Lts,
}

struct Run {
    random: Random,
    now: i64,
    disk: SimulatedDisk,
    primary: Option<Primary>,
    sender: Sender,
    stuck: Vec<JobPart>,
    other: SimulatedDisk,
    keeper: Option<Keeper>,
    keeper_limits: IntakeLimits,
    /// Messages on their way; the connection is open while both ends are there.
    there: VecDeque<Vec<u8>>,
    back: VecDeque<Vec<u8>>,
    is_connected: bool,
    producers: Vec<(i64, i64)>,
    pushed: Vec<Known>,
}

fn open_primary(disk: &SimulatedDisk, now: Timestamp) -> Primary {
    disk.fail(Failures::default());
    let shared = Arc::new(disk.clone());
    let lts = Lts::on(shared.clone(), &Path::new(PRIMARY).join("lts")).expect("opened");
    let folder = Path::new(PRIMARY).join("sts");
    let intake = Intake::on(shared, &folder, limits(), &Marks(&lts), now).expect("opened");
    Primary { intake: Mutex::new(intake), lts }
}

fn open_sender(disk: &SimulatedDisk) -> Sender {
    let folder = Path::new(PRIMARY).join("returning");
    Sender::on(Arc::new(disk.clone()), &folder).expect("opened")
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x4e9);
        let (disk, other) = (SimulatedDisk::new(seed), SimulatedDisk::new(!seed));
        let producers = vec![(1, 0); 1 + random.below(3) as usize];
        let primary = Some(open_primary(&disk, Timestamp::from_nanos(1)));
        let sender = open_sender(&disk);
        let mut keeper_limits = limits();
        if random.once_in(3) {
            keeper_limits.max_job_records = 1 + random.below(12) as usize;
        }
        Self {
            random,
            now: 1,
            disk,
            primary,
            sender,
            stuck: Vec::new(),
            other,
            keeper: None,
            keeper_limits,
            there: VecDeque::new(),
            back: VecDeque::new(),
            is_connected: false,
            producers,
            pushed: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn push(&mut self) {
        self.now += 1;
        let producer = self.random.below(self.producers.len() as u64) as usize;
        if self.random.once_in(60) {
            self.producers[producer] = (self.producers[producer].0 + 1, 0);
        }
        let job = self.random.below(JOBS.len() as u64) as usize;
        let (epoch, next) = self.producers[producer];
        let sequence = next + self.random.below(3) as i64;
        let known = Known { job, producer, epoch, sequence, is_replicated: false };
        let now = self.now();
        let Some(Primary { intake, lts }) = &mut self.primary else { return };
        match push(intake.get_mut().expect("no panic"), &known, lts, now) {
            Ok(PushOutcome::Accepted) => {
                self.producers[producer].1 = sequence + 1;
                self.pushed.push(known);
            }
            // The process ended before it had acknowledged the record.
            Ok(PushOutcome::Duplicate) => self.producers[producer].1 = sequence + 1,
            Err(Refusal::Full(_) | Refusal::Uncommitted) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    fn commit(&mut self) {
        let now = self.now();
        let Some(Primary { intake, lts }) = &mut self.primary else { return };
        let intake = intake.get_mut().expect("no panic");
        let _ = intake.commit();
        if self.random.once_in(3) {
            let _ = intake.rotate_now(now);
        }
        if intake.is_lost() {
            self.disk.fail(Failures::default());
            intake.reopen(&Marks(lts), now).expect("opened anew");
            self.stuck.clear();
            self.forget_lost();
        }
    }

    fn seal(&mut self) {
        let now = self.now();
        let Some(Primary { intake, lts }) = &mut self.primary else { return };
        let intake = intake.get_mut().expect("no panic");
        let mut parts = std::mem::take(&mut self.stuck);
        parts.retain(|part| intake.job(&part.id).is_some_and(|job| job.next_part() == part.number));
        if intake.commit().is_ok() {
            for id in intake.due(now, 1 + self.random.below(3) as usize, u64::MAX) {
                let Ok(Some(part)) = intake.part(&id) else { continue };
                match part.read() {
                    Ok(part) => parts.push(part),
                    Err(_) => intake.release(&id),
                }
            }
        }
        for part in parts {
            let sealed = lts.seal(std::slice::from_ref(&part), now);
            match sealed {
                Ok(_) => {
                    let entry = intake.entry_before(&part).expect("an open job");
                    let _ = intake.sealed(&part, entry);
                    let is_open =
                        intake.job(&part.id).is_some_and(|job| job.next_part() == part.number);
                    if is_open {
                        self.stuck.push(part);
                    }
                }
                Err(_) => self.stuck.push(part),
            }
        }
        // A merge: the parts of a segment go to another one.
        if self.random.once_in(4) {
            let names: Vec<String> = lts.known_names().into_iter().collect();
            if !names.is_empty() {
                let name = &names[self.random.below(names.len() as u64) as usize];
                let _ = lts.repair(name, now);
            }
        }
    }

    /// Opens the connection, if both ends are there.
    fn connect(&mut self) {
        if self.keeper.is_none() {
            self.other.fail(Failures::default());
            let disk = Arc::new(self.other.clone());
            let (folder, now) = (Path::new(REPLICA), self.now());
            let opened = Keeper::on(disk, folder, keeping(), self.keeper_limits, now);
            self.keeper = Some(opened.expect("opened"));
        }
        if !self.is_connected {
            self.is_connected = true;
            self.sender.reset();
            let welcome = self.keeper.as_mut().map(Keeper::begin);
            self.back.extend(welcome.map(|welcome| welcome.encode()));
        }
    }

    /// Ends the connection. What is on its way is lost.
    fn disconnect(&mut self) {
        (self.is_connected, self.there, self.back) = (false, VecDeque::new(), VecDeque::new());
        self.sender.reset();
    }

    /// Carries some messages.
    fn carry(&mut self) {
        for _ in 0..self.random.below(60) {
            if !self.is_connected {
                return;
            }
            match self.random.below(5) {
                0..2 => {
                    let Some(Primary { intake, lts }) = &self.primary else { return };
                    // A disk that fails is tried again.
                    if let Ok(Some(message)) = self.sender.next(intake, lts) {
                        self.there.push_back(message.encode());
                    }
                }
                2 => {
                    let Some(reply) = self.back.pop_front() else { continue };
                    let Some(Primary { intake, lts }) = &self.primary else { return };
                    let reply = Reply::decode(&reply).expect("a reply");
                    if self.sender.take(reply, intake, lts).is_err() {
                        self.disconnect();
                    }
                }
                _ => self.receive(),
            }
        }
    }

    fn receive(&mut self) {
        let now = self.now();
        let Some(keeper) = &mut self.keeper else { return };
        let Some(message) = self.there.pop_front() else { return };
        let message = Message::decode(&message).expect("a message");
        match keeper.take(&message, now) {
            Ok(replies) => self.back.extend(replies.iter().map(Reply::encode)),
            Err(TakeError::Invalid(why)) => panic!("{why}"),
            Err(TakeError::Storage(_)) => return self.disconnect(),
        }
        if self.there.is_empty() || self.random.once_in(3) {
            match keeper.commit(now) {
                Ok(reply) => self.back.extend(reply.iter().map(Reply::encode)),
                Err(_) => self.disconnect(),
            }
        }
    }

    /// Notes what is acknowledged at the level `replica`.
    fn note(&mut self) {
        let Some(Primary { intake, .. }) = &mut self.primary else { return };
        let intake = intake.get_mut().expect("no panic");
        for known in &mut self.pushed {
            let progress = intake.progress(&format!("p{}", known.producer));
            let reached = progress.map(|progress| progress.get());
            known.is_replicated |=
                reached.is_some_and(|it| it.epoch == known.epoch && known.sequence <= it.replica);
        }
    }

    /// Ends the process of the primary, and loses power at times. Records that were not durable are gone.
    fn restart_primary(&mut self) {
        self.disconnect();
        self.primary = None;
        self.stuck.clear();
        if self.random.once_in(2) {
            self.disk.crash();
        }
        self.primary = Some(open_primary(&self.disk, self.now()));
        self.sender = open_sender(&self.disk);
        self.forget_lost();
    }

    /// Forgets the pushed records that the primary does not have any more: producers send them again, or others.
    fn forget_lost(&mut self) {
        let Some(Primary { intake, lts }) = &mut self.primary else { return };
        let stored = stored(intake.get_mut().expect("no panic"), lts);
        self.pushed.retain(|known| {
            let is_there = stored.contains_key(&known.name());
            assert!(is_there || !known.is_replicated, "{known:?} is lost at the primary");
            is_there
        });
    }

    fn restart_replica(&mut self) {
        self.disconnect();
        self.keeper = None;
        if self.random.once_in(2) {
            self.other.crash();
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..10 => {
                (0..self.random.below(20)).for_each(|_| self.push());
                self.commit();
            }
            10..13 => self.commit(),
            13..18 => self.seal(),
            18..24 => self.connect(),
            24..34 => self.carry(),
            34 => self.disconnect(),
            35 => self.restart_primary(),
            36 => self.restart_replica(),
            37 => self.disk.fail(Failures { writes: 9, syncs: 9, names: 9 }),
            38 => self.other.fail(Failures { writes: 9, syncs: 9, names: 9 }),
            _ => {
                self.disk.fail(Failures::default());
                self.other.fail(Failures::default());
            }
        }
        self.note();
        if self.random.once_in(3) {
            let (intake, lts) = self.open_copy();
            self.check(&stored(&mut { intake }, &lts));
        }
    }

    /// Opens what the disk of the replica has now, after a loss of power at times. The replica itself goes on.
    fn open_copy(&mut self) -> (Intake, Lts) {
        let disk = self.other.copy();
        disk.fail(Failures::default());
        if self.random.once_in(2) {
            disk.crash();
        }
        let disk: Arc<dyn crate::log::Disk> = Arc::new(disk);
        let folder = Path::new(REPLICA).join("sts");
        let lts = finish(&disk, Path::new(REPLICA)).expect("opened");
        let opened = Intake::on(disk, &folder, limits(), &Marks(&lts), self.now());
        (opened.expect("opened"), lts)
    }

    /// Loses the primary. Returns the number of records that were acknowledged at the level `replica`.
    fn take_over(mut self) -> usize {
        self.note();
        self.disconnect();
        (self.primary, self.keeper) = (None, None);
        let (mut intake, lts) = self.open_copy();
        let now = self.now();
        self.check(&stored(&mut intake, &lts));
        // Producers send again what was acknowledged to them, and more.
        self.pushed.sort_by_key(|known| (known.producer, known.epoch, known.sequence));
        for known in &self.pushed {
            let pushed = push(&mut intake, known, &lts, now);
            let is_known =
                matches!(pushed, Ok(PushOutcome::Duplicate) | Err(Refusal::Stale { .. }));
            assert!(is_known || !known.is_replicated, "{known:?} {pushed:?}");
        }
        intake.commit().expect("written");
        self.check(&stored(&mut intake, &lts));
        self.pushed.iter().filter(|known| known.is_replicated).count()
    }

    fn check(&self, stored: &BTreeMap<String, usize>) {
        for known in self.pushed.iter().filter(|known| known.is_replicated) {
            let name = known.name();
            let job = stored.get(&name);
            assert_eq!(job, Some(&known.job), "{name} was acknowledged as replicated and is lost");
        }
    }
}

fn push(
    intake: &mut Intake,
    known: &Known,
    lts: &Lts,
    now: Timestamp,
) -> Result<PushOutcome, Refusal> {
    let (producer, content) = (format!("p{}", known.producer), known.name());
    let (job, content) = (JOBS[known.job], content.as_bytes());
    let record = JobRecord { kind: Kind::Spans, job, generation: 0, node: "", time: now, content };
    let (epoch, sequence) = (known.epoch, known.sequence);
    intake.push(&Pushed { producer: &producer, epoch, sequence, record }, &Marks(lts), now)
}

/// Returns the jobs of all readable records, by their names. No record is there twice.
fn stored(intake: &mut Intake, lts: &Lts) -> BTreeMap<String, usize> {
    let mut stored = BTreeMap::new();
    for (at, job) in JOBS.iter().enumerate() {
        let sealed = lts.read(&id(job)).expect("readable");
        let open = intake.unsealed(&id(job)).and_then(|it| it.read()).expect("readable");
        for record in sealed.iter().chain(&open).filter_map(StoredRecord::get) {
            let name = String::from_utf8_lossy(record.content).into_owned();
            assert_eq!(stored.insert(name.clone(), at), None, "{name} is there twice");
        }
    }
    stored
}

#[test]
fn records_that_are_acknowledged_as_replicated_outlive_the_primary_exactly_once() {
    let (mut replicated, mut runs) = (0, 0);
    for seed in rounds("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            let steps = 20 + run.random.below(150);
            (0..steps).for_each(|_| run.step());
            run.take_over()
        });
        assert!(run.is_ok(), "seed {seed}");
        replicated += run.unwrap_or_default();
        runs += 1;
    }
    assert!(replicated > runs, "{replicated} records were acknowledged as replicated");
}

/// Carries messages until there are none.
fn settle(run: &mut Run) {
    run.connect();
    let mut quiet = 0;
    while quiet < 3 {
        quiet = if run.exchange() { 0 } else { quiet + 1 };
    }
}

impl Run {
    /// Carries a message and its answers. Returns false if there was none.
    fn exchange(&mut self) -> bool {
        let Some(Primary { intake, lts }) = &self.primary else { return false };
        let message = self.sender.next(intake, lts).expect("readable");
        let is_there = message.is_some() || !self.back.is_empty();
        self.there.extend(message.map(|message| message.encode()));
        self.receive();
        while let Some(reply) = self.back.pop_front() {
            let Some(Primary { intake, lts }) = &self.primary else { return false };
            let reply = Reply::decode(&reply).expect("a reply");
            let changes = self.sender.take(reply, intake, lts).expect("taken");
            let mut intake = intake.lock().expect("no panic");
            if changes.is_some_and(|changes| intake.overlaps(&changes.restored)) {
                intake.commit().expect("written");
                intake.reopen(&Marks(lts), Timestamp::from_nanos(self.now)).expect("opened");
            }
        }
        self.note();
        is_there
    }
}

fn filled(seed: u64) -> Run {
    let mut run = Run::new(seed);
    for _ in 0..4 {
        (0..20).for_each(|_| run.push());
        run.commit();
        (0..JOBS.len()).for_each(|_| run.seal());
        settle(&mut run);
    }
    run
}

#[test]
fn a_damaged_segment_comes_back_from_the_replica() {
    for seed in rounds_in("SKOPOS_CRASH_SEEDS", SEEDS, 8) {
        let mut run = filled(seed);
        let folder = Path::new(PRIMARY).join("lts");
        let before = {
            let Primary { intake, lts } = run.primary.as_mut().expect("open");
            stored(intake.get_mut().expect("no panic"), lts)
        };
        // The lock of the simulated disk is not a file, so every file is a segment.
        let (path, _) = run.disk.flip(&folder).expect("a segment");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if run.random.once_in(2) {
            // The process finds it at its start, if the metadata are damaged.
            run.restart_primary_damaged();
        }
        let Primary { lts, .. } = run.primary.as_ref().expect("open");
        let mut at = None;
        while let Some(next) = lts.verify_next(at).expect("readable") {
            at = Some(next);
        }
        assert!(lts.damaged().iter().any(|it| it.file == name), "seed {seed}");
        run.sender.look();
        settle(&mut run);
        assert_eq!(run.sender.standing().restored, 1, "seed {seed}: {:?}", run.sender.standing());
        let Primary { intake, lts } = run.primary.as_mut().expect("open");
        assert_eq!(lts.verify().expect("readable"), [], "seed {seed}");
        let aside = run.disk.list(&folder.join("quarantine")).expect("listed");
        assert_eq!(aside.iter().map(|file| &file.name).collect::<Vec<_>>(), [&name]);
        let after = stored(intake.get_mut().expect("no panic"), lts);
        assert_eq!(before.keys().collect::<BTreeSet<_>>(), after.keys().collect(), "seed {seed}");
        // The replica keeps what the primary has.
        settle(&mut run);
        run.note();
        run.take_over();
    }
}

impl Run {
    /// Ends the process of the primary, whose damaged segment hides records until it is restored.
    fn restart_primary_damaged(&mut self) {
        self.disconnect();
        self.primary = None;
        self.primary = Some(open_primary(&self.disk, self.now()));
        self.sender = open_sender(&self.disk);
    }
}

#[test]
fn a_replica_follows_retention_and_forgets_sealed_records() {
    let mut run = filled(3);
    let size = run.keeper.as_ref().expect("open").size();
    let Primary { lts, intake } = run.primary.as_mut().expect("open");
    assert_eq!(size.1, lts.size().0);
    assert_eq!(intake.get_mut().expect("no panic").jobs().len(), 0, "all is sealed");
    assert_eq!(run.keeper.as_ref().expect("open").open_jobs(), 0, "the replica forgets it too");
    let limits = Retention { max_age: Duration::from_secs(1), max_bytes: 0 };
    lts.retain(&limits, Timestamp::from_nanos(1));
    assert_eq!(lts.size().0, 0);
    settle(&mut run);
    assert_eq!(run.keeper.as_ref().expect("open").size().1, 0);
}

#[test]
fn another_storage_of_the_same_hub_does_not_replace_the_copy() {
    let mut run = filled(4);
    run.keeper = None;
    let disk = Arc::new(run.other.clone());
    let other = Keeping { storage: 8, ..keeping() };
    let opened = Keeper::on(disk, Path::new(REPLICA), other, limits(), Timestamp::from_nanos(9));
    let why = opened.expect_err("refused").to_string();
    assert!(why.contains("another storage"), "{why}");
}

#[test]
fn records_after_a_log_that_is_gone_wait_for_its_segment() {
    // The segments have the first log too, or the second one alone.
    for sealed in [1, 2] {
        let mut run = Run::new(7);
        settle(&mut run);
        let jobs = match sealed {
            1 => [2, 0, 1],
            _ => [0, 1, 2],
        };
        for (sequence, job) in (0..).zip(jobs) {
            let known = Known { job, producer: 0, epoch: 1, sequence, is_replicated: false };
            let now = run.now();
            let Primary { intake, lts } = run.primary.as_mut().expect("open");
            let intake = intake.get_mut().expect("no panic");
            push(intake, &known, lts, now).expect("stored");
            run.pushed.push(known);
            intake.commit().expect("written");
            if sequence == 0 {
                // The reader of the logs is in the first one.
                let Primary { intake, lts } = run.primary.as_ref().expect("open");
                let message = run.sender.next(intake, lts).expect("readable").expect("a record");
                run.there.push_back(message.encode());
            }
            if sequence < 2 {
                let Primary { intake, .. } = run.primary.as_mut().expect("open");
                intake.get_mut().expect("no panic").rotate_now(now).expect("rotated");
            }
        }
        let (now, Primary { intake, lts }) = (run.now(), run.primary.as_mut().expect("open"));
        let intake = intake.get_mut().expect("no panic");
        for id in intake.due(now, sealed, u64::MAX) {
            let part = intake.part(&id).expect("opened").expect("due").read().expect("read");
            lts.seal(std::slice::from_ref(&part), now).expect("sealed");
            let entry = intake.entry_before(&part).expect("an open job");
            intake.sealed(&part, entry).expect("forgotten");
        }
        while !run.pushed.iter().all(|known| known.is_replicated) {
            run.exchange();
            let (mut intake, lts) = run.open_copy();
            run.check(&stored(&mut intake, &lts));
        }
    }
}

#[test]
fn records_go_out_once_the_own_disk_has_them() {
    let mut run = Run::new(8);
    settle(&mut run);
    run.push();
    run.disk.fail(Failures { syncs: 1, ..Failures::default() });
    let Primary { intake, lts } = run.primary.as_mut().expect("open");
    intake.get_mut().expect("no panic").commit().expect_err("the sync fails");
    assert_eq!(run.sender.next(intake, lts).expect("readable"), None);
    run.disk.fail(Failures::default());
    intake.get_mut().expect("no panic").commit().expect("written");
    let message = run.sender.next(intake, lts).expect("readable");
    assert!(matches!(message, Some(Message::Records { .. })), "{message:?}");
}

#[test]
fn a_full_replica_says_so_and_segments_make_room() {
    let mut run = Run::new(5);
    run.keeper_limits = IntakeLimits { max_job_records: 5, ..limits() };
    (0..40).for_each(|_| run.push());
    run.commit();
    run.connect();
    for _ in 0..40 {
        let Some(Primary { intake, lts }) = &run.primary else { return };
        run.there.extend(run.sender.next(intake, lts).expect("readable").map(|it| it.encode()));
        run.receive();
        while let Some(reply) = run.back.pop_front() {
            let Some(Primary { intake, lts }) = &run.primary else { return };
            let reply = Reply::decode(&reply).expect("a reply");
            run.sender.take(reply, intake, lts).expect("taken");
        }
        if run.sender.standing().full.is_some() {
            break;
        }
    }
    assert!(run.sender.standing().full.is_some());
    run.note();
    assert!(run.pushed.iter().all(|known| !known.is_replicated));
    // The stream goes on: the segments have the records, and the replica forgets its own.
    (0..4).for_each(|_| run.seal());
    settle(&mut run);
    run.note();
    assert!(run.pushed.iter().all(|known| known.is_replicated));
    run.take_over();
}

#[test]
fn a_segment_that_arrives_damaged_is_refused_and_does_not_count_as_there() {
    let run = filled(6);
    let Primary { lts, .. } = run.primary.as_ref().expect("open");
    let name = lts.known_names().into_iter().next().expect("a segment");
    let file = lts.open_to_copy(&name).expect("opened").expect("there");
    let mut bytes = vec![0; file.length().expect("known") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    let (disk, now) = (Arc::new(SimulatedDisk::new(1)), run.now());
    let mut keeper =
        Keeper::on(disk, Path::new(REPLICA), keeping(), limits(), now).expect("opened");
    let mut take = |message: &Message| keeper.take(message, now).expect("taken");
    let list = Message::List { names: vec![name.clone()], is_last: true };
    let missing = [Reply::Missing { names: vec![name.clone()] }];
    assert_eq!(take(&list), missing);
    let (total, middle) = (bytes.len() as u64, bytes.len() / 2);
    bytes[middle] ^= 1;
    let chunk = Message::Chunk { name: name.clone(), at: 0, total, bytes: bytes.clone() };
    assert!(matches!(&take(&chunk)[..], [Reply::Refused { .. }]));
    let fetch = Message::Fetch { name: name.clone(), at: 0 };
    assert_eq!(take(&fetch), [Reply::NoCopy { name: name.clone() }]);
    assert_eq!(take(&Message::Finish), [Reply::Finished]);
    bytes[middle] ^= 1;
    assert_eq!(take(&list), missing);
    assert_eq!(take(&Message::Chunk { name, at: 0, total, bytes }), []);
    assert_eq!(take(&Message::Finish), [Reply::Finished]);
    assert!(matches!(&take(&fetch)[..], [Reply::Piece { .. }]));
}
