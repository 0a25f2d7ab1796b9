//! The engine on real files: placement, flushes, prefetching, replication.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::SplitMix64;
use skopos_steer::Error;
use skopos_steer::place::{Informed, Policy, RoundRobin};
use skopos_steer::tiers::{
    Declared, Engine, MAX_HINTS, Prefetched, Prefetcher, Settings, TierSpec,
};

/// Time that only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// An engine on three tiers below `root`, with these capacities.
pub(crate) fn open(
    root: &Path,
    capacities: [u64; 3],
    policy: Box<dyn Policy>,
) -> Result<Engine, Error> {
    let names = ["memory", "fast", "slow"];
    let spec = |(name, capacity)| TierSpec::new(name, root.join(name), capacity);
    let tiers = names.into_iter().zip(capacities).map(spec).collect();
    let speeds = [4e9, 1e9, 1e8].map(Some).to_vec();
    Engine::open(Settings { tiers }, policy, Box::new(Declared { bytes_per_second: speeds }))
}

pub(crate) fn informed(root: &Path, capacities: [u64; 3]) -> Engine {
    open(root, capacities, Box::new(Informed::new())).expect("an engine")
}

pub(crate) fn round_robin(root: &Path, capacities: [u64; 3]) -> Engine {
    open(root, capacities, Box::new(RoundRobin::new())).expect("an engine")
}

/// The content of a file, which its name determines.
pub(crate) fn content(name: &str, bytes: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
    let mut random = SplitMix64::new(seed);
    (0..bytes).map(|_| random.bits() as u8).collect()
}

#[test]
fn files_fill_the_fastest_tier_that_has_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = informed(dir.path(), [1000, 2000, 100_000]);
    let holders: Vec<String> = (0..5)
        .map(|n| {
            let name = format!("step/{n}");
            engine.write(&name, &content(&name, 900)).expect("written");
            engine.holders(&name).join(" ")
        })
        .collect();
    assert_eq!(holders, ["memory", "fast", "fast", "slow", "slow"]);
    let stats = engine.stats();
    assert_eq!((stats.writes, stats.written_bytes, stats.flushes, stats.stalls), (5, 4500, 0, 0));
    assert_eq!(engine.used_bytes(), [900, 1800, 1800]);
    for n in 0..5 {
        let name = format!("step/{n}");
        assert_eq!(engine.read(&name).expect("readable"), content(&name, 900));
    }
}

#[test]
fn the_baseline_flushes_and_counts_its_stalls() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = round_robin(dir.path(), [1000, 2000, 100_000]);
    for n in 0..6 {
        let name = format!("f{n}");
        engine.write(&name, &content(&name, 900)).expect("written");
    }
    // Turns: memory, fast, memory (f0 goes down to fast), fast (f1 goes down to slow), memory, fast.
    let stats = engine.stats();
    assert!(stats.flushes >= 3 && stats.stalls >= 3 && !stats.stalled.is_zero(), "{stats:?}");
    assert_eq!(stats.flushed_bytes, stats.flushes * 900);
    assert_eq!(engine.used_bytes().iter().sum::<u64>(), 6 * 900);
    for n in 0..6 {
        let name = format!("f{n}");
        assert_eq!(engine.read(&name).expect("readable"), content(&name, 900));
    }
}

#[test]
fn replicas_are_on_as_many_tiers_and_all_are_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = informed(dir.path(), [10_000, 10_000, 10_000]);
    engine.replicate("r", &content("r", 100), 2).expect("written");
    assert_eq!(engine.holders("r"), ["memory", "fast"]);
    engine.replicate("all", &content("all", 100), 3).expect("written");
    assert_eq!(engine.holders("all"), ["memory", "fast", "slow"]);
    assert_eq!(engine.stats().replicas, 5);
    let error = engine.replicate("more", b"x", 4).expect_err("three tiers");
    assert!(error.to_string().contains("4 replicas"), "{error}");
    assert!(engine.replicate("none", b"x", 0).is_err());
    // A copy that is lost is read from another tier.
    std::fs::remove_file(dir.path().join("memory/home/all")).expect("there");
    assert_eq!(engine.read("all").expect("readable"), content("all", 100));
    engine.remove("all").expect("removed");
    assert!(matches!(engine.read("all"), Err(Error::NoSuchFile(_))));
    assert_eq!(engine.used_bytes(), [100, 100, 0]);
}

