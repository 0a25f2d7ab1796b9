//! Memory, storage and processors of a device: `HOST-RESOURCES-MIB` (RFC 2790).

use super::names::distinct;
use super::oid::Oid;
use super::unknown::{Reading, Unknown};
use super::value::Value;
use super::walk::Walk;

/// `hrStorageType`, `hrStorageDescr`, `hrStorageAllocationUnits`, `hrStorageSize`, `hrStorageUsed`.
pub(super) const STORAGE_COLUMNS: [&[u32]; 5] = [
    &[1, 3, 6, 1, 2, 1, 25, 2, 3, 1, 2],
    &[1, 3, 6, 1, 2, 1, 25, 2, 3, 1, 3],
    &[1, 3, 6, 1, 2, 1, 25, 2, 3, 1, 4],
    &[1, 3, 6, 1, 2, 1, 25, 2, 3, 1, 5],
    &[1, 3, 6, 1, 2, 1, 25, 2, 3, 1, 6],
];

/// `hrProcessorLoad`.
pub(super) const PROCESSOR_COLUMNS: [&[u32]; 1] = [&[1, 3, 6, 1, 2, 1, 25, 3, 3, 1, 2]];

/// `hrStorageRam`: the type of main memory.
const RAM: &[u32] = &[1, 3, 6, 1, 2, 1, 25, 2, 1, 2];

/// A storage of a device: memory, a file system, or a pool of buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// Its description, with the index where several have one.
    pub name: String,
    /// True for main memory.
    pub is_memory: bool,
    /// Its size.
    pub size_bytes: Reading<u64>,
    /// The part in use.
    pub used_bytes: Reading<u64>,
}

/// A processor of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// The index of the device.
    pub index: u32,
    /// The busy share of its time in the last minute.
    pub busy_ratio: Reading<f64>,
}

/// Makes the storages of a poll.
pub(super) fn storages(walk: &Walk) -> Vec<Storage> {
    let rows = walk.rows();
    let name = |row: &Vec<u32>| {
        let named = walk.text(1, row).ok().filter(|name| !name.is_empty());
        named.unwrap_or_else(|| format!("~{}", row.first().copied().unwrap_or(0)))
    };
    let names = distinct(rows.iter().map(|row| (*row, name(row))));
    let storage = |(row, name): (&Vec<u32>, String)| {
        let ram: Oid = RAM.into();
        let is_memory = walk.cell(0, row).is_ok_and(|cell| cell.value == Value::Oid(ram));
        let bytes = |column| {
            let units = walk.unsigned(2, row)?;
            walk.unsigned(column, row)?.checked_mul(units).ok_or(Unknown::WrongType)
        };
        Storage { name, is_memory, size_bytes: bytes(3), used_bytes: bytes(4) }
    };
    rows.into_iter().zip(names).map(storage).collect()
}

/// Makes the processors of a poll.
pub(super) fn processors(walk: &Walk) -> Vec<Processor> {
    let processor = |row: &Vec<u32>| {
        let busy_ratio = match walk.integer(0, row) {
            Ok(percent @ 0..=100) => Ok(f64::from(percent) / 100.0),
            Ok(_) => Err(Unknown::WrongType),
            Err(why) => Err(why),
        };
        Processor { index: row.first().copied().unwrap_or(0), busy_ratio }
    };
    walk.rows().into_iter().map(processor).collect()
}
