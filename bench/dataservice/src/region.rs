//! Memory for bulk transfers: a file in memory that an origin fills and passes to its targets once, which then read and
//! write it at offsets. It stands for remote memory access; no byte of it travels over a socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

use crate::error::{Error, Result};
use crate::message::MAX_BODY_BYTES;

/// Bytes of an origin's region. The file is sparse: untouched parts cost nothing. A client of the largest case has
/// 4,096 calls of 4 KiB in flight.
const REGION_BYTES: u64 = 256 << 20;

/// Places are multiples of a page, so that two calls do not share one.
const PAGE_BYTES: u64 = 4096;

/// An origin's region.
#[derive(Debug)]
pub struct Region {
    file: File,
    /// Free places: offset and length, without neighbours that touch.
    free: Mutex<BTreeMap<u64, u64>>,
}

impl Region {
    /// Makes an empty region.
    ///
    /// # Errors
    /// The system has no memory or no file descriptor left.
    pub fn new() -> Result<Arc<Self>> {
        let descriptor = memfd_create("skopos-dataservice", MemfdFlags::CLOEXEC)
            .map_err(Error::system("make memory for bulk transfers"))?;
        ftruncate(&descriptor, REGION_BYTES)
            .map_err(Error::system("size memory for bulk transfers"))?;
        let free = Mutex::new(BTreeMap::from([(0, REGION_BYTES)]));
        Ok(Arc::new(Self { file: File::from(descriptor), free }))
    }

    /// Takes a place of at least `bytes`; it is free again when it is dropped.
    ///
    /// # Errors
    /// All places are in use.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Place> {
        let wanted = (bytes as u64).div_ceil(PAGE_BYTES).max(1) * PAGE_BYTES;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().find(|(_, length)| **length >= wanted).map(|(at, n)| (*at, *n));
        let Some((at, length)) = found else {
            return Err(Error::RegionFull { wanted, limit: REGION_BYTES });
        };
        free.remove(&at);
        if length > wanted {
            free.insert(at + wanted, length - wanted);
        }
        Ok(Place { region: Arc::clone(self), at, length: wanted })
    }

    fn give_back(&self, at: u64, length: u64) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut length) = (at, length);
        if let Some(after) = free.remove(&(at + length)) {
            length += after;
        }
        let before = free.range(..at).next_back().map(|(start, n)| (*start, *n));
        if let Some((start, n)) = before.filter(|(start, n)| start + n == at) {
            free.remove(&start);
            (at, length) = (start, length + n);
        }
        free.insert(at, length);
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A place in an origin's region.
#[derive(Debug)]
pub struct Place {
    region: Arc<Region>,
    at: u64,
    length: u64,
}

impl Place {
    /// Offset in the region.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Writes `bytes` at the start of the place.
    ///
    /// # Errors
    /// The bytes are longer than the place, or the system has no memory.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > self.length {
            return Err(Error::RegionFull { wanted: bytes.len() as u64, limit: self.length });
        }
        self.region.file.write_all_at(bytes, self.at).map_err(Error::io("write bulk bytes"))
    }

    /// Reads the first `bytes` of the place.
    ///
    /// # Errors
    /// The place is shorter.
    pub fn read(&self, bytes: usize) -> Result<Vec<u8>> {
        if bytes as u64 > self.length {
            return Err(Error::RegionFull { wanted: bytes as u64, limit: self.length });
        }
        let mut buffer = vec![0; bytes];
        self.region
            .file
            .read_exact_at(&mut buffer, self.at)
            .map_err(Error::io("read bulk bytes"))?;
        Ok(buffer)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.region.give_back(self.at, self.length);
    }
}

/// The region of an origin, as a target sees it. Its file is another process's: it may be shorter than the origin says,
/// and change at any time.
#[derive(Debug)]
pub struct RemoteRegion {
    file: File,
}

impl RemoteRegion {
    /// Takes a descriptor that came with a hello.
    ///
    /// # Errors
    /// It is not a file.
    pub fn new(descriptor: OwnedFd) -> Result<Self> {
        let status = fstat(&descriptor).map_err(Error::system("look at the bulk region"))?;
        if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::RegularFile
        {
            return Err(Error::Message("its region is not a file"));
        }
        Ok(Self { file: File::from(descriptor) })
    }

    /// Pulls `buffer` from the origin's memory at `at`.
    ///
    /// # Errors
    /// The region is shorter.
    pub fn pull(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(Error::io("pull bulk bytes"))
    }

    /// Pulls `bytes` from the origin's memory at `at`, at most [`MAX_BODY_BYTES`].
    ///
    /// # Errors
    /// The errors of [`pull`](Self::pull); a length beyond the limit.
    pub fn pull_bytes(&self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        let length = usize::try_from(bytes).ok().filter(|n| *n <= MAX_BODY_BYTES as usize);
        let mut buffer = vec![0; length.ok_or(Error::Message("its bulk is longer than 16 MiB"))?];
        self.pull(at, &mut buffer)?;
        Ok(buffer)
    }

    /// Pushes `bytes` into the origin's memory at `at`.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn push(&self, at: u64, bytes: &[u8]) -> Result<()> {
        // A place beyond the region would make the origin's file longer, at the origin's cost.
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= REGION_BYTES);
        end.ok_or(Error::Message("its place for bulk lies outside of its region"))?;
        self.file.write_all_at(bytes, at).map_err(Error::io("push bulk bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_dropped_can_be_taken_again_as_one() {
        let region = Region::new().expect("a region");
        let places: Vec<_> = (0..8).map(|_| region.take(5000).expect("room")).collect();
        let mut starts: Vec<_> = places.iter().map(Place::at).collect();
        starts.dedup();
        assert_eq!(starts.len(), 8);
        for place in places.into_iter().rev() {
            drop(place);
        }
        let free = region.free.lock().expect("free");
        assert_eq!(*free, BTreeMap::from([(0, REGION_BYTES)]));
    }

    #[test]
    fn a_full_region_says_so() {
        let region = Region::new().expect("a region");
        let _all = region.take(REGION_BYTES as usize).expect("room");
        assert!(matches!(region.take(1), Err(Error::RegionFull { .. })));
    }

    #[test]
    fn bytes_pass_through_a_region() {
        let region = Region::new().expect("a region");
        let place = region.take(3).expect("room");
        place.write(b"abc").expect("written");
        let descriptor = region.as_fd().try_clone_to_owned().expect("a descriptor");
        let remote = RemoteRegion::new(descriptor).expect("a file");
        assert_eq!(remote.pull_bytes(place.at(), 3).expect("pulled"), b"abc");
        remote.push(place.at(), b"xyz").expect("pushed");
        assert_eq!(place.read(3).expect("read"), b"xyz");
        assert!(remote.pull_bytes(0, u64::MAX).is_err());
        assert!(remote.push(u64::MAX, b"x").is_err());
        assert!(remote.pull_bytes(REGION_BYTES - 1, 2).is_err());
    }
}