#[test]
fn a_replica_that_the_tiers_below_have_already_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = round_robin(dir.path(), [1000, 2000, 100_000]);
    for name in ["r0", "r1", "r2"] {
        engine.replicate(name, &content(name, 900), 2).expect("written");
    }
    // The fast tier has copies whose second ones came down to the slow tier, so nothing can leave it.
    assert_eq!(engine.holders("r0"), ["fast", "slow"]);
    assert_eq!(engine.holders("r1"), ["fast", "slow"]);
    assert_eq!(engine.holders("r2"), ["memory", "slow"]);
    for name in ["r0", "r1", "r2"] {
        assert_eq!(engine.read(name).expect("readable"), content(name, 900));
    }
}

#[test]
fn a_replica_above_another_one_goes_only_if_a_write_has_no_room_otherwise() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = round_robin(dir.path(), [1000, 2000, 100_000]);
    let write = |name: &str| engine.replicate(name, &content(name, 900), 2).expect("written");
    ["r0", "r1", "r2"].into_iter().for_each(write);
    assert_eq!(engine.stats().retired, 0);
    write("r3");
    assert_eq!(engine.stats().retired, 2);
    let holders = ["r0", "r1", "r2", "r3"].map(|name| engine.holders(name).join(" "));
    assert_eq!(holders, ["slow", "fast slow", "slow", "memory fast"]);
    assert_eq!(engine.used_bytes(), [900, 1800, 2700]);
    for name in ["r0", "r1", "r2", "r3"] {
        assert_eq!(engine.read(name).expect("readable"), content(name, 900));
    }
}

#[test]
fn a_file_that_cannot_go_down_does_not_keep_others_from_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = round_robin(dir.path(), [2000, 1000, 100_000]);
    for name in ["r0", "r1"] {
        engine.replicate(name, &content(name, 900), 2).expect("written");
    }
    assert_eq!(engine.holders("r0"), ["memory", "slow"]);
    engine.write("w", &content("w", 900)).expect("written");
    // The fast tier is full, and the slow one has the older file already.
    let holders = ["r0", "r1", "w"].map(|name| engine.holders(name).join(" "));
    assert_eq!(holders, ["memory slow", "fast slow", "memory"]);
    assert_eq!(engine.stats().retired, 0);
}

#[test]
fn announced_files_are_brought_up_and_wanted_ones_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    // Files on the last tier alone, as another program left them.
    std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
    for n in 0..6 {
        let name = format!("i{n}");
        std::fs::write(dir.path().join("slow/home").join(&name), content(&name, 900))
            .expect("written");
    }
    let engine = informed(dir.path(), [1000, 2000, 100_000]);
    for n in 0..6 {
        assert!(engine.announce(&format!("i{n}")));
    }
    assert!(!engine.announce("i9"));
    let up = |name: &str| engine.prefetch(name).expect("there");
    assert_eq!([up("i0"), up("i1"), up("i2")], [Prefetched::Copied; 3]);
    assert_eq!(up("i0"), Prefetched::Present);
    // All caches are full of copies that their readers want.
    assert_eq!(up("i3"), Prefetched::NoRoom);
    assert_eq!(engine.read("i0").expect("readable"), content("i0", 900));
    assert_eq!(up("i3"), Prefetched::Copied);
    assert_eq!(engine.holders("i0"), ["slow"]);
    assert_eq!(engine.holders("i3"), ["memory", "slow"]);
    let stats = engine.stats();
    assert_eq!((stats.evictions, stats.unread_evictions, stats.deferred), (1, 0, 1));
}

