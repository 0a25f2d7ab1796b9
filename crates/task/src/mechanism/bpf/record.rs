//! What the programs tell through the ring, as `bpf/processes.h` lays it out.

use crate::sys::{Pid, Status};

const BORN: u32 = 1;
const BECAME: u32 = 2;
const ENDED: u32 = 3;
const LEFT: u32 = 4;
const PATH: u32 = 5;

/// Where the name and the command line are.
const NAME_AT: usize = 8;
const COMMAND_AT: usize = 24;

/// One of them. Times are of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Born {
        process: Pid,
        parent: Pid,
        /// It runs in its parent's memory.
        is_guest: bool,
        at_nanos: u64,
    },
    /// The name ends with a zero, and so does each word of the command line.
    Became { process: Pid, name: &'a [u8], command: &'a [u8] },
    Ended {
        process: Pid,
        at_nanos: u64,
        status: Status,
        cpu_nanos: u64,
        read: u64,
        written: u64,
        memory: Option<Pages>,
        own: OwnCounts,
    },
    /// The name of a file from its end, each part with a zero behind it.
    Path { row: u32, names: &'a [u8] },
    /// It has left its processor for good, and its processor time is final.
    Left { process: Pid, cpu_nanos: u64 },
}

/// What a process did itself, by the kernel's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnCounts {
    pub(super) opens: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

/// Memory of a process that ends, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// The kernel's maximum, which is behind by what processors keep back.
    pub(super) resident_max: u64,
    /// Now, exactly.
    pub(super) resident: u64,
    pub(super) virtual_max: u64,
}

/// Reads one.
pub(super) fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let half = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes)
    };
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_ne_bytes)
    };
    let process = half(4)?.cast_signed();
    Some(match half(0)? {
        BORN => Record::Born {
            process,
            parent: half(8)?.cast_signed(),
            is_guest: half(12)? != 0,
            at_nanos: word(16)?,
        },
        BECAME => Record::Became {
            process,
            name: bytes.get(NAME_AT..COMMAND_AT)?,
            command: bytes.get(COMMAND_AT..)?,
        },
        ENDED => {
            let code = half(16)?.cast_signed();
            let pages =
                Pages { resident_max: word(48)?, resident: word(56)?, virtual_max: word(64)? };
            Record::Ended {
                process,
                at_nanos: word(8)?,
                status: match code & 0x7f {
                    0 => Status::Exited(code >> 8 & 0xff),
                    signal => Status::Signalled(signal),
                },
                cpu_nanos: word(24)?,
                read: word(32)?,
                written: word(40)?,
                memory: (half(20)? != 0).then_some(pages),
                own: OwnCounts {
                    opens: word(72)?,
                    read: word(80)?,
                    written: word(88)?,
                    reads: word(96)?,
                    writes: word(104)?,
                },
            }
        }
        PATH => Record::Path { row: half(4)?, names: bytes.get(8..)? },
        LEFT => Record::Left { process, cpu_nanos: word(8)? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(halves: [u32; 2], words: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_ne_bytes()).collect();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn each_kind_is_read_and_what_is_cut_short_is_not() {
        let code = |code: u64, has_memory: u64| code | has_memory << 32;
        let ended = bytes([ENDED, 7], &[1, code(3 << 8, 1), 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]);
        let pages = Pages { resident_max: 5, resident: 6, virtual_max: 8 };
        let (at_nanos, cpu_nanos, read, written) = (1, 2, 3, 4);
        let of = |status, memory| {
            let own = OwnCounts { opens: 9, read: 10, written: 11, reads: 12, writes: 13 };
            let process = 7;
            Some(Record::Ended { process, at_nanos, status, cpu_nanos, read, written, memory, own })
        };
        assert_eq!(parse(&ended), of(Status::Exited(3), Some(pages)));
        let killed =
            bytes([ENDED, 7], &[1, code(0x80 | 11, 0), 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]);
        assert_eq!(parse(&killed), of(Status::Signalled(11), None));
        let born = bytes([BORN, 7], &[6 | 1 << 32, 9]);
        let of = Record::Born { process: 7, parent: 6, is_guest: true, at_nanos: 9 };
        assert_eq!(parse(&born), Some(of));
        let left = bytes([LEFT, 7], &[9]);
        assert_eq!(parse(&left), Some(Record::Left { process: 7, cpu_nanos: 9 }));
        for whole in [ended, born, left] {
            assert!((0..whole.len()).all(|end| parse(&whole[..end]).is_none()));
        }
        let mut became = bytes([BECAME, 7], &[0, 0]);
        became.extend(b"sh\0-c\0");
        let Some(Record::Became { command, .. }) = parse(&became) else { panic!("a program") };
        assert_eq!(command, b"sh\0-c\0");
        assert_eq!(parse(&bytes([PATH, 7], &[0])), Some(Record::Path { row: 7, names: &[0; 8] }));
        assert_eq!(parse(&bytes([6, 7], &[0; 9])), None);
    }
}
