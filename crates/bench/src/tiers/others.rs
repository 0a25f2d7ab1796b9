//! Other programs on the tiers: a file that takes space, and a load that comes and goes.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use skopos_model::SplitMix64;

use crate::outcome::Outcome;

/// Bytes of one write of the load, which is synced.
const BLOCK: usize = 1 << 20;
/// Blocks of the file of the load, which are written again and again.
const BLOCKS: u64 = 8;

/// A file that leaves others a part of a disk. It is removed when this is dropped.
pub(super) struct Filled(PathBuf);

impl Filled {
    /// Leaves `bytes` of the disk of `folder` free.
    pub(super) fn leave(folder: &Path, bytes: u64) -> Outcome<Self> {
        let path = folder.join("filled");
        let file = File::create(&path)?;
        let filled = Self(path);
        let space = statvfs(folder)?;
        let free = space.f_bavail * space.f_frsize;
        if let Some(taken) = free.checked_sub(bytes).filter(|taken| *taken > 0) {
            fallocate(&file, FallocateFlags::empty(), 0, taken)?;
        }
        file.sync_all()?;
        Ok(filled)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A program that writes at full speed for 0.6 to 1.2 s and rests for 0.2 to 0.5 s, again and again. It ends when this is
/// dropped.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Load {
    pub(super) fn start(folder: &Path, seed: u64, noise: &[u8]) -> Outcome<Self> {
        let path = folder.join("load");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        let block = noise.get(..BLOCK).ok_or("too little noise")?.to_vec();
        for _ in 0..BLOCKS {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut random = SplitMix64::new(seed);
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                let until = Instant::now() + Duration::from_secs_f64(random.between(0.6, 1.2));
                let mut at = 0;
                while Instant::now() < until && !stopped.load(Ordering::Relaxed) {
                    let written = file
                        .seek(SeekFrom::Start(at % BLOCKS * BLOCK as u64))
                        .and_then(|_| file.write_all(&block))
                        .and_then(|()| file.sync_data());
                    if written.is_err() {
                        return;
                    }
                    at += 1;
                }
                let rest = Instant::now() + Duration::from_secs_f64(random.between(0.2, 0.5));
                while Instant::now() < rest && !stopped.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        };
        let thread = thread::Builder::new().name("load".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread), path })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}
