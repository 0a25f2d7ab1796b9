//! `sockets`: sockets and their memory, from `/proc/net/sockstat` and `sockstat6` (proc(5)).

use std::io;

use skopos_model::schema::sockets::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The unit in which the kernel counts.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Count,
    Pages,
}

/// The name before the colon, the word before the number, its unit, and the metric that it feeds.
static FIELDS: [(&[u8], &[u8], Unit, &Metric); 13] = [
    (b"sockets", b"used", Unit::Count, &USED),
    (b"TCP", b"inuse", Unit::Count, &TCP_IN_USE),
    (b"TCP", b"orphan", Unit::Count, &TCP_ORPHANED),
    (b"TCP", b"tw", Unit::Count, &TCP_TIME_WAIT),
    (b"TCP", b"alloc", Unit::Count, &TCP_ALLOCATED),
    (b"TCP", b"mem", Unit::Pages, &TCP_MEMORY_BYTES),
    (b"UDP", b"inuse", Unit::Count, &UDP_IN_USE),
    (b"UDP", b"mem", Unit::Pages, &UDP_MEMORY_BYTES),
    (b"RAW", b"inuse", Unit::Count, &RAW_IN_USE),
    (b"FRAG", b"memory", Unit::Count, &FRAGMENT_MEMORY_BYTES),
    (b"TCP6", b"inuse", Unit::Count, &TCP6_IN_USE),
    (b"UDP6", b"inuse", Unit::Count, &UDP6_IN_USE),
    (b"RAW6", b"inuse", Unit::Count, &RAW6_IN_USE),
];

pub(crate) struct Sockets {
    v4: KernelFile,
    /// Absent where IPv6 is off.
    v6: Option<KernelFile>,
    facts: Facts,
    page_bytes: u64,
}

impl Sockets {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            v4: KernelFile::open_or_skip(&root.proc.join("net/sockstat"), "sockets")?,
            v6: KernelFile::open(&root.proc.join("net/sockstat6")).ok(),
            facts: Facts::of_node(&sockets::FAMILY),
            page_bytes: rustix::param::page_size() as u64,
        })
    }
}

impl Sensor for Sockets {
    fn family(&self) -> &'static Family {
        &sockets::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        for file in [Some(&mut self.v4), self.v6.as_mut()].into_iter().flatten() {
            // "TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 155"
            for line in parse::lines(file.read_record()?) {
                let Some((protocol, rest)) = parse::split_once(line, b':') else { continue };
                let mut words = parse::words(rest);
                while let (Some(word), Some(number)) = (words.next(), words.next()) {
                    let field = FIELDS.iter().find(|(p, w, ..)| *p == protocol && *w == word);
                    let Some((_, _, unit, metric)) = field else { continue };
                    let scale = if *unit == Unit::Pages { self.page_bytes } else { 1 };
                    if let Some(value) = parse::u64(number).and_then(|n| n.checked_mul(scale)) {
                        self.facts.set(tick, metric, value);
                    }
                }
            }
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        match self.v6 {
            Some(_) => Vec::new(),
            None => vec![Skip::new("sockets/*6_in_use", "IPv6 is off: no /proc/net/sockstat6")],
        }
    }
}
