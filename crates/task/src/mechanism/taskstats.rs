//! Taskstats: the kernel sends administrators an account of every thread that exits on the machine,
//! with its delays and their causes (`linux/taskstats.h`,
//! Documentation/accounting/delay-accounting.rst).
//!
//! The accounts alone show which of them belong to the task: each names its process and the parent
//! of that. Delays of exited children are added to their parent until its own account arrives; the
//! accounts of the task end at the monitor, which also adopts orphans. So no single account is
//! kept, and the number of sums is bounded by that of living processes.
//!
//! An account is written before the thread is taken down. For short processes its processor time is
//! too low by a tenth or more, so it is not offered: other mechanisms know the exact time.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::AddAssign;
use std::os::fd::BorrowedFd;

use skopos_model::task::Completeness;

use super::reasons::{NO_KERNEL_IDS, lost_messages, still_running};
use super::{Launch, Mechanism};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::ledger::{Ledger, Offer};
use crate::proc;
use crate::sys::netlink::{self, Netlink, attribute, attributes};

/// The name in reports.
pub(crate) const NAME: &str = "taskstats";

/// Size of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;
/// `GENL_ID_CTRL`, its request `CTRL_CMD_GETFAMILY` and attributes of family id and name.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `TASKSTATS_CMD_GET`, and the attribute that registers a set of processors.
const GET: u8 = 1;
const REGISTER: u16 = 3;
/// Attributes of an account: the structure, and the group that contains it and the id.
const STATS: u16 = 3;
const OF_THREAD: u16 = 4;

/// The first version whose accounts name the process.
const HAS_PROCESS: u16 = 12;
/// In this version fields moved; the next version moved them back.
const MOVED: u16 = 15;
/// Flag `AGROUP`: the account of the last thread of its process.
const LAST: u8 = 0x20;

/// Offsets of fields.
const FLAG: usize = 8;
const CPU: usize = 24;
const STORAGE: usize = 40;
const SWAP: usize = 56;
const PARENT: usize = 132;
const LIFE_MICROS: usize = 144;
const RECLAIM: usize = 320;
const THRASHING: usize = 336;
const COMPACTION: usize = 360;
const PROCESS: usize = 368;
const COPIES: usize = 408;

/// The most by which the clocks of a thread's life and of its delays differ.
const LIFE_SLACK_MICROS: u64 = 10_000;

/// The most processes for which children's delays are kept. A machine has this many processes at
/// most (`PID_MAX_LIMIT` on 64 bits), and few of them have exited children.
const MAX_PARENTS: usize = 1 << 16;

/// The most messages that are read at once. A busy machine may send messages without end.
const MAX_AT_ONCE: usize = 4096;

#[derive(Default)]
pub(crate) struct Taskstats {
    socket: Option<Netlink>,
    own: u32,
    /// Delays of exited threads and children of processes that are still alive.
    waiting: HashMap<u32, Delays>,
    of_task: Delays,
    accounts: u64,
    /// Number of times that messages were lost or exceeded the limit.
    lost: u64,
    /// Number of accounts with a delay that was longer than the thread's life.
    implausible: u64,
    /// Set if the kernel accounts for delays other than those by processors.
    accounts_for_delays: bool,
}

/// Sums of delays, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Delays {
    cpu: u64,
    storage: u64,
    memory: u64,
}

impl AddAssign for Delays {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.storage += other.storage;
        self.memory += other.memory;
    }
}

/// The account of an exited thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    process: u32,
    parent: u32,
    is_last: bool,
    delays: Delays,
    /// A delay was longer than the thread's life and is left out.
    is_implausible: bool,
}

impl Taskstats {
    fn add(&mut self, account: Account) {
        let Account { process, parent, is_last, delays, is_implausible } = account;
        let mut sum = delays;
        self.implausible += u64::from(is_implausible);
        if is_last {
            sum += self.waiting.remove(&process).unwrap_or_default();
        }
        self.accounts += 1;
        let to = if is_last { parent } else { process };
        if is_last && parent == self.own {
            self.of_task += sum;
        } else if self.waiting.contains_key(&to) || self.waiting.len() < MAX_PARENTS {
            *self.waiting.entry(to).or_default() += sum;
        } else {
            self.lost += 1;
        }
    }
}

