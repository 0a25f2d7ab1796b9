//! Records that the programs send through the ring, with the layout of `bpf/processes.h`.

use crate::bytes::{u32_at, u64_at};
use crate::sys::{Pid, Status};

const FORKED: u32 = 1;
const EXECUTED: u32 = 2;
const EXITED: u32 = 3;
const LEFT_CPU: u32 = 4;
const PATH: u32 = 5;

/// Offsets of the name and the command line.
const NAME_AT: usize = 8;
const COMMAND_AT: usize = 24;

/// One record. Times are those of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Forked {
        process: Pid,
        parent: Pid,
        /// The process runs in its parent's memory.
        is_vfork: bool,
        at_nanos: u64,
    },
    /// The name and each word of the command line end with a zero.
    Executed { process: Pid, name: &'a [u8], command: &'a [u8] },
    Exited {
        process: Pid,
        at_nanos: u64,
        status: Status,
        cpu_nanos: u64,
        read: u64,
        written: u64,
        memory: Option<Pages>,
        own: OwnCounts,
    },
    /// The path of a file from its end, with a zero after each part.
    Path { row: u32, names: &'a [u8] },
    /// The process has left its processor for good, and its processor time is final.
    LeftCpu { process: Pid, cpu_nanos: u64 },
}

/// The kernel's counts of a process, without its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnCounts {
    pub(super) opens: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

/// Memory of an exiting process, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// The kernel's peak, which lags by the pages that processors hold back.
    pub(super) resident_max: u64,
    /// The present size, exact.
    pub(super) resident: u64,
    pub(super) virtual_max: u64,
}

/// Parses a record.
pub(super) fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let half = |at: usize| u32_at(bytes, at);
    let word = |at: usize| u64_at(bytes, at);
    let process = half(4)?.cast_signed();
    Some(match half(0)? {
        FORKED => Record::Forked {
            process,
            parent: half(8)?.cast_signed(),
            is_vfork: half(12)? != 0,
            at_nanos: word(16)?,
        },
        EXECUTED => Record::Executed {
            process,
            name: bytes.get(NAME_AT..COMMAND_AT)?,
            command: bytes.get(COMMAND_AT..)?,
        },
        EXITED => {
            let code = half(16)?.cast_signed();
            let pages =
                Pages { resident_max: word(48)?, resident: word(56)?, virtual_max: word(64)? };
            Record::Exited {
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
        LEFT_CPU => Record::LeftCpu { process, cpu_nanos: word(8)? },
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
    fn each_kind_is_parsed_and_truncated_records_are_refused() {
        let code = |code: u64, has_memory: u64| code | has_memory << 32;
        let ended = bytes([EXITED, 7], &[1, code(3 << 8, 1), 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]);
        let pages = Pages { resident_max: 5, resident: 6, virtual_max: 8 };
        let (at_nanos, cpu_nanos, read, written) = (1, 2, 3, 4);
        let of = |status, memory| {
            let own = OwnCounts { opens: 9, read: 10, written: 11, reads: 12, writes: 13 };
            let process = 7;
            Some(Record::Exited {
                process,
                at_nanos,
                status,
                cpu_nanos,
                read,
                written,
                memory,
                own,
            })
        };
        assert_eq!(parse(&ended), of(Status::Exited(3), Some(pages)));
        let killed =
            bytes([EXITED, 7], &[1, code(0x80 | 11, 0), 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]);
        assert_eq!(parse(&killed), of(Status::Signalled(11), None));
        let born = bytes([FORKED, 7], &[6 | 1 << 32, 9]);
        let of = Record::Forked { process: 7, parent: 6, is_vfork: true, at_nanos: 9 };
        assert_eq!(parse(&born), Some(of));
        let left = bytes([LEFT_CPU, 7], &[9]);
        assert_eq!(parse(&left), Some(Record::LeftCpu { process: 7, cpu_nanos: 9 }));
        for whole in [ended, born, left] {
            assert!((0..whole.len()).all(|end| parse(&whole[..end]).is_none()));
        }
        let mut became = bytes([EXECUTED, 7], &[0, 0]);
        became.extend(b"sh\0-c\0");
        let Some(Record::Executed { command, .. }) = parse(&became) else { panic!("a program") };
        assert_eq!(command, b"sh\0-c\0");
        assert_eq!(parse(&bytes([PATH, 7], &[0])), Some(Record::Path { row: 7, names: &[0; 8] }));
        assert_eq!(parse(&bytes([6, 7], &[0; 9])), None);
    }
}
