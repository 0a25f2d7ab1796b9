//! A valid segment with random damage, many thousand times: reading it returns errors and never panics or
//! hangs.
//!
//! `SKOPOS_TEST_MUTATIONS` sets the number of mutations. The fuzz targets search deeper, with coverage.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, channel};

use skopos_model::SplitMix64;
use skopos_shm::{Error, Publisher, Segment};

use crate::hostile::{Specimen, offset, read_everything, specimen};
use crate::support::{PATIENCE, runtime_dir, seed};

const MUTATIONS: u64 = 20_000;

/// Numbers that often break bounds checks.
const INTERESTING: [u64; 12] = [
    0,
    1,
    7,
    63,
    64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Picks an offset where damage matters: in the header, the used entries, the groups, or the start of the
/// heap.
fn somewhere(random: &mut SplitMix64, whole: u64) -> u64 {
    let (from, length) = match random.below(5) {
        0 => (8, 304),
        1 => (4096, 4 * 128),
        2 => (offset::DIRECTORY, 4 * offset::ENTRY_BYTES),
        3 => (offset::DIRECTORY + 8 * offset::ENTRY_BYTES, 4096),
        _ => (0, whole),
    };
    (from + random.below(length as usize) as u64).min(whole - 8)
}

fn mutate(random: &mut SplitMix64, bytes: &mut [u8]) -> String {
    let mut done = String::new();
    for _ in 0..=random.below(4) {
        let mut at = somewhere(random, bytes.len() as u64) as usize;
        let how = random.below(4);
        let value = match how {
            0 => {
                bytes[at] ^= 1 << random.below(8);
                u64::from(bytes[at])
            }
            1 => {
                bytes[at] = random.bits() as u8;
                u64::from(bytes[at])
            }
            2 => {
                at &= !3;
                let word = INTERESTING[random.below(12)] as u32;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                u64::from(word)
            }
            _ => {
                at &= !7;
                let near = INTERESTING[random.below(12)];
                let word = near.wrapping_add(random.below(3) as u64).wrapping_sub(1);
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
                word
            }
        };
        done += &format!("{at}: {value:#x}; ");
    }
    done
}

/// Opens and reads the bytes without output; returns whether that worked and the number of values.
fn try_one(specimen: &Specimen, bytes: &[u8]) -> (bool, usize) {
    fs::write(&specimen.path, bytes).expect("our own file");
    match read_everything(&specimen.path) {
        Ok(values) => (true, values),
        Err(_) => (false, 0),
    }
}

#[test]
fn random_damage_never_hurts_a_reader() {
    let seed = seed("mutations");
    let count = std::env::var("SKOPOS_TEST_MUTATIONS").ok().and_then(|c| c.parse().ok());
    let count = count.unwrap_or(MUTATIONS);
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || {
        let specimen = specimen();
        let mut random = SplitMix64::new(seed);
        let (mut opened, mut values) = (0, 0);
        for number in 0..count {
            let mut bytes = specimen.bytes.clone();
            let damage = mutate(&mut random, &mut bytes);
            let _ = sender.send((number, damage));
            let (open, read) = try_one(&specimen, &bytes);
            opened += u64::from(open);
            values += read;
        }
        (opened, values)
    });
    let mut last = (0, String::new());
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(now) => last = now,
            Err(RecvTimeoutError::Timeout) => panic!("hangs, seed {seed}, mutation {last:?}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let (opened, values) = worker.join().unwrap_or_else(|_| panic!("seed {seed}, {last:?}"));
    println!("mutations: {count}, of which {opened} still opened and gave {values} values");
    assert!(opened > count / 10, "nearly all damage was refused at once, so little was tested");
    assert!(opened < count, "no damage was ever refused");
}

/// The page of flags is gone with its publisher, and the id in the header may be of another page: waiting
/// then polls instead of sleeping.
#[test]
fn a_wrong_page_of_flags_only_slows_waiting() {
    let other_dir = runtime_dir();
    let other =
        Publisher::builder("other").dir(other_dir.path()).create().expect("an empty directory");
    let others_id = id_of_flags(&std::fs::read(other.path()).expect("our own file"));
    let specimen = specimen();
    for id in [id_of_flags(&specimen.bytes), others_id, -1, 0, i32::MAX, i32::MIN] {
        specimen.damage(FLAGS_ID as u64, &id.to_le_bytes());
        let segment = Segment::open(&specimen.path).expect("the segment is valid");
        let vertex = segment.vertices().remove(0);
        let timeout = std::time::Duration::from_millis(3);
        let waited = vertex.subscribe().next_timeout(timeout);
        // Nobody holds the lock of a copy.
        assert!(matches!(waited, Err(Error::Gone(_))), "{id}");
    }
    assert_eq!(raised_flags(others_id), 0, "flags of another segment were raised");
}

/// Counts the raised flags among the first entries of page `id`.
fn raised_flags(id: i32) -> usize {
    // SAFETY: attaching overlaps no other memory.
    let page = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
    assert_ne!(page.addr(), usize::MAX, "our own page");
    // SAFETY: the page of a publisher with default limits has flags for thousands of entries from
    // byte 128 on, and no process writes them any more.
    let flags = unsafe { std::slice::from_raw_parts(page.byte_add(128).cast::<u32>(), 8) };
    let raised = flags.iter().filter(|flag| **flag != 0).count();
    // SAFETY: attached above; `flags` is no longer used.
    unsafe { libc::shmdt(page) };
    raised
}

/// Offset of `flags_id` in the header.
const FLAGS_ID: usize = 240;

fn id_of_flags(segment: &[u8]) -> i32 {
    i32::from_le_bytes(std::array::from_fn(|i| segment[FLAGS_ID + i]))
}