/// Parses the account in a message.
fn parse(body: &[u8]) -> Option<Account> {
    let mut all = attributes(body.get(GENERIC_HEADER..)?);
    let (_, group) = all.find(|(kind, _)| *kind == OF_THREAD)?;
    let (_, stats) = attributes(group).find(|(kind, _)| *kind == STATS)?;
    let version = u16_at(stats, 0)?;
    if version < HAS_PROCESS || version == MOVED {
        return None;
    }
    // If the kernel missed the beginning of a wait for storage, the wait seems to last since boot.
    let life = u64_at(stats, LIFE_MICROS)?.saturating_add(LIFE_SLACK_MICROS).saturating_mul(1000);
    let mut is_implausible = false;
    let mut sum = |fields: &[usize]| {
        // Fields of later versions may be missing; they count as no delay.
        let all = fields.iter().filter_map(|at| u64_at(stats, *at));
        let (possible, implausible): (Vec<u64>, Vec<u64>) = all.partition(|nanos| *nanos <= life);
        is_implausible |= !implausible.is_empty();
        possible.into_iter().sum()
    };
    let delays = Delays {
        cpu: sum(&[CPU]),
        storage: sum(&[STORAGE]),
        memory: sum(&[SWAP, RECLAIM, THRASHING, COMPACTION, COPIES]),
    };
    Some(Account {
        process: u32_at(stats, PROCESS)?,
        parent: u32_at(stats, PARENT)?,
        is_last: stats.get(FLAG)? & LAST != 0,
        delays,
        is_implausible,
    })
}

/// Returns the list of possible processors, in the kernel's format.
fn processors() -> io::Result<Vec<u8>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let mut bytes = text.trim().as_bytes().to_vec();
    bytes.push(0);
    Ok(bytes)
}

/// Returns the number of the taskstats family.
fn family(socket: &mut Netlink) -> io::Result<u16> {
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    body.extend(attribute(FAMILY_NAME, b"TASKSTATS\0"));
    socket.send(CONTROL, &body)?;
    let none = || io::Error::other("the kernel has no taskstats");
    let answer = socket.answer().map_err(|_| none())?.ok_or_else(none)?;
    let mut all = attributes(answer.get(GENERIC_HEADER..).unwrap_or_default());
    all.find(|(kind, _)| *kind == FAMILY_ID).and_then(|(_, id)| u16_at(id, 0)).ok_or_else(none)
}

