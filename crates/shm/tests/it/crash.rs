//! A publisher is killed with SIGKILL at a thousand random points while readers check every value.
//!
//! Several publishers with different names share one directory. Each is killed and started again, so
//! each start removes dead segments while other publishers work. `SKOPOS_TEST_KILLS` sets the number of
//! kills, `SKOPOS_TEST_SEED` repeats the delays of a run.

use std::os::unix::process::ExitStatusExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::Duration;

use skopos_model::{Sample, SplitMix64};
use skopos_shm::{Error, Publisher, Segment, Vertex};

use crate::crash_child::{LIFE, NAME};
use crate::crash_reader::{Checked, Reader};
use crate::support::{Kill, PATIENCE, eventually, runtime_dir, seed, this_binary};

const KILLS: u64 = 1000;
/// Number of publishers at a time. Each has three threads of its own.
const LANES: u64 = 3;
/// Number of readers of each publisher.
const READERS: u64 = 2;
/// Longest life after the segment exists.
const LONGEST_LIFE_US: usize = 30_000;
/// Longest time from the start of a process to its kill, if it is killed while it makes its segment.
const LONGEST_BIRTH_US: usize = 8_000;

#[derive(Debug, Default)]
struct Tally {
    checked: Checked,
    lives: AtomicU64,
    killed: AtomicU64,
    killed_at_birth: AtomicU64,
    reread: AtomicU64,
}

/// One name under which publishers live and die.
struct Lane {
    dir: PathBuf,
    name: String,
    random: SplitMix64,
    tally: Arc<Tally>,
    /// The remains of the last life: its vertices and the latest sample of each.
    remains: Vec<(Vertex, Option<Sample>)>,
}

impl Lane {
    /// One life, from start to kill. Publishers killed while they make their segment count too.
    fn live_and_die(&mut self) {
        let life = self.tally.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let mut child = this_binary("crash_child::publish_until_killed", &self.dir);
        let child = child.env(LIFE, life.to_string()).env(NAME, &self.name);
        let mut child = Kill(child.spawn().expect("this binary runs"));
        if self.random.below(4) == 0 {
            sleep(Duration::from_micros(self.random.below(LONGEST_BIRTH_US) as u64));
            self.kill(&mut child);
            self.tally.killed_at_birth.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let path = self.dir.join(format!("{}.seg", self.name));
        let segment = eventually("the publisher's segment", || {
            let ended = child.0.try_wait().expect("our own child");
            assert!(ended.is_none(), "the publisher of life {life} ended: {ended:?}");
            Segment::open(&path).ok().filter(|s| s.node() == format!("life-{life}"))
        });
        assert!(segment.is_alive());
        self.reread();
        let dead = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    let (segment, checked) = (segment.clone(), &self.tally.checked);
                    let (dead, mut random) = (&dead, SplitMix64::new(self.random.bits()));
                    scope.spawn(move || {
                        let reader = Reader::new(segment, life, dead, checked)?;
                        Some(reader.run(dead, &mut random))
                    })
                })
                .collect();
            sleep(Duration::from_micros(self.random.below(LONGEST_LIFE_US) as u64));
            self.kill(&mut child);
            assert!(!segment.is_alive(), "a killed publisher is dead at once");
            dead.store(true, Ordering::Release);
            for reader in readers {
                let vertices = reader.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
                self.remains = latest_of(vertices.unwrap_or_default());
            }
        });
    }

    fn kill(&self, child: &mut Kill) {
        child.0.kill().expect("our own child");
        let status: ExitStatus = child.0.wait().expect("our own child");
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status:?}");
        self.tally.killed.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the dead segment again: its file is removed by now, but a mapping still has the same values.
    fn reread(&mut self) {
        let now = latest_of(self.remains.iter().map(|(vertex, _)| vertex.clone()).collect());
        for ((vertex, before), (_, now)) in self.remains.iter().zip(now) {
            // The next publisher of the name closes what is left of the last one.
            let is_gone = matches!(vertex.latest(), Err(Error::Gone(_)));
            assert!(is_gone || *before == now, "{} changed after its death", vertex.topic());
            self.tally.reread.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn latest_of(vertices: Vec<Vertex>) -> Vec<(Vertex, Option<Sample>)> {
    let latest = |vertex: &Vertex| vertex.latest().ok().map(|reading| reading.sample);
    vertices.into_iter().map(|vertex| (vertex.clone(), latest(&vertex))).collect()
}

/// Runs lives until enough publishers were killed, and reports each death; then, or after a failure,
/// closes the channel.
fn run_lane(mut lane: Lane, kills: u64, reports: &Sender<Result<(), String>>) {
    let killed = || lane.tally.killed.load(Ordering::Relaxed);
    let mut enough = killed() >= kills;
    while !enough {
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| lane.live_and_die()));
        let sent = reports.send(done.map_err(|_| format!("a reader of {} failed", lane.name)));
        enough = sent.is_err() || lane.tally.killed.load(Ordering::Relaxed) >= kills;
    }
}

#[test]
fn a_publisher_killed_a_thousand_times_leaves_its_readers_correct() {
    let seed = seed("crash");
    let kills = std::env::var("SKOPOS_TEST_KILLS").ok().and_then(|k| k.parse().ok());
    let kills = kills.unwrap_or(KILLS);
    let dir = runtime_dir();
    let tally = Arc::new(Tally::default());
    let (sender, receiver) = channel();
    for lane in 0..LANES {
        let lane = Lane {
            dir: dir.path().to_owned(),
            name: format!("lane-{lane}"),
            random: SplitMix64::new(seed ^ lane),
            tally: Arc::clone(&tally),
            remains: Vec::new(),
        };
        let sender = sender.clone();
        std::thread::spawn(move || run_lane(lane, kills, &sender));
    }
    drop(sender);
    // A life takes milliseconds: a lane without a report for so long hangs.
    loop {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match receiver.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => panic!("{failure}, seed {seed}"),
            Err(Timeout) => panic!("a reader or a publisher hangs, seed {seed}: {tally:?}"),
            Err(Disconnected) => break,
        }
    }
    report(&tally, kills);
    the_next_publisher_removes_their_files(dir.path());
}

fn report(tally: &Tally, kills: u64) {
    let killed = tally.killed.load(Ordering::Relaxed);
    let at_birth = tally.killed_at_birth.load(Ordering::Relaxed);
    println!(
        "crash: {killed} kills, {at_birth} of them at birth; checked {:?}",
        tally.checked.all()
    );
    assert!(killed >= kills);
    assert!(at_birth > 0 && at_birth < killed);
    assert!(tally.reread.load(Ordering::Relaxed) > 0);
    for (what, count) in tally.checked.all() {
        assert!(count > 0, "{what} was never checked");
    }
}

fn the_next_publisher_removes_their_files(dir: &Path) {
    let publisher = Publisher::builder("next").dir(dir).create().expect("all publishers are dead");
    let files = || {
        let entries = std::fs::read_dir(dir).expect("our own directory");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("readable").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    };
    assert_eq!(files(), [".lock", "next.seg"]);
    drop(publisher);
    assert_eq!(files(), [".lock"]);
}
