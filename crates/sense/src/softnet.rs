//! `softnet`: the queues of received packets between the drivers and the protocols, from `/proc/net/softnet_stat`
//! (net/core/net-procfs.c).
//!
//! A line for each core that is online, of hexadecimal numbers: handled packets, drops because the queue was full, rounds
//! that ended with packets left, six that mean nothing now, packets steered here by another core, drops by the limit on
//! flows, and since 5.10 the length of the queue.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::softnet::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The columns that are summed over cores.
const HANDLED: usize = 0;
const DROPPED: usize = 1;
const SQUEEZED: usize = 2;
const STEERED: usize = 9;
const FLOW_LIMITED: usize = 10;
const BACKLOG: usize = 11;
const COLUMNS: usize = 12;

pub(crate) struct Softnet {
    file: KernelFile,
    facts: Facts,
}

impl Softnet {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let file = KernelFile::open_or_skip(&root.proc.join("net/softnet_stat"), "softnet")?;
        Ok(Self { file, facts: Facts::of_node(&softnet::FAMILY) })
    }
}

impl Sensor for Softnet {
    fn family(&self) -> &'static Family {
        &softnet::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { file, facts } = self;
        let mut sums = [None::<u64>; COLUMNS];
        let mut backlog_max = None::<u64>;
        for line in parse::lines(file.read()?) {
            for (column, word) in parse::words(line).take(COLUMNS).enumerate() {
                let Some(number) = hexadecimal(word) else { break };
                sums[column] = Some(sums[column].unwrap_or(0).saturating_add(number));
                if column == BACKLOG {
                    backlog_max = backlog_max.max(Some(number));
                }
            }
        }
        for (column, metric) in [
            (HANDLED, &HANDLED_TOTAL),
            (DROPPED, &DROPPED_TOTAL),
            (SQUEEZED, &SQUEEZED_TOTAL),
            (STEERED, &STEERED_TOTAL),
            (FLOW_LIMITED, &FLOW_LIMITED_TOTAL),
            (BACKLOG, &BACKLOG_PACKETS),
        ] {
            if let Some(sum) = sums[column] {
                facts.set(tick, metric, sum);
            }
        }
        if let Some(most) = backlog_max {
            facts.set(tick, &BACKLOG_PACKETS_MAX, most);
        }
        Ok(())
    }
}

/// Reads a hexadecimal number without prefix that fills `word`.
fn hexadecimal(word: &[u8]) -> Option<u64> {
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(number.checked_mul(16)? + u64::from(digit))
    })
}