#[test]
fn a_copy_stays_until_all_announced_reads_have_happened() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
    for name in ["a", "b"] {
        std::fs::write(dir.path().join("slow/home").join(name), content(name, 900))
            .expect("written");
    }
    let engine = informed(dir.path(), [1000, 1, 100_000]);
    assert!(["a", "a", "b"].into_iter().all(|name| engine.announce(name)));
    let up = |name: &str| engine.prefetch(name).expect("there");
    assert_eq!(up("a"), Prefetched::Copied);
    engine.read("a").expect("readable");
    assert_eq!(up("b"), Prefetched::NoRoom);
    assert!(engine.is_awaited("a"));
    engine.read("a").expect("readable");
    assert!(!engine.is_awaited("a"));
    assert_eq!(up("b"), Prefetched::Copied);
    assert_eq!(engine.stats().unread_evictions, 0);
}

#[test]
fn the_baseline_evicts_copies_before_they_are_read_and_counts_it() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
    for n in 0..4 {
        let name = format!("i{n}");
        std::fs::write(dir.path().join("slow/home").join(&name), content(&name, 900))
            .expect("written");
    }
    let engine = round_robin(dir.path(), [1000, 1000, 100_000]);
    for n in 0..4 {
        let name = format!("i{n}");
        assert!(engine.announce(&name));
        assert_eq!(engine.prefetch(&name).expect("there"), Prefetched::Copied);
    }
    for n in 0..4 {
        let name = format!("i{n}");
        assert_eq!(engine.read(&name).expect("readable"), content(&name, 900));
    }
    let stats = engine.stats();
    assert_eq!((stats.unread_evictions, stats.stalls), (2, 2), "{stats:?}");
}

#[test]
fn a_prefetcher_follows_its_readers() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
    for n in 0..20 {
        let name = format!("i{n}");
        std::fs::write(dir.path().join("slow/home").join(&name), content(&name, 900))
            .expect("written");
    }
    let engine = Arc::new(informed(dir.path(), [2000, 2000, 100_000]));
    let prefetcher = Prefetcher::start(engine.clone(), 8).expect("threads");
    for n in 0..20 {
        assert!(prefetcher.announce(&format!("i{n}")));
    }
    for n in 0..20 {
        let name = format!("i{n}");
        // A reader that waits sees its file come up, because files before it have been read.
        let begun = Instant::now();
        while engine.holders(&name).len() < 2 {
            assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", engine.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(engine.read(&name).expect("readable"), content(&name, 900));
    }
    assert_eq!((prefetcher.dropped(), prefetcher.failed()), (0, 0));
    let stats = engine.stats();
    assert_eq!((stats.prefetches, stats.unread_evictions), (20, 0), "{stats:?}");
}

#[test]
fn a_prefetcher_passes_over_a_file_that_is_too_large() {
    for workers in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
        for (name, bytes) in [("large", 3000), ("i0", 900), ("i1", 900), ("i2", 900)] {
            std::fs::write(dir.path().join("slow/home").join(name), content(name, bytes))
                .expect("written");
        }
        let engine = Arc::new(informed(dir.path(), [1000, 2000, 100_000]));
        let prefetcher = Prefetcher::start(engine.clone(), workers).expect("threads");
        assert!(["large", "i0", "i1", "i2"].into_iter().all(|name| prefetcher.announce(name)));
        let begun = Instant::now();
        while engine.stats().prefetches < 3 {
            assert!(begun.elapsed() < PATIENCE, "{workers}: {:?}", engine.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(["i0", "i1", "i2"].into_iter().all(|name| engine.holders(name).len() == 2));
        assert_eq!(engine.read("large").expect("readable"), content("large", 3000));
        assert_eq!((prefetcher.failed(), engine.stats().unread_evictions), (0, 0));
    }
}

#[test]
fn a_file_whose_announcement_is_left_out_is_not_awaited() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(dir.path().join("slow/home")).expect("a folder");
    for n in 0..5 {
        let name = format!("i{n}");
        std::fs::write(dir.path().join("slow/home").join(&name), content(&name, 900))
            .expect("written");
    }
    let engine = Arc::new(informed(dir.path(), [1000, 2000, 100_000]));
    let prefetcher = Prefetcher::start(engine.clone(), 1).expect("a thread");
    for n in 0..4 {
        assert!(prefetcher.announce(&format!("i{n}")));
    }
    // The caches have room for three files, so the thread waits with the fourth one.
    let begun = Instant::now();
    while engine.stats().deferred == 0 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", engine.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 1..MAX_HINTS {
        assert!(prefetcher.announce("i0"));
    }
    assert!(!prefetcher.announce("i4"));
    assert_eq!(prefetcher.dropped(), 1);
    assert!(engine.is_awaited("i0") && !engine.is_awaited("i4"));
}

