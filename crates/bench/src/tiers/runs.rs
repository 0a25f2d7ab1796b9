//! One run of a middleware with one policy.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::SplitMix64;
use skopos_steer::place::{Informed, Policy, RoundRobin};
use skopos_steer::tiers::{Declared, Engine, Prefetcher, Settings, Stats, TierSpec, View};

use super::others::{Filled, Load};
use super::setting::{EQUAL, FAST, MEMORY, SHARED, SLOW, Setting};
use super::work::{self, IMAGE_BYTES, IMAGES, VPIC_BYTES};
use crate::outcome::Outcome;

/// The engines of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Middleware {
    Placement,
    Prefetching,
    Replication,
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The slow tier alone, as without a middleware.
    Direct,
    RoundRobin,
    /// The policy of Skopos without telemetry: a round robin that passes over full tiers.
    Blind,
    Skopos,
}

/// The surroundings of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scene {
    /// Tiers of different speed, of which others load and fill one.
    Loaded { seed: u64, skew: f64 },
    /// Equal tiers with enough room, and no others.
    Equal { seed: u64 },
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Seconds in writes.
    pub(super) write: f64,
    /// Seconds in reads.
    pub(super) read: f64,
    pub(super) stats: Stats,
}

/// Capacities of memory, NVMe and burst buffers: 96 GB and 1 TB by 10,000, and half of the first for memory, of which the
/// paper says nothing.
const MEMORY_BYTES: u64 = 4_800_000;
const FAST_BYTES: u64 = 9_600_000;
const SHARED_BYTES: u64 = 100_000_000;
/// The capacity of each of three equal tiers, which hold all data of a run.
const EQUAL_BYTES: u64 = 60_000_000;
const SLOW_BYTES: u64 = 300_000_000;
/// Replicas of a datum. With half of the bytes of each file, the buffers hold as large a part of the data as in placement.
const COPIES: usize = 2;
/// The smallest and the largest part of a shared tier that others take.
const TAKEN: (f64, f64) = (0.2, 0.5);
/// Time in which telemetry shows the state at the begin of a run: a few polls.
const SETTLE: Duration = Duration::from_millis(300);
/// Threads that bring images up: one, because a disk with seeks is the slowest when it is read at two places.
const WORKERS: usize = 1;

/// Folders below that of a tier: the files of a run, and the images of Montage, which all runs read.
const RUN: &str = "run";
const SOURCE: &str = "images";

impl Middleware {
    pub(super) const ALL: [Self; 3] = [Self::Placement, Self::Prefetching, Self::Replication];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Placement => "placement",
            Self::Prefetching => "prefetching",
            Self::Replication => "replication",
        }
    }
}

impl Choice {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "slow tier alone",
            Self::RoundRobin => "round robin",
            Self::Blind => "no telemetry",
            Self::Skopos => "skopos",
        }
    }
}

impl Scene {
    pub(super) fn seed(self) -> u64 {
        match self {
            Self::Loaded { seed, .. } | Self::Equal { seed } => seed,
        }
    }

    pub(super) fn skew(self) -> f64 {
        match self {
            Self::Loaded { skew, .. } => skew,
            Self::Equal { .. } => 0.0,
        }
    }
}

impl Run {
    pub(super) fn seconds(&self) -> f64 {
        self.write + self.read
    }
}

/// Runs a middleware. Everything of an earlier run is removed first.
pub(super) fn run(
    setting: &Setting,
    middleware: Middleware,
    scene: Scene,
    choice: Choice,
) -> Outcome<Run> {
    let names = names(middleware, scene);
    for (name, _) in &names {
        clear(&setting.root(name)?)?;
    }
    if middleware == Middleware::Prefetching {
        lay_out(setting)?;
    }
    let _others = others(setting, middleware, scene)?;
    let mut tiers = Vec::new();
    for (name, capacity) in &names {
        if choice == Choice::Direct && *name != SLOW {
            continue;
        }
        let is_source = middleware == Middleware::Prefetching && *name == SLOW;
        tiers.push(setting.tier(name, if is_source { SOURCE } else { RUN }, *capacity)?);
    }
    let engine = Arc::new(open(setting, tiers, choice)?);
    std::thread::sleep(SETTLE);
    let draw = (scene.seed(), scene.skew());
    let (mut write, mut read) = (0.0, 0.0);
    match middleware {
        Middleware::Placement => {
            write = work::write(&engine, draw, (VPIC_BYTES, 1), &setting.noise)?;
        }
        Middleware::Prefetching => {
            let with_prefetcher = choice != Choice::Direct;
            let prefetcher = match with_prefetcher {
                true => Some(Prefetcher::start(engine.clone(), WORKERS)?),
                false => None,
            };
            read = work::read_images(&engine, prefetcher.as_ref(), draw)?;
        }
        Middleware::Replication => {
            let copies = if choice == Choice::Direct { 1 } else { COPIES };
            write = work::write(&engine, draw, (VPIC_BYTES / COPIES, copies), &setting.noise)?;
            read = work::read_particles(&engine, draw)?;
        }
    }
    Ok(Run { write, read, stats: engine.stats() })
}

