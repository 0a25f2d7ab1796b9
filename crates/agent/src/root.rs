//! The sources of the sensors on this machine.

use std::path::Path;

use skopos_sense::Root;
use skopos_term::state::{CALIBRATION, SYSTEM, calibration};

/// The sources of the sensors on this machine, with the calibrations of this user, or of root while
/// this user has measured nothing.
pub fn root() -> Root {
    let system = Path::new(SYSTEM).join(CALIBRATION);
    Root { calibrations: calibration().into_iter().chain([system]).collect(), ..Root::default() }
}