#[test]
fn an_engine_finds_its_files_again_and_leaves_others_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    {
        let engine = informed(dir.path(), [1000, 2000, 100_000]);
        for name in ["a", "b/c", "ü"] {
            engine.write(name, &content(name, 400)).expect("written");
        }
        let second = open(dir.path(), [1000, 2000, 100_000], Box::new(RoundRobin::new()));
        assert!(matches!(second, Err(Error::TierInUse { .. })), "the folders are locked");
    }
    for (path, text) in
        [("memory/part/0", "half"), ("fast/cache/x", "copy"), ("slow/home/%zz", "?")]
    {
        std::fs::write(dir.path().join(path), text).expect("written");
    }
    std::fs::create_dir(dir.path().join("slow/home/folder")).expect("made");
    let engine = informed(dir.path(), [1000, 2000, 100_000]);
    let mut files = engine.files();
    files.sort();
    assert_eq!(files, ["a", "b/c", "ü"]);
    for name in files {
        assert_eq!(engine.read(&name).expect("readable"), content(&name, 400));
    }
    let stats = engine.stats();
    assert_eq!((stats.removed_at_start, stats.foreign), (2, 2));
    assert!(dir.path().join("slow/home/%zz").exists());
}

#[test]
fn many_threads_lose_nothing_and_keep_to_the_capacities() {
    const CAPACITIES: [u64; 3] = [20_000, 30_000, 10_000_000];
    for (name, policy) in crate::place::policies() {
        let dir = tempfile::tempdir().expect("a folder");
        let engine = open(dir.path(), CAPACITIES, policy).expect("an engine");
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(thread);
                    for n in 0..40 {
                        let file = format!("{thread}/{n}");
                        let bytes = random.below(3000) + 1;
                        match thread % 3 {
                            0 => engine.replicate(&file, &content(&file, bytes), 2),
                            _ => engine.write(&file, &content(&file, bytes)),
                        }
                        .unwrap_or_else(|e| panic!("{name}: {file}: {e}"));
                        let back = format!("{thread}/{}", random.below(n + 1));
                        if engine.announce(&back) && random.below(2) == 0 {
                            engine.prefetch(&back).expect("there");
                        }
                        let data =
                            engine.read(&back).unwrap_or_else(|e| panic!("{name}: {back}: {e}"));
                        assert!(data == content(&back, data.len()), "{name}: {back}");
                        let used = engine.used_bytes();
                        assert!(
                            used.iter().zip(CAPACITIES).all(|(u, c)| *u <= c),
                            "{name}: {used:?}"
                        );
                    }
                });
            }
        });
        let files = engine.files();
        assert_eq!(files.len(), 240, "{name}");
        let held: u64 = (["memory", "fast", "slow"].iter())
            .flat_map(|tier| ["home", "cache"].map(|kind| dir.path().join(tier).join(kind)))
            .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
            .map(|entry| entry.expect("an entry").metadata().expect("a file").len())
            .sum();
        assert_eq!(
            held,
            engine.used_bytes().iter().sum::<u64>(),
            "{name}: the count is that of the disk"
        );
        for file in files {
            let data = engine.read(&file).expect("readable");
            assert!(data == content(&file, data.len()), "{name}: {file}");
        }
    }
}
