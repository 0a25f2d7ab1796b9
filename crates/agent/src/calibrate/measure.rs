//! Reads and writes at the speed of a device. Each request in flight is a thread that waits: this works on every
//! file system and kernel, and the threads wait for the device, not for a core.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

/// Length of a sequential request. The block layer splits longer requests.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;

/// Sequential requests in flight: enough for a fast NVMe device, and few enough for a rotating disk.
pub(super) const IN_FLIGHT: u64 = 8;

/// `O_DIRECT` requires buffers at multiples of the logical block size, which is 4 KiB at most.
const ALIGN_BYTES: usize = 4096;

/// Length of a random read.
const RANDOM_BYTES: u64 = 4096;

/// Largest number of latencies for a median; more would not move it.
const MAX_LATENCIES: usize = 100_000;

/// The area that is read or written: the first `bytes` of a file or device.
#[derive(Clone, Copy)]
pub(super) struct Area<'f> {
    pub file: &'f File,
    /// A multiple of `block_bytes`.
    pub bytes: u64,
    /// Length of a sequential request.
    pub block_bytes: u64,
    /// True if reads go through the page cache, from which the data must be dropped.
    pub is_cached: bool,
}

/// Writes the whole area once, and waits until it is on the device.
pub(super) fn fill(area: &Area<'_>, in_flight: u64) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let blocks = area.bytes / area.block_bytes;
    in_parallel(in_flight, |thread| {
        let mut buffer = Buffer::noise(area.block_bytes, thread);
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                return Ok(0);
            }
            area.file.write_all_at(buffer.stamped(block), block * area.block_bytes)?;
        }
    })?;
    area.file.sync_data()
}

/// Measures sequential writes in bytes a second, with the sync at the end.
pub(super) fn write_bandwidth(area: &Area<'_>, in_flight: u64, time: Duration) -> io::Result<f64> {
    let next = AtomicU64::new(0);
    let (start, blocks) = (Instant::now(), area.bytes / area.block_bytes);
    let written = in_parallel(in_flight, |thread| {
        let mut buffer = Buffer::noise(area.block_bytes, thread);
        let mut written = 0;
        while written == 0 || start.elapsed() < time {
            let request = next.fetch_add(1, Ordering::Relaxed);
            let offset = request % blocks * area.block_bytes;
            area.file.write_all_at(buffer.stamped(request), offset)?;
            written += area.block_bytes;
        }
        Ok(written)
    })?;
    area.file.sync_data()?;
    Ok(written as f64 / start.elapsed().as_secs_f64())
}

/// Measures sequential reads in bytes a second.
pub(super) fn read_bandwidth(area: &Area<'_>, in_flight: u64, time: Duration) -> io::Result<f64> {
    area.forget(0, area.bytes)?;
    let next = AtomicU64::new(0);
    let (start, blocks) = (Instant::now(), area.bytes / area.block_bytes);
    let read = in_parallel(in_flight, |_| {
        let mut buffer = Buffer::new(area.block_bytes);
        let mut read = 0;
        while read == 0 || start.elapsed() < time {
            let block = next.fetch_add(1, Ordering::Relaxed) % blocks;
            area.read(&mut buffer, block * area.block_bytes)?;
            read += area.block_bytes;
        }
        Ok(read)
    })?;
    Ok(read as f64 / start.elapsed().as_secs_f64())
}

/// Measures random reads of 4 KiB a second.
pub(super) fn random_reads(area: &Area<'_>, in_flight: u64, time: Duration) -> io::Result<f64> {
    area.forget(0, area.bytes)?;
    let start = Instant::now();
    let requests = in_parallel(in_flight, |thread| {
        let mut buffer = Buffer::new(RANDOM_BYTES);
        let mut random = Random::new(thread);
        let mut requests = 0;
        while requests == 0 || start.elapsed() < time {
            area.read(&mut buffer, random.offset(area.bytes))?;
            requests += 1;
        }
        Ok(requests)
    })?;
    Ok(requests as f64 / start.elapsed().as_secs_f64())
}

/// Measures the median time in seconds of a random read of 4 KiB.
pub(super) fn idle_latency(area: &Area<'_>, time: Duration) -> io::Result<f64> {
    area.forget(0, area.bytes)?;
    let start = Instant::now();
    let mut buffer = Buffer::new(RANDOM_BYTES);
    let mut random = Random::new(0);
    let mut latencies = Vec::new();
    while latencies.is_empty() || (start.elapsed() < time && latencies.len() < MAX_LATENCIES) {
        let offset = random.offset(area.bytes);
        let before = Instant::now();
        area.read_kept(&mut buffer, offset)?;
        latencies.push(before.elapsed());
        area.forget(offset, RANDOM_BYTES)?;
    }
    let middle = latencies.len() / 2;
    let (_, median, _) = latencies.select_nth_unstable(middle);
    Ok(median.as_secs_f64())
}

