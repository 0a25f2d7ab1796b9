//! Removals that a loss of power undoes, and removals that fail: no old file comes back in the place of a new one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

use crate::Error;
use crate::place::Informed;
use crate::tiers::disk::{Disk, FileSystem};
use crate::tiers::folder::Kind;
use crate::tiers::name::FileName;
use crate::tiers::room::Effort;
use crate::tiers::unsettled::MAX_NAMES;
use crate::tiers::{Declared, Engine, Settings, TierSpec};

const TIERS: [&str; 2] = ["fast", "slow"];
const CAPACITIES: [u64; 2] = [1000, 100_000];
/// Length of each file: the fast tier has room for one.
const BYTES: usize = 900;

/// A disk that undoes removals which were not synced when the power is lost, and whose folders can fail.
#[derive(Debug, Default)]
struct Fragile {
    /// Removed files with their content, until their folder is synced.
    unsynced: Mutex<HashMap<PathBuf, Vec<u8>>>,
    failing_removals: Mutex<HashSet<PathBuf>>,
    failing_syncs: Mutex<HashSet<PathBuf>>,
}

fn fail_in(failing: &Mutex<HashSet<PathBuf>>, folder: &Path) -> io::Result<()> {
    match unpoisoned(failing.lock()).contains(folder) {
        true => Err(io::Error::other("the test says so")),
        false => Ok(()),
    }
}

impl Disk for Fragile {
    fn remove(&self, path: &Path) -> io::Result<()> {
        fail_in(&self.failing_removals, path.parent().expect("a folder"))?;
        let content = fs::read(path)?;
        FileSystem.remove(path)?;
        unpoisoned(self.unsynced.lock()).insert(path.to_owned(), content);
        Ok(())
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        fail_in(&self.failing_syncs, folder)?;
        unpoisoned(self.unsynced.lock()).retain(|path, _| path.parent() != Some(folder));
        FileSystem.sync(folder)
    }
}

/// A program with an engine on two tiers, and their disk.
struct World {
    root: tempfile::TempDir,
    disk: Arc<Fragile>,
    engine: Option<Engine>,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let mut world = Self { root, disk: Arc::default(), engine: None };
        world.restart();
        world
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it is started")
    }

    fn restart(&mut self) {
        // Only one engine has the folders.
        self.engine = None;
        let spec = |(name, capacity)| TierSpec::new(name, self.root.path().join(name), capacity);
        let tiers = TIERS.into_iter().zip(CAPACITIES).map(spec).collect();
        let speeds = Declared { bytes_per_second: vec![Some(1e9), Some(1e8)] };
        let (settings, policy) = (Settings { tiers }, Box::new(Informed::new()));
        let disk = self.disk.clone();
        let engine = Engine::open_on(disk, settings, policy, Box::new(speeds));
        self.engine = Some(engine.expect("an engine"));
    }

    fn lose_power(&mut self) {
        self.engine = None;
        for (path, content) in unpoisoned(self.disk.unsynced.lock()).drain() {
            fs::write(path, content).expect("written");
        }
        self.restart();
    }

    fn home(&self, tier: &str) -> PathBuf {
        self.root.path().join(tier).join("home")
    }

    fn fail_syncs(&self, tier: &str) {
        unpoisoned(self.disk.failing_syncs.lock()).insert(self.home(tier));
    }

    fn fail_removals(&self, tier: &str) {
        unpoisoned(self.disk.failing_removals.lock()).insert(self.home(tier));
    }

    fn heal(&self) {
        unpoisoned(self.disk.failing_syncs.lock()).clear();
        unpoisoned(self.disk.failing_removals.lock()).clear();
    }

    /// Writes a file, and moves it down as a write does that needs room on the fast tier. Returns false if it stays there.
    fn write_and_flush(&self, name: &str, byte: u8) -> bool {
        self.engine().write(name, &[byte; BYTES]).expect("written");
        assert_eq!(self.engine().holders(name), ["fast"]);
        let effort = Effort { can_wait: false, can_retire: false };
        self.engine().make_room(0, BYTES as u64, effort)
    }
}