/// The tiers with their capacities, the fastest first.
fn names(middleware: Middleware, scene: Scene) -> Vec<(&'static str, u64)> {
    let buffers = match (scene, middleware) {
        (Scene::Equal { .. }, _) => EQUAL.map(|name| (name, EQUAL_BYTES)).to_vec(),
        (Scene::Loaded { .. }, Middleware::Replication) => {
            let shared = EQUAL.map(|name| (name, SHARED_BYTES / EQUAL.len() as u64));
            [&[(MEMORY, MEMORY_BYTES), (FAST, FAST_BYTES)][..], &shared].concat()
        }
        (Scene::Loaded { .. }, _) => {
            vec![(MEMORY, MEMORY_BYTES), (FAST, FAST_BYTES), (SHARED, SHARED_BYTES)]
        }
    };
    buffers.into_iter().chain([(SLOW, SLOW_BYTES)]).collect()
}

fn open(setting: &Setting, tiers: Vec<TierSpec>, choice: Choice) -> Outcome<Engine> {
    let blind = || Box::new(Declared::default()) as Box<dyn View>;
    let (policy, view): (Box<dyn Policy>, Box<dyn View>) = match choice {
        Choice::Direct | Choice::RoundRobin => (Box::new(RoundRobin::new()), blind()),
        Choice::Blind => (Box::new(Informed::new()), blind()),
        Choice::Skopos => (Box::new(Informed::new()), Box::new(setting.live(&tiers)?)),
    };
    Ok(Engine::open(Settings { tiers }, policy, view)?)
}

/// Others take a part of the shared tiers, and load one device. They depend on the seed alone, not on the policy.
fn others(
    setting: &Setting,
    middleware: Middleware,
    scene: Scene,
) -> Outcome<(Vec<Filled>, Option<Load>)> {
    let Scene::Loaded { seed, .. } = scene else { return Ok((Vec::new(), None)) };
    let mut random = SplitMix64::new(seed);
    let (shared, loaded): (&[&str], &[&str]) = match middleware {
        Middleware::Replication => (&EQUAL, &EQUAL),
        _ => (&[SHARED], &[FAST, SHARED]),
    };
    let on = loaded[random.below(loaded.len())];
    let load = Load::start(&setting.root(on)?, random.bits(), &setting.noise)?;
    let mut filled = Vec::new();
    for name in shared {
        let left = 1.0 - random.between(TAKEN.0, TAKEN.1);
        let capacity = SHARED_BYTES / shared.len() as u64;
        filled.push(Filled::leave(&setting.root(name)?, (capacity as f64 * left) as u64)?);
    }
    Ok((filled, Some(load)))
}

/// Writes the images of Montage to the slow tier, once for all runs.
fn lay_out(setting: &Setting) -> Outcome<()> {
    let home = setting.root(SLOW)?.join(SOURCE).join("home");
    if home.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&home)?;
    for number in 0..IMAGES {
        let path = home.join(work::image(number));
        let from = number * (setting.noise.len() - IMAGE_BYTES) / IMAGES;
        fs::write(&path, &setting.noise[from..from + IMAGE_BYTES])?;
        let file = File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// Removes the files of an earlier run.
fn clear(root: &Path) -> Outcome<()> {
    let run = root.join(RUN);
    if run.is_dir() {
        fs::remove_dir_all(&run)?;
        // The removal is on the disk before the next run is measured.
        File::open(root)?.sync_all()?;
    }
    Ok(())
}
