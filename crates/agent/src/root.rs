//! Paths of the sensors' sources on this machine.

use std::path::Path;

use skopos_sense::Root;
use skopos_term::state::{CALIBRATION, SYSTEM, calibration};

/// Returns the paths of the sensors' sources on this machine, with the calibrations of this user, or those
/// of root while this user has none.
pub fn root() -> Root {
    let system = Path::new(SYSTEM).join(CALIBRATION);
    Root { calibrations: calibration().into_iter().chain([system]).collect(), ..Root::default() }
}
