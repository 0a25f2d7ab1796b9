//! A map of BPF programs as memory of this process.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicU32;

use aya::maps::MapData;

use crate::sys::Mapping;

/// The values of an array, one after the other, in words of 32 bits. Programs change them at any time, so reading costs
/// no system call, and two words that are read one after the other may be of different moments. A word of 64 bits of a
/// program is two of these words and can be torn.
#[derive(Debug)]
pub struct Memory(Mapping);

impl Memory {
    /// Maps the values of a map. The memory stays when `map` is closed.
    pub(crate) fn of(map: &MapData) -> io::Result<Self> {
        let info = map.info().map_err(crate::with_causes)?;
        // The kernel pads each value to 8 bytes.
        let value = (info.value_size() as usize).next_multiple_of(8);
        let bytes = value.checked_mul(info.max_entries() as usize);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
        Mapping::of_map(map.fd().as_fd(), bytes).map(Self)
    }
}

impl Deref for Memory {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        self.0.words()
    }
}
