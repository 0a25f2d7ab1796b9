//! The load that keeps the machine busy while the agent is measured.

use std::path::Path;
use std::time::Duration;

use super::bursts::Bursts;
use super::fio::{Fio, WAKE};
use crate::child::Process;
use crate::worker::Worker;

/// The load, in words.
pub(super) const WORDS: &str =
    "fio reads and writes 4 KiB at random places of a file, past the cache";

/// A load. Ends when dropped.
pub(super) struct Busy {
    fio: Process,
    bursts: Worker,
}

impl Busy {
    /// Starts it on a file in `dir`; it ends by itself after `life`.
    ///
    /// # Errors
    /// The reason why the load cannot run here.
    pub(super) fn start(dir: &Path, life: Duration) -> Result<Self, String> {
        let fio = Fio::new(dir);
        fio.lay_out()?;
        let seconds = (life + WAKE).as_secs_f64();
        let bursts = Worker::start(&Bursts { seconds });
        let bursts = bursts.map_err(|e| e.message().to_owned())?;
        Ok(Self { fio: fio.keep_going(life)?, bursts })
    }

    /// Checks that the load still runs.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match (self.fio.runs(), self.bursts.runs()) {
            (true, true) => Ok(()),
            (false, _) => Err("fio ended before the window did".to_owned()),
            (true, false) => Err("the bursts ended before the window did".to_owned()),
        }
    }
}
