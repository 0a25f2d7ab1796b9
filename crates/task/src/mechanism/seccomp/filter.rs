//! The seccomp filter. It suspends system calls that close a descriptor, duplicate one, or move its
//! position without moving bytes. It never suspends reads and writes.

use crate::sys::seccomp::Instruction;

/// Calls that are always suspended.
#[cfg(target_arch = "x86_64")]
const CALLS: [i64; 8] = [
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit_group,
];

/// Instructions, as in `linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const CALL_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const fn argument_at(n: u32) -> u32 {
    16 + 8 * n
}

/// AUDIT_ARCH_X86_64.
const X86_64: u32 = 0xc000_003e;

/// Returns the reason why there is no filter for this processor: restarting an interrupted call
/// needs its registers.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn program() -> Result<Vec<Instruction>, &'static str> {
    Err("it supports x86-64 only")
}

/// True if the filter suspends a call with this number and second argument.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn is_filtered(_call: i64, _second: u64) -> bool {
    false
}

/// True if the filter may suspend a call with this number and second argument. `lseek` depends on
/// more.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_filtered(call: i64, second: u64) -> bool {
    let duplicates = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].map(|c| u64::from(c.unsigned_abs()));
    CALLS.contains(&call)
        || call == libc::SYS_lseek
        || call == libc::SYS_fcntl && duplicates.contains(&second)
}

/// Returns the filter. Calls of other architectures pass unseen.
#[cfg(target_arch = "x86_64")]
pub(super) fn program() -> Result<Vec<Instruction>, &'static str> {
    let load = |k| Instruction { code: LOAD, if_true: 0, if_false: 0, k };
    let back = |k| Instruction { code: RETURN, if_true: 0, if_false: 0, k };
    let equal = |k, if_true, if_false| Instruction { code: JUMP_IF_EQUAL, if_true, if_false, k };
    let (ask, pass) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
    let few = CALLS.len() as u8;
    let mut program = vec![load(ARCHITECTURE_AT), equal(X86_64, 1, 0), back(pass), load(CALL_AT)];
    // The results follow: `ask`, then the two calls that depend on their arguments.
    let at_ask = few + 3;
    for (n, call) in (0..).zip(CALLS) {
        program.push(equal(call as u32, at_ask - n - 1, 0));
    }
    program.extend([
        equal(libc::SYS_fcntl as u32, 3, 0),
        equal(libc::SYS_lseek as u32, 7, 0),
        back(pass),
        back(ask),
        // fcntl: only if it duplicates a descriptor.
        load(argument_at(1)),
        equal(libc::F_DUPFD.unsigned_abs(), 2, 0),
        equal(libc::F_DUPFD_CLOEXEC.unsigned_abs(), 1, 0),
        back(pass),
        back(ask),
        // lseek: unless it only queries the position.
        load(argument_at(2)),
        equal(libc::SEEK_CUR.unsigned_abs(), 0, 4),
        load(argument_at(1)),
        equal(0, 0, 2),
        load(argument_at(1) + 4),
        equal(0, 1, 0),
        back(ask),
        back(pass),
    ]);
    Ok(program)
}
