//! The applications of the paper, at a ten-thousandth of their sizes: four processes are threads, which meet after each
//! step, as those of an MPI program do.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use skopos_model::{SplitMix64, unpoisoned};
use skopos_steer::tiers::{Engine, Prefetcher};

use crate::outcome::Outcome;

pub(super) const PROCESSES: usize = 4;
/// Steps of VPIC-IO, as in the paper.
pub(super) const STEPS: usize = 16;
/// Files of VPIC-IO.
const FILES: usize = PROCESSES * STEPS;
/// Steps of Montage: twice those of the paper. Other programs come and go within 0.8 to 1.7 s, and 16 steps take 2 s, so that one
/// burst would decide a run. The paper's applications run for minutes.
const MONTAGE_STEPS: usize = 32;
/// Images of Montage.
pub(super) const IMAGES: usize = PROCESSES * MONTAGE_STEPS;
/// Mean bytes of a process in a step of VPIC-IO: 32 MB of 2560 processes, by 10,000 and four processes.
pub(super) const VPIC_BYTES: usize = 2_048_000;
/// Bytes of an image of Montage: 10 MB of 2560 processes, by 10,000 and four processes.
pub(super) const IMAGE_BYTES: usize = 640_000;
/// Time of computing between two steps of VPIC-IO.
const VPIC_COMPUTES: Duration = Duration::from_millis(50);
/// Time of computing before each step of Montage: a little longer than reading its images from the slow tier takes.
const MONTAGE_COMPUTES: Duration = Duration::from_millis(120);
/// Steps of Montage that are announced before they are read.
const AHEAD: usize = 8;

/// Returns the name of a file of VPIC-IO.
fn particles(step: usize, process: usize) -> String {
    format!("particles/{step:02}/{process}")
}

/// Returns the name of an image of Montage.
pub(super) fn image(number: usize) -> String {
    format!("image-{number:03}")
}

/// Writes the files of VPIC-IO, with sizes of mean `bytes` that differ between processes by `skew`. Returns the seconds in
/// writes, of the slowest process in each step.
pub(super) fn write(
    engine: &Engine,
    (seed, skew): (u64, f64),
    (bytes, copies): (usize, usize),
    noise: &[u8],
) -> Outcome<f64> {
    let mut random = SplitMix64::new(seed);
    let shares = shares(PROCESSES, skew);
    let mut seconds = 0.0;
    for step in 0..STEPS {
        std::thread::sleep(VPIC_COMPUTES);
        let order = permutation(&mut random, PROCESSES);
        let from = random.below(noise.len() / 2);
        seconds += together(|process| {
            let size = (shares[order[process]] * (PROCESSES * bytes) as f64) as usize;
            let data = noise.get(from..from + size).ok_or("a file is larger than the noise")?;
            let name = particles(step, process);
            match copies {
                1 => engine.write(&name, data)?,
                _ => engine.replicate(&name, data, copies)?,
            }
            Ok(())
        })?;
    }
    Ok(seconds)
}

/// Reads the files of VPIC-IO like BD-CATS: as many reads as there are files, each once without skew. Returns the seconds
/// in reads, of the slowest process in each step.
pub(super) fn read_particles(engine: &Engine, (seed, skew): (u64, f64)) -> Outcome<f64> {
    let reads = accesses(seed, skew, FILES);
    let mut seconds = 0.0;
    for step in reads.chunks(PROCESSES) {
        seconds += together(|process| {
            let file = step[process];
            engine.read(&particles(file / PROCESSES, file % PROCESSES))?;
            Ok(())
        })?;
    }
    Ok(seconds)
}

/// Reads images like Montage, which computes before each step. Steps to come are announced to a prefetcher, if there is one.
/// Returns the seconds in reads, of the slowest process in each step.
pub(super) fn read_images(
    engine: &Engine,
    prefetcher: Option<&Prefetcher>,
    (seed, skew): (u64, f64),
) -> Outcome<f64> {
    let reads = accesses(seed, skew, IMAGES);
    let steps: Vec<&[usize]> = reads.chunks(PROCESSES).collect();
    let announce = |step: usize| {
        for file in steps.get(step).into_iter().flat_map(|files| files.iter()) {
            // An announcement that is left out costs time, which is measured.
            prefetcher.map(|prefetcher| prefetcher.announce(&image(*file)));
        }
    };
    (0..AHEAD).for_each(announce);
    let mut seconds = 0.0;
    for (at, step) in steps.iter().enumerate() {
        std::thread::sleep(MONTAGE_COMPUTES);
        seconds += together(|process| {
            engine.read(&image(step[process]))?;
            Ok(())
        })?;
        announce(at + AHEAD);
    }
    Ok(seconds)
}

/// Runs a step of all processes side by side, and returns its seconds.
fn together(work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<f64> {
    let failed = Mutex::new(None);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (work, failed) = (&work, &failed);
            scope.spawn(move || {
                if let Err(e) = work(process) {
                    *unpoisoned(failed.lock()) = Some(e);
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    unpoisoned(failed.into_inner()).map_or(Ok(seconds), Err)
}

/// The files that are read, in their order, as many reads as there are files: each once without skew, else drawn by a Zipf
/// distribution over files in a random order.
fn accesses(seed: u64, skew: f64, files: usize) -> Vec<usize> {
    let mut random = SplitMix64::new(seed ^ 0x5eed);
    let order = permutation(&mut random, files);
    if skew == 0.0 {
        return order;
    }
    let shares = shares(files, skew);
    (0..files).map(|_| order[drawn(&shares, random.unit())]).collect()
}

/// The Zipf distribution: shares of `count` ranks, which sum to 1.
fn shares(count: usize, skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-skew)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn drawn(shares: &[f64], mut unit: f64) -> usize {
    for (rank, share) in shares.iter().enumerate() {
        if unit < *share {
            return rank;
        }
        unit -= share;
    }
    shares.len() - 1
}

fn permutation(random: &mut SplitMix64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, random.below(at + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn accesses_follow_their_seed_and_skew() {
        let mut even = accesses(1, 0.0, FILES);
        even.sort_unstable();
        assert_eq!(even, (0..FILES).collect::<Vec<_>>());
        assert_eq!(accesses(1, 1.2, IMAGES), accesses(1, 1.2, IMAGES));
        assert_ne!(accesses(1, 1.2, IMAGES), accesses(2, 1.2, IMAGES));
        let distinct = |skew| accesses(3, skew, IMAGES).into_iter().collect::<BTreeSet<_>>().len();
        assert!(distinct(1.2) < distinct(0.6) && distinct(0.6) < IMAGES);
    }

    #[test]
    fn shares_sum_to_one_and_fall() {
        for skew in [0.0, 0.6, 1.2] {
            let shares = shares(4, skew);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(shares.windows(2).all(|two| two[0] >= two[1]));
        }
        assert_eq!(drawn(&[0.5, 0.5], 0.4), 0);
        assert_eq!(drawn(&[0.5, 0.5], 0.999_999), 1);
        assert_eq!(drawn(&[0.5, 0.5], 1.0), 1);
    }
}
