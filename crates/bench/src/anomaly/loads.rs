//! Loads that come and go, as users have them: a disk, a network, a compiler, a program that fills memory.

use std::path::Path;
use std::process::Command;

use skopos_model::SplitMix64;
use skopos_net::lab::Lab;

use super::programs::{Outcome, PEER_PORT, start, stress};
use crate::child::Process;

/// Seconds of a load, and of the pause after it.
const LASTING: (f64, f64) = (20.0, 60.0);
const PAUSE: (f64, f64) = (60.0, 180.0);

const KINDS: usize = 4;

/// The loads of a run.
pub(super) struct Loads {
    random: SplitMix64,
    loads: [Load; KINDS],
}

#[derive(Default)]
struct Load {
    process: Option<Process>,
    until: f64,
}

impl Loads {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SplitMix64::new(seed ^ 0x10ad), loads: Default::default() }
    }

    /// Starts and ends loads as is due at a time in seconds.
    ///
    /// # Errors
    /// A program is not installed.
    pub(super) fn run(&mut self, at: f64, lab: &Lab, folder: &Path) -> Outcome<()> {
        for kind in 0..KINDS {
            if at < self.loads[kind].until {
                continue;
            }
            if self.loads[kind].process.take().is_some() {
                self.loads[kind].until = at + self.random.between(PAUSE.0, PAUSE.1);
                continue;
            }
            let lasting = self.random.between(LASTING.0, LASTING.1);
            let strength = self.random.between(0.5, 1.0);
            self.loads[kind].until = at + lasting;
            let mut command = command(kind, strength, lab, folder)?;
            self.loads[kind].process = Some(start(&mut command)?);
        }
        Ok(())
    }
}

fn command(kind: usize, strength: f64, lab: &Lab, folder: &Path) -> Outcome<Command> {
    let share = |most: f64| (strength * most) as u64;
    Ok(match kind {
        0 => {
            let mut fio = Command::new("fio");
            fio.args(["--name=load", "--rw=randrw", "--bs=16k", "--size=256m", "--time_based"]);
            fio.args(["--runtime=300", "--ioengine=psync", "--direct=1"]);
            fio.arg(format!("--rate={}m", share(10.0)));
            fio.arg(format!("--filename={}", folder.join("load").display()));
            fio
        }
        1 => {
            let mut iperf = lab.command("a", "iperf3")?;
            iperf.args(["-c", &lab.addresses("b")?.0.to_string(), "-p", &PEER_PORT.to_string()]);
            iperf.args(["-t", "300", "-b", &format!("{}M", share(40.0))]);
            iperf
        }
        2 => stress(&["--cpu", "1", "--cpu-load", &share(80.0).to_string()]),
        _ => stress(&["--vm", "1", "--vm-keep", "--vm-bytes", &format!("{}M", share(1500.0))]),
    })
}