impl Area<'_> {
    fn read(&self, buffer: &mut Buffer, offset: u64) -> io::Result<()> {
        self.read_kept(buffer, offset)?;
        self.forget(offset, buffer.len as u64)
    }

    fn read_kept(&self, buffer: &mut Buffer, offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer.bytes(), offset)
    }

    /// Drops a part of the file from the page cache, if reads go through it.
    fn forget(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.is_cached {
            rustix::fs::fadvise(self.file, offset, NonZeroU64::new(bytes), Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// Runs `work` in `threads` threads, and returns the sum of their results.
fn in_parallel(threads: u64, work: impl Fn(u64) -> io::Result<u64> + Sync) -> io::Result<u64> {
    std::thread::scope(|scope| {
        let work = &work;
        let spawn = |thread| std::thread::Builder::new().spawn_scoped(scope, move || work(thread));
        let running: Vec<_> = (0..threads).map(spawn).collect::<io::Result<_>>()?;
        // The errors are read after all threads have ended.
        let results: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        results.into_iter().try_fold(0u64, |sum, result| {
            let amount = result.map_err(|_| io::Error::other("a thread panicked"))??;
            Ok(sum + amount)
        })
    })
}

/// Memory at a multiple of [`ALIGN_BYTES`].
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(bytes: u64) -> Self {
        let len = bytes as usize;
        let memory = vec![0; len + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        Self { memory, start, len }
    }

    /// Makes a buffer of bytes that file systems and devices cannot compress.
    fn noise(bytes: u64, seed: u64) -> Self {
        let mut buffer = Self::new(bytes);
        let mut random = Random::new(seed);
        for word in buffer.bytes().chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        buffer
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    /// Writes the number of the request into each 4 KiB of the noise, so that all blocks differ and cannot be
    /// deduplicated.
    fn stamped(&mut self, request: u64) -> &[u8] {
        for page in self.bytes().chunks_exact_mut(ALIGN_BYTES) {
            page[..8].copy_from_slice(&request.to_le_bytes());
        }
        self.bytes()
    }
}

/// xorshift64*: random enough for an access pattern, and the same in each run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns the offset of a random read within `bytes`.
    fn offset(&mut self, bytes: u64) -> u64 {
        (self.next() >> 16) % (bytes / RANDOM_BYTES).max(1) * RANDOM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_aligned_and_no_two_pages_are_alike() {
        let mut buffers: Vec<_> = (0..4).map(|seed| Buffer::noise(1 << 16, seed)).collect();
        let mut pages = std::collections::BTreeSet::new();
        for (request, buffer) in buffers.iter_mut().enumerate() {
            let bytes = buffer.stamped(request as u64);
            assert_eq!(bytes.as_ptr().align_offset(ALIGN_BYTES), 0);
            for page in bytes.chunks(ALIGN_BYTES) {
                assert!(pages.insert(page.to_vec()));
            }
        }
        assert_eq!(pages.len(), 4 * 16);
    }

    #[test]
    fn random_offsets_are_aligned_and_reach_everywhere() {
        let mut random = Random::new(3);
        let mut seen = [false; 8];
        for _ in 0..1000 {
            let offset = random.offset(8 * RANDOM_BYTES);
            assert_eq!(offset % RANDOM_BYTES, 0);
            seen[(offset / RANDOM_BYTES) as usize] = true;
        }
        assert_eq!(seen, [true; 8]);
    }

    #[test]
    fn every_measurement_returns_a_rate() {
        let file = tempfile::tempfile().expect("a temporary file");
        let area = Area { file: &file, bytes: 4 << 20, block_bytes: 1 << 20, is_cached: true };
        fill(&area, 2).expect("writable");
        assert_eq!(file.metadata().expect("a file").len(), 4 << 20);
        let time = Duration::from_millis(20);
        for rate in [
            write_bandwidth(&area, 2, time),
            read_bandwidth(&area, 2, time),
            random_reads(&area, 2, time),
            idle_latency(&area, time),
        ] {
            let rate = rate.expect("it works");
            assert!(rate.is_finite() && rate > 0.0, "{rate}");
        }
        let short = Area { bytes: 8 << 20, ..area };
        // A slow disk reaches the end of the file late; the first read beyond it ends the measurement.
        let long = Duration::from_secs(60);
        assert!(read_bandwidth(&short, 2, long).is_err(), "reads beyond the end fail");
    }
}
