//! The memory that programs in the kernel share with a sensor: slots for devices, interfaces or file systems. The layout
//! is that of `bpf/slots.h`, in words of 32 bits.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use skopos_bpf::Memory;

use crate::sensor::Skip;

/// Number of slots: `SLOTS` of the programs.
pub(crate) const SLOTS: usize = 64;

/// The words before the slots.
const HEADER_WORDS: usize = 8;
const MASK: usize = 0;
const BEYOND: usize = 1;
const LOST: usize = 2;

/// The words of a slot; the first one is its number.
const SLOT_WORDS: usize = 8;

/// The slots.
pub(crate) struct Slots {
    memory: Memory,
}

impl Slots {
    /// Takes the shared memory of a program.
    ///
    /// # Errors
    /// The memory is shorter than the layout.
    pub(crate) fn new(memory: Memory) -> Result<Self, String> {
        match memory.len() >= HEADER_WORDS + SLOTS * SLOT_WORDS {
            true => Ok(Self { memory }),
            false => Err(format!("the programs share {} words only", memory.len())),
        }
    }

    /// Returns the number in a slot; `None` if the slot is free.
    pub(crate) fn number(&self, slot: usize) -> Option<u32> {
        let number = self.at(slot, 0).load(Relaxed);
        if number == 0 { None } else { Some(number) }
    }

    /// Returns one of the words of a slot that its program has.
    pub(crate) fn word(&self, slot: usize, word: usize) -> u32 {
        self.at(slot, 1 + word).load(Relaxed)
    }

    /// Frees a slot whose thing is gone.
    pub(crate) fn free(&self, slot: usize) {
        (1..SLOT_WORDS).chain([0]).for_each(|word| self.at(slot, word).store(0, Relaxed));
    }

    /// Measures one event in `mask + 1` from now on.
    pub(crate) fn set_mask(&self, mask: u32) {
        self.memory[MASK].store(mask, Relaxed);
    }

    /// Returns the skips of `family`: events that were not measured.
    pub(crate) fn skips(&self, family: &str, things: &str) -> Vec<Skip> {
        let counts = [
            (BEYOND, format!("events of {things} beyond {SLOTS}")),
            (LOST, "events whose begin could not be kept: too many are under way".to_owned()),
        ];
        let counted = counts.into_iter().filter_map(|(word, what)| {
            let count = self.memory[word].load(Relaxed);
            (count > 0).then(|| Skip::new(format!("{family}/*"), format!("{count} {what}")))
        });
        counted.collect()
    }

    fn at(&self, slot: usize, word: usize) -> &AtomicU32 {
        &self.memory[HEADER_WORDS + slot * SLOT_WORDS + word]
    }
}