impl Mechanism for Taskstats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("accounts cover the whole life of a thread, and orphans would be missing")
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::other("the kernel sends accounts to administrators only"));
        }
        if !netlink::has_kernel_ids() {
            return Err(io::Error::other(NO_KERNEL_IDS));
        }
        self.accounts_for_delays = proc::accounts_for_delays();
        self.own = std::process::id();
        let mut socket = Netlink::open(libc::NETLINK_GENERIC, 0)?;
        let family = family(&mut socket)?;
        let mut body = vec![GET, 1, 0, 0];
        body.extend(attribute(REGISTER, &processors()?));
        // The acknowledgement of the request for the family may come first and is ignored.
        socket.send(family, &body)?;
        if let Err(e) = socket.answer() {
            return Err(io::Error::new(e.kind(), format!("the kernel does not register: {e}")));
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(Netlink::descriptor)
    }

    fn readable(&mut self, _ledger: &mut Ledger) {
        let Some(mut socket) = self.socket.take() else { return };
        let lost = socket.drain(MAX_AT_ONCE, |message| match parse(message.body) {
            _ if message.kind == netlink::ERROR => {}
            Some(account) => self.add(account),
            None => self.lost += 1,
        });
        self.lost += lost;
        self.socket = Some(socket);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.socket = None;
        let left = ledger.live_pids().len();
        let reason = match self.lost {
            _ if self.accounts == 0 => Some("the kernel sent no account".to_owned()),
            0 if self.implausible > 0 => Some(
                "excludes delays that the kernel reported as longer than the thread's life"
                    .to_owned(),
            ),
            0 => still_running(left),
            times => Some(lost_messages(times)),
        };
        let completeness = if reason.is_none() { Completeness::All } else { Completeness::AtLeast };
        let Delays { cpu, storage, memory } = self.of_task;
        for (name, nanos, is_known) in [
            ("cpu_delay_seconds", cpu, true),
            ("io_delay_seconds", storage, self.accounts_for_delays),
            ("memory_delay_seconds", memory, self.accounts_for_delays),
        ] {
            if !is_known {
                ledger.offers.mark_unavailable(name, proc::NO_DELAYS);
                continue;
            }
            let (value, reason) = (nanos as f64 / 1e9, reason.clone());
            let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
            ledger.offers.add(name, offer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(process: u32, parent: u32, is_last: bool, delay: u64) -> Vec<u8> {
        let mut stats = vec![0; 416];
        let mut put = |at: usize, bytes: &[u8]| stats[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &HAS_PROCESS.to_ne_bytes());
        put(FLAG, &[if is_last { LAST } else { 0 }]);
        put(LIFE_MICROS, &1_000_000u64.to_ne_bytes());
        put(PARENT, &parent.to_ne_bytes());
        put(PROCESS, &process.to_ne_bytes());
        for at in [CPU, STORAGE, SWAP, RECLAIM, THRASHING, COMPACTION, COPIES] {
            put(at, &delay.to_ne_bytes());
        }
        let mut group = attribute(1, &process.to_ne_bytes());
        group.extend(attribute(STATS, &stats));
        let mut body = vec![0; GENERIC_HEADER];
        body.extend(attribute(OF_THREAD, &group));
        body
    }

    #[test]
    fn accounts_of_descendants_add_up_and_those_of_others_do_not() {
        let mut taskstats = Taskstats { own: 1, ..Taskstats::default() };
        for (process, parent, is_last, delay) in [
            (30, 20, true, 1),    // a grandchild
            (20, 10, false, 10),  // a thread of its parent
            (20, 10, true, 100),  // and the last thread of that
            (99, 98, true, 7777), // not of the task
            (10, 1, true, 1000),
            (40, 1, true, 10_000), // an orphan
        ] {
            taskstats.add(parse(&stats(process, parent, is_last, delay)).expect("an account"));
        }
        let Delays { cpu, storage, memory } = taskstats.of_task;
        assert_eq!((cpu, storage, memory), (11_111, 11_111, 5 * 11_111));
        assert_eq!(taskstats.waiting.len(), 1, "the sum of the other process, for its parent");
    }

    /// Observed on a live kernel: a wait for storage since boot.
    #[test]
    fn a_delay_longer_than_a_life_is_left_out_and_reported() {
        let mut taskstats = Taskstats { own: 1, ..Taskstats::default() };
        taskstats.add(parse(&stats(5, 1, true, 3_000_000_000_000)).expect("an account"));
        taskstats.add(parse(&stats(6, 1, true, 7)).expect("an account"));
        assert_eq!(taskstats.of_task, Delays { cpu: 7, storage: 7, memory: 35 });
        let mut ledger = Ledger::new();
        taskstats.finish(&mut ledger);
        assert_eq!(ledger.offers.best("cpu_delay_seconds", "").completeness, Completeness::AtLeast);
    }

    #[test]
    fn a_truncated_account_or_an_unknown_layout_is_refused() {
        let whole = stats(3, 2, true, 5);
        assert!(parse(&whole).is_some());
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_none(), "{end}");
        }
        let mut moved = whole;
        let at = moved.len() - 416;
        moved[at..at + 2].copy_from_slice(&MOVED.to_ne_bytes());
        assert_eq!(parse(&moved), None);
    }
}
