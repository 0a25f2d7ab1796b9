//! RAPL: the energy of the processors from the start of the task to its end
//! (Documentation/power/powercap/powercap.rst). The counters cover the whole machine, including
//! other tasks.
//!
//! A counter wraps around at its range, after minutes of full load at the earliest, so it is read
//! at each sample: one wrap between two samples is detected, two are not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skopos_model::task::Completeness;

use super::{Mechanism, Sample};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "energy";

/// Path of the kernel's energy counters.
pub(crate) const POWERCAP: &str = "/sys/class/powercap";

/// The most domains that are read: sixteen sockets with memory and three parts each.
const MAX_DOMAINS: usize = 64;

/// A power that no domain reaches. If it would use up a range between two samples, a second wrap
/// may have been missed.
const MOST_WATTS: f64 = 2000.0;

/// Time between two updates of a counter, by the hardware's manual.
const UPDATE_SECONDS: f64 = 0.001;

pub(crate) struct Energy {
    folder: PathBuf,
    domains: Vec<Domain>,
    last: Option<Instant>,
    /// A domain could not be read.
    is_missing: bool,
    may_have_wrapped: bool,
}

/// A package or its memory. These do not overlap.
struct Domain {
    file: PathBuf,
    /// Microjoules at which the counter wraps around.
    range: u64,
    last: u64,
    sum: u64,
}

impl Energy {
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self { folder, domains: Vec::new(), last: None, is_missing: false, may_have_wrapped: false }
    }

    fn update(&mut self, passed: Duration) {
        for domain in &mut self.domains {
            match number(&domain.file) {
                Some(now) => domain.advance(now),
                None => self.is_missing = true,
            }
            self.may_have_wrapped |= passed.as_secs_f64() * MOST_WATTS * 1e6 > domain.range as f64;
        }
    }
}

impl Domain {
    fn advance(&mut self, now: u64) {
        let more = match now.checked_sub(self.last) {
            Some(more) => more,
            None => now + self.range.saturating_sub(self.last),
        };
        self.sum += more;
        self.last = now;
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Mechanism for Energy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut super::Launch) -> io::Result<()> {
        let mut refused = None;
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let zone = entry.path();
            let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
            // "core" and "uncore" are parts of their package, and "psys" is the board. RAPL by
            // memory-mapped registers ("intel-rapl-mmio") counts the same energy again.
            let counts = name.starts_with("package-") || name.trim() == "dram";
            let is_rapl = entry.file_name().to_str().is_some_and(|n| n.starts_with("intel-rapl:"));
            if !counts || !is_rapl || self.domains.len() == MAX_DOMAINS {
                continue;
            }
            let file = zone.join("energy_uj");
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let range = number(&zone.join("max_energy_range_uj")).unwrap_or(0);
                    let Ok(last) = text.trim().parse() else { continue };
                    self.domains.push(Domain { file, range, last, sum: 0 });
                }
                Err(e) => refused = Some(format!("{}: {e}", file.display())),
            }
        }
        self.is_missing = refused.is_some();
        if self.domains.is_empty() {
            let none = || "no processor here reports its energy".to_owned();
            return Err(io::Error::other(refused.unwrap_or_else(none)));
        }
        Ok(())
    }

    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        // The energy from here on belongs to the task.
        for domain in &mut self.domains {
            domain.last = number(&domain.file).unwrap_or(domain.last);
        }
        self.last = Some(Instant::now());
        Ok(())
    }

    fn sample(&mut self, _now: &mut Sample, _ledger: &mut Ledger) {
        let passed = self.last.map_or(Duration::ZERO, |last| last.elapsed());
        self.update(passed);
        self.last = Some(Instant::now());
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let passed = self.last.map_or(Duration::ZERO, |last| last.elapsed());
        self.update(passed);
        let joules = self.domains.iter().map(|d| d.sum).sum::<u64>() as f64 / 1e6;
        let watts = joules / ledger.elapsed().as_secs_f64();
        let others = "of packages and their memory; includes all processes on the machine";
        let (completeness, error_bound, reason) = if self.is_missing {
            (Completeness::AtLeast, None, "the energy of a processor is not readable".to_owned())
        } else if self.may_have_wrapped {
            let reason = "a counter may have wrapped around more than once between two samples";
            (Completeness::AtLeast, None, reason.to_owned())
        } else {
            (Completeness::All, Some(2.0 * UPDATE_SECONDS * watts), others.to_owned())
        };
        let reason = Some(reason);
        let offer = Offer { method: NAME, value: joules, completeness, error_bound, reason };
        ledger.offers.add("energy_joules", offer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Launch;

    fn zone(folder: &Path, zone: &str, name: &str, range: u64) -> PathBuf {
        let zone = folder.join(zone);
        fs::create_dir(&zone).expect("made");
        fs::write(zone.join("name"), format!("{name}\n")).expect("written");
        fs::write(zone.join("max_energy_range_uj"), format!("{range}\n")).expect("written");
        let file = zone.join("energy_uj");
        fs::write(&file, "0\n").expect("written");
        file
    }

    #[test]
    fn packages_and_memory_add_up_over_a_wrap_and_parts_are_not_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let range = 200_000_000_000;
        let package = zone(folder.path(), "intel-rapl:0", "package-0", range);
        let memory = zone(folder.path(), "intel-rapl:0:1", "dram", range);
        let core = zone(folder.path(), "intel-rapl:0:0", "core", range);
        let again = zone(folder.path(), "intel-rapl-mmio:0", "package-0", range);
        let set = |file: &Path, value: u64| fs::write(file, format!("{value}\n")).expect("written");
        set(&package, range - 1_000_000);
        let mut ledger = Ledger::new();
        let mut energy = Energy::new(folder.path());
        energy.prepare(&mut Launch::default()).expect("there are counters");
        energy.attach(1, &mut ledger).expect("they can be read");
        set(&package, 2_000_000);
        energy.sample(&mut Sample::default(), &mut ledger);
        for (file, value) in [(&package, 2_500_000), (&memory, 4_000_000), (&core, 9), (&again, 9)]
        {
            set(file, value);
        }
        energy.finish(&mut ledger);
        let reading = ledger.offers.best("energy_joules", "");
        assert_eq!((reading.value, reading.completeness), (Some(7.5), Completeness::All));
        assert!(reading.error_bound.is_some_and(f64::is_finite));
        let mut energy = Energy::new(folder.path());
        energy.prepare(&mut Launch::default()).expect("there are counters");
        energy.update(Duration::from_secs(1_000_000));
        assert!(energy.may_have_wrapped, "twelve days without a sample");
        assert!(Energy::new(&folder.path().join("none")).prepare(&mut Launch::default()).is_err());
    }
}