#[test]
fn a_removed_file_does_not_come_back_from_a_tier_that_it_left() {
    let mut world = World::new();
    assert!(world.write_and_flush("a", 1));
    assert_eq!(world.engine().holders("a"), ["slow"]);
    world.engine().remove("a").expect("removed");
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_new_file_is_not_read_from_an_old_one_of_its_name_and_length() {
    let mut world = World::new();
    assert!(world.write_and_flush("a", 1));
    world.engine().remove("a").expect("removed");
    // The room on the fast tier is that of another write.
    world.engine().write("a", &[2; BYTES]).expect("written");
    assert_eq!(world.engine().holders("a"), ["slow"]);
    world.lose_power();
    assert_eq!(world.engine().holders("a"), ["slow"]);
    assert_eq!(world.engine().read("a").expect("readable"), [2; BYTES]);
}

#[test]
fn a_file_is_kept_whole_while_a_tier_that_it_left_cannot_make_its_removal_durable() {
    let mut world = World::new();
    assert!(world.write_and_flush("a", 1));
    world.fail_syncs("fast");
    let error = world.engine().remove("a").expect_err("the fast tier fails");
    assert!(matches!(&error, Error::TierFailed { tier, .. } if tier == "fast"), "{error}");
    assert_eq!(world.engine().read("a").expect("readable"), [1; BYTES]);
    world.heal();
    world.engine().remove("a").expect("removed");
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_removal_whose_sync_fails_leaves_no_copy_and_is_done_by_the_next_one() {
    let mut world = World::new();
    world.engine().write("a", &[1; BYTES]).expect("written");
    assert_eq!(world.engine().holders("a"), ["fast"]);
    world.fail_syncs("fast");
    let error = world.engine().remove("a").expect_err("the fast tier fails");
    assert!(matches!(&error, Error::TierFailed { tier, .. } if tier == "fast"), "{error}");
    world.heal();
    assert!(world.engine().files().is_empty() && world.engine().holders("a").is_empty());
    assert!(matches!(world.engine().read("a"), Err(Error::NoSuchFile(_))));
    assert_eq!(world.engine().used_bytes(), [0; 2]);
    // The room is that of other files, and nothing has to be moved for it.
    let effort = Effort { can_wait: false, can_retire: false };
    assert!(world.engine().make_room(0, BYTES as u64, effort));
    assert_eq!(world.engine().stats().stalls, 0);
    assert!(matches!(world.engine().write("a", &[2; BYTES]), Err(Error::FileExists(_))));
    world.engine().remove("a").expect("removed");
    assert!(matches!(world.engine().remove("a"), Err(Error::NoSuchFile(_))));
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_removal_of_an_earlier_process_is_durable_too() {
    let mut world = World::new();
    assert!(world.write_and_flush("a", 1));
    world.restart();
    assert_eq!(world.engine().holders("a"), ["slow"]);
    world.engine().remove("a").expect("removed");
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_copy_that_cannot_be_removed_counts_and_is_removed_with_its_file() {
    let mut world = World::new();
    world.fail_removals("fast");
    assert!(!world.write_and_flush("a", 1));
    assert_eq!(world.engine().holders("a"), TIERS);
    assert_eq!(world.engine().used_bytes(), [BYTES as u64; 2]);
    assert!(world.engine().remove("a").is_err());
    assert_eq!(world.engine().holders("a"), ["fast"], "the copy on the slow tier could be removed");
    world.heal();
    world.engine().remove("a").expect("removed");
    assert_eq!(world.engine().used_bytes(), [0; 2]);
    world.restart();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_copy_of_another_length_is_not_read_and_is_removed_with_its_file() {
    let mut world = World::new();
    world.engine().write("a", &[1; BYTES]).expect("written");
    let contradicting = world.home("slow").join("a");
    fs::write(&contradicting, b"another write").expect("written");
    world.restart();
    assert_eq!(world.engine().stats().foreign, 1);
    assert_eq!(world.engine().holders("a"), ["fast"]);
    assert_eq!(world.engine().used_bytes(), [BYTES as u64, 0]);
    assert_eq!(world.engine().read("a").expect("readable"), [1; BYTES]);
    assert!(contradicting.exists());
    world.engine().remove("a").expect("removed");
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_write_that_fails_after_its_file_has_its_name_leaves_no_old_file() {
    let mut world = World::new();
    world.fail_syncs("fast");
    world.fail_removals("fast");
    world.engine().write("a", &[1; BYTES]).expect("written");
    assert_eq!(world.engine().holders("a"), ["slow"]);
    assert!(world.home("fast").join("a").exists());
    world.heal();
    world.engine().remove("a").expect("removed");
    world.restart();
    assert!(world.engine().files().is_empty());
}

#[test]
fn a_replica_that_cannot_be_taken_back_is_a_file_that_can_be_removed() {
    let mut world = World::new();
    world.fail_removals("fast");
    world.fail_syncs("slow");
    let error = world.engine().replicate("r", &[1; BYTES], 2).expect_err("the slow tier fails");
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert_eq!(world.engine().holders("r"), ["fast"]);
    assert_eq!(world.engine().used_bytes(), [BYTES as u64, 0]);
    assert_eq!(world.engine().read("r").expect("readable"), [1; BYTES]);
    assert!(matches!(world.engine().write("r", &[2; BYTES]), Err(Error::FileExists(_))));
    world.heal();
    world.engine().remove("r").expect("removed");
    world.lose_power();
    assert!(world.engine().files().is_empty());
}

#[test]
fn removals_without_a_write_are_synced_in_bounded_numbers() {
    let world = World::new();
    let home = world.home("fast");
    for n in 0..3000 {
        // A file that left the fast tier, as a flush removes it.
        let name = FileName::new(&n.to_string()).expect("a name");
        fs::write(home.join(&name.on_disk), b"x").expect("written");
        world.engine().folders[0].remove(Kind::Home, &name).expect("removed");
    }
    let unsynced = unpoisoned(world.disk.unsynced.lock()).len();
    assert!(unsynced <= MAX_NAMES, "{unsynced}");
}
